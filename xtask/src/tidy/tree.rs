//! The files that tidy looks at, read once: Rust, Markdown and manifests, without what is built or downloaded.

use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) files: Vec<SourceFile>,
    /// Every path that exists, for links; relative to the root.
    pub(super) paths: Vec<PathBuf>,
}

#[derive(Debug)]
pub(super) struct SourceFile {
    /// Relative to the root.
    pub(super) path: PathBuf,
    pub(super) text: String,
}

const BUILT: [&str; 6] = [
    "target",
    ".git",
    "node_modules",
    "__pycache__",
    "fuzz/corpus",
    "fuzz/artifacts",
];

impl Tree {
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let mut tree = Self::default();
        tree.visit(root, Path::new(""))?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    pub(super) fn with_extension(&self, extension: &str) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(move |file| {
            file.path
                .extension()
                .is_some_and(|found| found == extension)
        })
    }

    fn visit(&mut self, root: &Path, below: &Path) -> Result<(), String> {
        let dir = root.join(below);
        let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
        for entry in fs::read_dir(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = below.join(entry.file_name());
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                if BUILT.iter().any(|built| path.ends_with(built)) {
                    continue;
                }
                self.visit(root, &path)?;
            } else if kind.is_file() && is_read(&path) {
                let text = fs::read_to_string(root.join(&path))
                    .map_err(|error| format!("{}: {error}", path.display()))?;
                self.files.push(SourceFile {
                    path: path.clone(),
                    text,
                });
            }
            self.paths.push(path);
        }
        Ok(())
    }
}

fn is_read(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| ["rs", "md", "toml"].iter().any(|read| extension == *read))
}

/// A small tree on disk, for the tests of the checks.
#[cfg(test)]
pub(super) fn of(files: &[(&str, &str)]) -> Tree {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Tree::read(dir.path()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_not_read_and_other_files_are_only_known() {
        let tree = of(&[
            ("a.rs", "x"),
            ("target/b.rs", "y"),
            ("sub/c.md", "z"),
            ("sub/d.bin", "w"),
        ]);
        let read: Vec<_> = tree
            .files
            .iter()
            .map(|file| file.path.display().to_string())
            .collect();
        assert_eq!(read, ["a.rs", "sub/c.md"]);
        assert!(tree.paths.contains(&PathBuf::from("sub/d.bin")));
        assert!(tree.paths.contains(&PathBuf::from("sub")));
    }
}
