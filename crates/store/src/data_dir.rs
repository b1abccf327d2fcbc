//! Where history lives: one directory per user, readable by that user alone.
//!
//! ```text
//! history.db        what has been adopted (SQLite, WAL)
//! spool/ID.run      the journal of a run that goes on, or has ended and is not adopted yet
//! spool/05f.free    an empty file, to be used for a journal again
//! objects/ab/cdef…  contents, by their digest
//! tokens.json       who may use the daemon
//! idempotency.jsonl which run a client's key stands for
//! accepted/ID.job  a run that the daemon has promised, until it has ended and is told of; holds what the client sent
//! daemon.lock       held by the daemon that uses this directory
//! daemon.session    the session that the daemon reports for, until it has said that it ends
//! outbox.db         what is still to be told to others (SQLite, WAL)
//! settlements.db    what is still to be settled on a chain (SQLite, WAL); settlements.lock is held by who does it
//! chain.db          a chain of one's own: its state and its blocks (SQLite, WAL); chain.key is the key of who owns it
//! couriers/ID.lock  locked for as long as a process that tells it lives
//! audit-head        the last entry of the audit chain, kept apart from the chain
//! work/ID/          the private workspace of a run that brought its files with it
//! keys/             keys that sign, and those that are trusted
//! results/          answers that are known already and the key that vouches for them; can be removed at any time
//! wasm/             compiled WebAssembly and the key that vouches for it; can be removed at any time
//! images/           unpacked images: roots of native sandboxes
//! last-pruned       when what is too old was last looked for: the time of this file
//! ```

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::StoreError;

/// Names the directory instead of the XDG one.
pub const VARIABLE: &str = "COFFERDAM_DATA_DIR";

/// The directory that holds history. Nothing is made until something is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDir {
    path: PathBuf,
}

impl DataDir {
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// `COFFERDAM_DATA_DIR`, else `$XDG_DATA_HOME/cofferdam`, else `~/.local/share/cofferdam`. A relative one of the last two would mean the current directory, and is not used.
    pub fn of_process() -> Option<Self> {
        Self::from_environment(|name| std::env::var_os(name))
    }

    fn from_environment(lookup: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let value = |name| {
            lookup(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let absolute = |name| value(name).filter(|path| path.is_absolute());
        value(VARIABLE)
            .or_else(|| absolute("XDG_DATA_HOME").map(|base| base.join("cofferdam")))
            .or_else(|| absolute("HOME").map(|home| home.join(".local/share/cofferdam")))
            .map(Self::at)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn database(&self) -> PathBuf {
        self.path.join("history.db")
    }

    pub fn spool(&self) -> PathBuf {
        self.path.join("spool")
    }

    pub fn objects(&self) -> PathBuf {
        self.path.join("objects")
    }

    pub fn outbox(&self) -> PathBuf {
        self.path.join("outbox.db")
    }

    /// What was decided and is to be settled on a chain.
    pub fn settlements(&self) -> PathBuf {
        self.path.join("settlements.db")
    }

    /// The chain that lives here, if there is one.
    pub fn chain(&self) -> PathBuf {
        self.path.join("chain.db")
    }

    /// The key of its owner.
    pub fn chain_key(&self) -> PathBuf {
        self.path.join("chain.key")
    }

    pub fn couriers(&self) -> PathBuf {
        self.path.join("couriers")
    }

    /// What the daemon has promised.
    pub fn accepted(&self) -> PathBuf {
        self.path.join("accepted")
    }

    pub fn audit_head(&self) -> PathBuf {
        self.path.join("audit-head")
    }

    /// Workspaces of runs that bring their own files: nothing of the history.
    pub fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// Keys that sign, and those that are trusted.
    pub fn keys(&self) -> PathBuf {
        self.path.join("keys")
    }

    /// Answers that are known already.
    pub fn results(&self) -> PathBuf {
        self.path.join("results")
    }

    /// Unpacked images.
    pub fn images(&self) -> PathBuf {
        self.path.join("images")
    }

    pub fn last_pruned(&self) -> PathBuf {
        self.path.join("last-pruned")
    }

    /// Makes what is missing. Others may not look: outputs and file contents are nobody else's business.
    pub fn create(&self) -> Result<(), StoreError> {
        for path in [self.path.clone(), self.spool(), self.objects()] {
            create_private(&path).map_err(StoreError::io("make the directory", &path))?;
        }
        Ok(())
    }
}

/// Makes a directory that others may not look into.
pub fn create_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file that was not there, and has it on the disk. Half of one, such as of a key, is of no use to anybody and would stand in the way of the next attempt.
pub(crate) fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path);
    made.and_then(|mut file| {
        let result = file.write_all(bytes).and_then(|()| file.sync_all());
        if result.is_err() {
            let _ = fs::remove_file(path);
        }
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Option<PathBuf> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        DataDir::from_environment(lookup).map(|dir| dir.path)
    }

    #[test]
    fn the_nearest_name_wins() {
        assert_eq!(
            found(&[(VARIABLE, "/d"), ("XDG_DATA_HOME", "/x"), ("HOME", "/h")]),
            Some("/d".into())
        );
        assert_eq!(
            found(&[(VARIABLE, ""), ("XDG_DATA_HOME", "/x"), ("HOME", "/h")]),
            Some("/x/cofferdam".into())
        );
        assert_eq!(
            found(&[("XDG_DATA_HOME", "relative"), ("HOME", "/h")]),
            Some("/h/.local/share/cofferdam".into())
        );
        assert_eq!(found(&[("HOME", "relative")]), None);
    }
}
