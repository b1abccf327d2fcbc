//! Whether the daemon before this one said that it ends: a file with its session, from when it was ready until it has reported its end.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use cofferdam_store::DataDir;
use jiff::Timestamp;

/// `daemon.session` of the data directory. Its time is the last sign of life.
#[derive(Debug)]
pub(super) struct Mark {
    path: PathBuf,
    is_ours: AtomicBool,
}

/// A daemon that went without a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Before {
    pub(super) session: String,
    /// The same however often it is read, so that what is told twice is told under one key.
    pub(super) last_seen: Timestamp,
}

impl Mark {
    pub(super) fn of(dir: &DataDir) -> Self {
        Self {
            path: dir.path().join("daemon.session"),
            is_ours: AtomicBool::new(false),
        }
    }

    pub(super) fn before(&self) -> Option<Before> {
        let session = fs::read_to_string(&self.path).ok()?;
        let written = fs::metadata(&self.path).and_then(|found| found.modified());
        let written = written.unwrap_or(SystemTime::UNIX_EPOCH);
        Some(Before {
            session: session.trim().to_owned(),
            last_seen: Timestamp::try_from(written).unwrap_or_else(|_| Timestamp::now()),
        })
    }

    /// From now on this session is the one that ends without a word, if it does.
    pub(super) fn begin(&self, session: &str) {
        match self.write(session) {
            Ok(()) => self.is_ours.store(true, Ordering::Release),
            Err(error) => tracing::warn!(%error, "the session could not be written down"),
        }
    }

    /// Still alive.
    pub(super) fn touch(&self) {
        if self.is_ours.load(Ordering::Acquire) {
            let file = OpenOptions::new().write(true).open(&self.path);
            let _ = file.and_then(|file| file.set_modified(SystemTime::now()));
        }
    }

    pub(super) fn end(&self) {
        let _ = fs::remove_file(&self.path);
    }

    /// Another file takes its place, so that half of a name is never read.
    fn write(&self, session: &str) -> io::Result<()> {
        let new = self.path.with_extension("session.new");
        fs::write(&new, session)?;
        fs::rename(&new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_that_said_nothing_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let dir = DataDir::at(dir.path());
        let (first, second) = (Mark::of(&dir), Mark::of(&dir));
        assert_eq!(first.before(), None);
        first.begin("first");
        let before = second.before().unwrap();
        assert_eq!(before.session, "first");
        // One that has not begun leaves the time of the other alone.
        second.touch();
        assert_eq!(second.before().as_ref(), Some(&before));
        first.touch();
        assert!(second.before().unwrap().last_seen >= before.last_seen);
        second.begin("second");
        second.end();
        assert_eq!(first.before(), None);
    }
}
