//! The private directory that a run's files are placed in: made before it, removed after it. Names come from strangers and never lead outside.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use cofferdam_contract::problem::Problem;
use cofferdam_store::{DataDir, RunId};

/// A file to be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacedFile {
    /// Relative, checked by [`problem`].
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
    pub(crate) executable: Executable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Executable {
    Yes,
    No,
}

/// A directory that goes when this goes.
#[derive(Debug)]
pub(crate) struct PrivateDir {
    path: PathBuf,
}

pub(crate) const MAX_FILES: usize = 1000;
const MAX_NAME: usize = 255;
const MAX_PATH: usize = 1024;

/// What is wrong with a name, if anything.
pub(crate) fn problem(field: &str, path: &str) -> Option<Problem> {
    let names: Vec<&str> = path.split('/').collect();
    let fix = if path.is_empty() {
        "is empty; give the file a name"
    } else if path.len() > MAX_PATH || names.iter().any(|name| name.len() > MAX_NAME) {
        "is too long; use names of at most 255 bytes and paths of at most 1024"
    } else if path.contains('\0') {
        "holds a NUL byte; remove it"
    } else if names.iter().any(|name| matches!(*name, "" | "." | "..")) {
        "is not a plain relative path; write it like `src/main.py`, without `..`"
    } else {
        return None;
    };
    Some(Problem::new(field, path, fix))
}

impl PrivateDir {
    pub(crate) fn create(dir: &DataDir, run: RunId) -> io::Result<Self> {
        let path = dir.work().join(run.to_string());
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir.work())?;
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Nothing runs in here yet, so that no name can be a link by now.
    pub(crate) fn place(&self, file: &PlacedFile) -> io::Result<()> {
        let relative = Path::new(&file.path);
        let is_plain = relative
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !is_plain {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let path = self.path.join(relative);
        if let Some(parent) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(parent)?;
        }
        let mode = match file.executable {
            Executable::Yes => 0o755,
            Executable::No => 0o644,
        };
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(path)?
            .write_all(&file.content)
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a workspace could not be removed; the next start tries again");
        }
    }
}

/// Removes what an earlier daemon left when it was killed. Only one daemon uses a data directory.
pub(crate) fn sweep_best_effort(dir: &DataDir) {
    let Ok(entries) = fs::read_dir(dir.work()) else {
        return;
    };
    for entry in entries.flatten() {
        let is_ours = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.parse::<RunId>().is_ok());
        if is_ours {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> PlacedFile {
        PlacedFile {
            path: path.to_owned(),
            content: b"x".to_vec(),
            executable: Executable::No,
        }
    }

    #[test]
    fn no_name_leads_outside() {
        for bad in [
            "",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "a//b",
            "./a",
            "a/",
            "a\0b",
            "a/..",
        ] {
            assert!(problem("files[0].path", bad).is_some(), "{bad:?}");
        }
        for good in ["a", ".hidden", "a/b/c.py", "..a", "ünï"] {
            assert_eq!(problem("files[0].path", good), None, "{good:?}");
        }
        assert!(problem("f", &"x".repeat(256)).is_some());
        assert!(problem("f", &"x/".repeat(600)).is_some());
    }

    #[test]
    fn files_are_placed_and_everything_goes_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::at(dir.path());
        let made = PrivateDir::create(&data, RunId::new()).unwrap();
        made.place(&file("a/b/c")).unwrap();
        assert_eq!(fs::read(made.path().join("a/b/c")).unwrap(), b"x");
        assert!(made.place(&file("a/b/c")).is_err(), "twice");
        assert!(made.place(&file("a/b/c/d")).is_err(), "below a file");
        assert!(made.place(&file("../x")).is_err());
        drop(made);
        assert_eq!(fs::read_dir(data.work()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_daemon_left_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::at(dir.path());
        let made = PrivateDir::create(&data, RunId::new()).unwrap();
        made.place(&file("a/b")).unwrap();
        std::mem::forget(made);
        fs::write(data.work().join("notes"), "somebody's own").unwrap();
        sweep_best_effort(&data);
        let left: Vec<_> = fs::read_dir(data.work()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
    }
}
