//! The state of a workspace before a run, to be compared with the state after it.
//!
//! A file is unchanged when it is the same inode with the same size, modification time and change time. A program can set the first three back; the change time is the kernel's.
//! So a file whose permissions or name changed counts as changed too: from outside that cannot be told from contents that changed while the other times were put back, and to
//! list one file too many is better than to miss one.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use rustix::fs::FileType;
use rustix::time::{ClockId, clock_gettime};

use super::walk::{self, BOUNDS, Bounds, Closed, Extent, Meta, Seen, Time};
use crate::error::StoreError;
use crate::model::ArtifactKind;

/// The entries of a workspace at one moment.
#[derive(Debug)]
pub struct Snapshot {
    known: HashMap<Box<[u8]>, Known>,
    extent: Extent,
    /// Directories that could not be entered, by the path with `/` at its end.
    closed: Vec<Vec<u8>>,
    /// No file changed after the snapshot has an earlier change time.
    begun: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    File(Meta),
    Other(FileType),
}

impl Snapshot {
    /// Walks the tree below a directory. Hidden names, `node_modules` and `__pycache__` are passed over, other mounts are not entered.
    pub fn of(dir: BorrowedFd<'_>) -> Result<Self, StoreError> {
        Self::within(dir, BOUNDS)
    }

    pub(super) fn within(dir: BorrowedFd<'_>, bounds: Bounds) -> Result<Self, StoreError> {
        let begun = now();
        let mut known = HashMap::new();
        let mut closed = Vec::new();
        let extent = walk::walk(dir, bounds, &mut |path, seen| {
            let entry = match seen {
                Seen::File(meta, _) => Known::File(meta),
                Seen::Other(kind) => Known::Other(kind),
                Seen::SensitiveDirectory => Known::Other(FileType::Directory),
                Seen::Closed(why) => {
                    if why != Closed::OtherMount {
                        closed.push([path, b"/"].concat());
                    }
                    Known::Other(FileType::Directory)
                }
            };
            known.insert(path.into(), entry);
        })
        .map_err(|error| StoreError::io("list", "the workspace")(error.into()))?;
        Ok(Self {
            known,
            extent,
            closed,
            begun,
        })
    }

    /// Entries that are not directories.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether every entry of the workspace is in it.
    pub fn is_complete(&self) -> bool {
        self.extent == Extent::Whole && self.closed.is_empty()
    }

    pub(super) fn is_cut(&self) -> bool {
        self.extent == Extent::Cut
    }

    /// What happened to a file. `None`: nothing.
    pub(super) fn compare(&self, path: &[u8], now: &Meta) -> Option<ArtifactKind> {
        match self.known.get(path) {
            Some(Known::File(before)) if before == now => None,
            Some(_) => Some(ArtifactKind::Changed),
            // It may have been there unseen. Then it is the run's only if it changed since.
            None if now.changed < self.begun && !self.would_have_seen(path) => None,
            None => Some(ArtifactKind::Added),
        }
    }

    /// Whether there was something else than a file, and of the same kind.
    pub(super) fn had(&self, path: &[u8], kind: FileType) -> bool {
        self.known.get(path) == Some(&Known::Other(kind))
    }

    fn would_have_seen(&self, path: &[u8]) -> bool {
        self.extent == Extent::Whole && !self.closed.iter().any(|dir| path.starts_with(dir))
    }
}

/// The clock that file systems take their times from.
fn now() -> Time {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0))
}
