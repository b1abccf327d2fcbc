//! The walk through a stranger's tree: directories are held open, no link is followed, nothing but a regular file is opened. What a `.gitignore` of the tree says is
//! obeyed, within bounds; what lies above the tree and what the caller has set for git decides nothing.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Dir, DirEntry, FileType};

use crate::beneath::Beneath;
use crate::detect::{Bounds, MAX_NOTES};
use crate::model::join;

/// Never part of a project's own source, whatever its `.gitignore` says.
const PASSED_BY: [&str; 13] = [
    ".git",
    ".hg",
    ".svn",
    "node_modules",
    "bower_components",
    "bin",
    "obj",
    "target",
    ".venv",
    "venv",
    "__pycache__",
    ".tox",
    "vendor",
];

const IGNORE: &str = ".gitignore";
/// A list that people write.
const MAX_IGNORE: u64 = 64 << 10;
/// In one list: each costs time to make and to match.
const MAX_LINES: usize = 1_000;
/// In all lists of the tree.
const MAX_ALL_LINES: usize = 20_000;
/// Each level holds a descriptor and a part of the stack.
const MAX_DEPTH: usize = 128;
/// A pattern is as long as a path; one with many alternatives in it grows when it is made ready.
const MAX_LINE: usize = 1 << 10;

/// Says whether to go on.
pub(crate) type IsOver<'a> = &'a dyn Fn() -> bool;

/// What is known on the way.
pub(crate) struct Walk<'a> {
    bounds: &'a Bounds,
    is_over: IsOver<'a>,
    device: u64,
    levels: Vec<Level>,
    lines: usize,
    /// Entries that were read, with those that are passed by.
    read: u64,
    pub(crate) seen: u64,
    pub(crate) notes: Vec<String>,
}

/// The rules of one directory that is being walked through.
struct Level {
    /// Where in a path begins what is relative to this directory.
    from: usize,
    rules: Gitignore,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(bounds: &'a Bounds, is_over: IsOver<'a>) -> Self {
        Self {
            bounds,
            is_over,
            device: 0,
            levels: Vec::new(),
            lines: MAX_ALL_LINES,
            read: 0,
            seen: 0,
            notes: Vec::new(),
        }
    }

    /// Shows every regular file: the directory that it lies in, and its name.
    pub(crate) fn through(
        &mut self,
        top: &Beneath,
        visit: &mut dyn FnMut(&str, &str),
    ) -> io::Result<()> {
        let dir = top.again()?;
        self.device = rustix::fs::fstat(&dir)?.st_dev;
        self.read = 1;
        self.seen = 1;
        if self.bounds.depth > 0 {
            let _ = self.dir(dir, ".", 1, visit);
        }
        Ok(())
    }

    fn dir(
        &mut self,
        dir: OwnedFd,
        path: &str,
        depth: usize,
        visit: &mut dyn FnMut(&str, &str),
    ) -> ControlFlow<()> {
        let held = Beneath::from(dir);
        let rules = self.rules(&held, path);
        let entries = held.again().and_then(|dir| Ok(Dir::new(dir)?));
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => {
                self.note(format!("{path}: {error}"));
                return ControlFlow::Continue(());
            }
        };
        let has_rules = rules.is_some();
        self.levels.extend(rules);
        let mut flow = ControlFlow::Continue(());
        while let Some(entry) = entries.read() {
            flow = match entry {
                Ok(entry) => self.entry(&held, &entry, path, depth, visit),
                Err(error) => {
                    self.note(format!("{path}: {error}"));
                    break;
                }
            };
            if flow.is_break() {
                break;
            }
        }
        if has_rules {
            self.levels.pop();
        }
        flow
    }

    fn entry(
        &mut self,
        held: &Beneath,
        entry: &DirEntry,
        dir: &str,
        depth: usize,
        visit: &mut dyn FnMut(&str, &str),
    ) -> ControlFlow<()> {
        if matches!(entry.file_name().to_bytes(), b"." | b"..") {
            return ControlFlow::Continue(());
        }
        // Whatever it is: what is passed by takes time, too.
        if self.read >= self.bounds.entries {
            self.note(format!(
                "stopped after {} entries; search a smaller part",
                self.read
            ));
            return ControlFlow::Break(());
        }
        self.read += 1;
        if self.read.is_multiple_of(256) && (self.is_over)() {
            self.note(
                "the time was over before all was searched; search a smaller part".to_owned(),
            );
            return ControlFlow::Break(());
        }
        let Ok(name) = entry.file_name().to_str() else {
            return ControlFlow::Continue(());
        };
        let kind = match entry.file_type() {
            FileType::Unknown => held.kind(name),
            kind => kind,
        };
        let path = join(dir, name);
        let is_dir = kind == FileType::Directory;
        if (is_dir && PASSED_BY.contains(&name)) || self.is_ignored(&path, is_dir) {
            return ControlFlow::Continue(());
        }
        self.seen += 1;
        match kind {
            FileType::RegularFile => visit(dir, name),
            FileType::Directory if depth < self.bounds.depth.min(MAX_DEPTH) => {
                match self.enter(held, name) {
                    Ok(Some(inner)) => return self.dir(inner, &path, depth + 1, visit),
                    Ok(None) => {}
                    Err(error) => self.note(format!("{path}: {error}")),
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// Not into another file system: it is mounted there, and no part of the tree.
    fn enter(&self, held: &Beneath, name: &str) -> io::Result<Option<OwnedFd>> {
        let inner = held.dir(name)?;
        let stat = rustix::fs::fstat(&inner)?;
        Ok((stat.st_dev == self.device).then_some(inner))
    }

    /// The inner rules come before the outer ones.
    fn is_ignored(&self, path: &str, is_dir: bool) -> bool {
        for level in self.levels.iter().rev() {
            let relative = path.get(level.from..).unwrap_or(path);
            match level.rules.matched(relative, is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }

    fn rules(&mut self, held: &Beneath, path: &str) -> Option<Level> {
        let text = match held.text(IGNORE, MAX_IGNORE) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                self.note(format!("{}: {error}; it is not obeyed", join(path, IGNORE)));
                return None;
            }
        };
        let mut builder = GitignoreBuilder::new("");
        let lines = text
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        for (number, line) in lines.enumerate() {
            if number >= MAX_LINES || self.lines == 0 {
                let note = format!("{}: only its first lines are obeyed", join(path, IGNORE));
                self.note(note);
                break;
            }
            self.lines -= 1;
            // A pattern that cannot be read fits nothing.
            if line.len() <= MAX_LINE {
                let _ = builder.add_line(None, line);
            }
        }
        let from = match path {
            "." => 0,
            _ => path.len() + 1,
        };
        match builder.build() {
            Ok(rules) => Some(Level { from, rules }),
            Err(error) => {
                self.note(format!("{}: {error}; it is not obeyed", join(path, IGNORE)));
                None
            }
        }
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note);
        }
    }
}
