//! Finding projects: one walk that looks at names only, then a look into the manifests. Ignored files, dependencies and build output are passed by; links are not
//! followed.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read as _};
use std::path::Path;

use crate::beneath::Beneath;
use crate::ecosystem;
use crate::model::{Detection, Project, join};
use crate::walk::{IsOver, Walk};

/// How far the search goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Levels below the directory that is searched.
    pub depth: usize,
    /// Files and directories that are looked at.
    pub entries: u64,
    /// Manifests that are read.
    pub manifests: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            depth: 12,
            entries: 5_000_000,
            manifests: 5_000,
        }
    }
}

/// A manifest is text that a person writes.
pub(crate) const MAX_MANIFEST: u64 = 4 << 20;
/// All manifests together: each is parsed.
const MAX_MANIFESTS: u64 = 128 << 20;
const MAX_HEAD: u64 = 512;
pub(crate) const MAX_NOTES: usize = 20;
/// Directories that hold anything of interest.
const MAX_DIRS: usize = 50_000;
/// Members and references of all projects together: few bytes of manifests can ask for very many.
const MAX_TIES: usize = 100_000;
const MAX_TIES_BYTES: usize = 16 << 20;

/// What the walk saw, before any file was opened.
pub(crate) struct Tree<'a> {
    beneath: &'a Beneath,
    dirs: BTreeMap<String, Names>,
    /// How many manifests are still taken, and how many directories: who looks at each must not be kept for ever.
    room: (usize, usize),
    /// Bytes of manifests that are still read.
    left: u64,
    /// How many members and references are still kept, and with how many bytes.
    ties: (usize, usize),
    is_over: IsOver<'a>,
    pub(crate) notes: Vec<String>,
}

/// The names in one directory that mean something.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) files: Vec<String>,
    pub(crate) has_python_tests: bool,
    pub(crate) has_go_tests: bool,
    pub(crate) has_node_tests: bool,
}

/// Finds the projects below a directory.
pub fn detect(root: &Path, bounds: &Bounds) -> io::Result<Detection> {
    detect_until(root, bounds, &|| false)
}

/// The same, until somebody says that it is over: what was found by then, with a note.
pub fn detect_until(root: &Path, bounds: &Bounds, is_over: IsOver<'_>) -> io::Result<Detection> {
    let beneath = Beneath::open(root)?;
    let mut tree = Tree {
        beneath: &beneath,
        dirs: BTreeMap::new(),
        room: (bounds.manifests, MAX_DIRS),
        left: MAX_MANIFESTS,
        ties: (MAX_TIES, MAX_TIES_BYTES),
        is_over,
        notes: Vec::new(),
    };
    let entries = tree.walk(bounds)?;
    let mut projects = ecosystem::find(&mut tree, bounds.manifests);
    projects.sort_by(order);
    let Tree { mut notes, .. } = tree;
    notes.truncate(MAX_NOTES);
    Ok(Detection {
        projects,
        entries,
        notes,
    })
}

fn order(a: &Project, b: &Project) -> std::cmp::Ordering {
    let depth = |project: &Project| match project.path.as_str() {
        "." => 0,
        path => path.split('/').count(),
    };
    (depth(a), &a.path, a.ecosystem, &a.manifest).cmp(&(
        depth(b),
        &b.path,
        b.ecosystem,
        &b.manifest,
    ))
}

impl Tree<'_> {
    fn walk(&mut self, bounds: &Bounds) -> io::Result<u64> {
        let beneath = self.beneath;
        let mut walk = Walk::new(bounds, self.is_over);
        walk.through(beneath, &mut |dir, name| self.see(dir, name))?;
        for note in walk.notes {
            self.note(note);
        }
        Ok(walk.seen)
    }

    fn see(&mut self, dir: &str, name: &str) {
        let meaning = meaning(name);
        if meaning == Meaning::None {
            return;
        }
        if !self.dirs.contains_key(dir) {
            match self.room.1.checked_sub(1) {
                Some(room) => self.room.1 = room,
                None => return self.full(),
            }
        }
        if meaning == Meaning::Manifest {
            match self.room.0.checked_sub(1) {
                Some(room) => self.room.0 = room,
                None => return self.full(),
            }
        }
        let names = self.dirs.entry(dir.to_owned()).or_default();
        match meaning {
            Meaning::Manifest => names.files.push(name.to_owned()),
            Meaning::PythonTest => names.has_python_tests = true,
            Meaning::GoTest => names.has_go_tests = true,
            Meaning::NodeTest => names.has_node_tests = true,
            Meaning::None => {}
        }
    }

    fn full(&mut self) {
        const NOTE: &str = "there is more here than is looked at; search a smaller part";
        if !self.notes.iter().any(|note| note == NOTE) {
            self.note(NOTE.to_owned());
        }
    }

    /// Every directory with the names in it, the outer ones before the inner ones.
    pub(crate) fn dirs(&self) -> impl Iterator<Item = (&str, &Names)> {
        self.dirs.iter().map(|(dir, names)| (dir.as_str(), names))
    }

    /// Whether any directory from here down is of this kind.
    pub(crate) fn any_below(&self, dir: &str, is: impl Fn(&Names) -> bool) -> bool {
        if dir == "." {
            return self.dirs.values().any(is);
        }
        let start = format!("{dir}/");
        let below = self.dirs.range(start.clone()..);
        let mut below = below.take_while(|(at, _)| at.starts_with(&start));
        self.dirs.get(dir).is_some_and(&is) || below.any(|(_, names)| is(names))
    }

    pub(crate) fn has(&self, dir: &str, name: &str) -> bool {
        self.dirs
            .get(dir)
            .is_some_and(|names| names.files.iter().any(|found| found == name))
    }

    /// The nearest directory from this one upwards that has a file of this name.
    pub(crate) fn nearest(&self, dir: &str, name: &str) -> Option<String> {
        let mut at = dir;
        loop {
            if self.has(at, name) {
                return Some(join(at, name));
            }
            if at == "." {
                return None;
            }
            at = crate::model::parent(at);
        }
    }

    /// A manifest's text; a note where it cannot be read.
    pub(crate) fn text(&mut self, path: &str) -> Option<String> {
        if self.left == 0 || (self.is_over)() {
            self.full();
            return None;
        }
        match self.beneath.read(path, MAX_MANIFEST) {
            Ok(bytes) => {
                let read = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                self.left = self.left.saturating_sub(read);
                Some(crate::xml::decode(&bytes).into_owned())
            }
            Err(error) => {
                self.note(format!("{path}: {error}"));
                None
            }
        }
    }

    /// The manifests that one project names, each once, as far as there is room for them.
    pub(crate) fn hold<S: Into<String> + AsRef<str>>(
        &mut self,
        manifests: impl Iterator<Item = S>,
    ) -> Vec<String> {
        let mut held = Vec::new();
        let mut known = HashSet::new();
        for manifest in manifests {
            let name = manifest.as_ref();
            if known.contains(name) {
                continue;
            }
            let left = self.ties.0.checked_sub(1);
            let Some(left) = left.zip(self.ties.1.checked_sub(name.len())) else {
                self.full();
                break;
            };
            self.ties = left;
            let name: String = manifest.into();
            known.insert(name.clone());
            held.push(name);
        }
        held
    }

    /// How a file begins; nothing where it cannot be read.
    pub(crate) fn head(&self, path: &str) -> String {
        let mut bytes = Vec::new();
        if let Ok(file) = self.beneath.file(path) {
            let _ = file.take(MAX_HEAD).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(crate) fn is_file(&self, path: &str) -> bool {
        self.beneath.is_file(path)
    }

    pub(crate) fn note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note);
        }
    }
}

/// Whether a directory is this one or lies in it.
pub(crate) fn is_below(dir: &str, top: &str) -> bool {
    top == "."
        || dir == top
        || dir
            .strip_prefix(top)
            .is_some_and(|rest| rest.starts_with('/'))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Manifest,
    PythonTest,
    GoTest,
    NodeTest,
    None,
}

fn meaning(name: &str) -> Meaning {
    const NAMES: [&str; 33] = [
        "package.json",
        "package-lock.json",
        "npm-shrinkwrap.json",
        "yarn.lock",
        "pnpm-lock.yaml",
        "pnpm-workspace.yaml",
        "lerna.json",
        ".nvmrc",
        ".node-version",
        "tsconfig.json",
        ".eslintrc.json",
        "eslint.config.js",
        "eslint.config.mjs",
        "eslint.config.cjs",
        "pyproject.toml",
        "setup.py",
        "setup.cfg",
        "requirements.txt",
        "uv.lock",
        "pytest.ini",
        "conftest.py",
        "tox.ini",
        ".python-version",
        "Cargo.toml",
        "Cargo.lock",
        "rust-toolchain",
        "rust-toolchain.toml",
        "nextest.toml",
        "go.mod",
        "go.work",
        "go.sum",
        "pom.xml",
        "global.json",
    ];
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    if NAMES.contains(&name) || ends(&[".sln", ".slnx", ".csproj", ".fsproj", ".vbproj"]) {
        return Meaning::Manifest;
    }
    if name.ends_with("_test.go") {
        return Meaning::GoTest;
    }
    if name.ends_with(".py") && (name.starts_with("test") || name.ends_with("_test.py")) {
        return Meaning::PythonTest;
    }
    if ends(&[
        ".test.js",
        ".test.mjs",
        ".test.cjs",
        ".test.ts",
        ".spec.js",
        ".spec.ts",
        "-test.js",
        "_test.js",
    ]) {
        return Meaning::NodeTest;
    }
    Meaning::None
}

#[cfg(test)]
#[path = "detect_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "hostile_tests.rs"]
mod hostile_tests;
