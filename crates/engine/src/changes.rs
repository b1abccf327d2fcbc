//! What a copy-on-write workspace would have changed, read from its upper layer. The program wrote every name in there, so nothing is followed and
//! everything is opened beneath a directory that we hold.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cofferdam_contract::record::{Change, ChangeKind};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// A listing stops here; a run that changes more is not read by people.
const MAX_CHANGES: usize = 100_000;

/// Compares the upper layer with the workspace that it covers.
pub(crate) fn list(upper: &OwnedFd, workspace: &Path) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut open: Vec<(OwnedFd, PathBuf)> = Vec::new();
    if let Ok(top) = rustix::io::fcntl_dupfd_cloexec(upper, 3) {
        open.push((top, PathBuf::new()));
    }
    while let Some((dir, below)) = open.pop() {
        let Ok(entries) = Dir::read_from(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name == c"." || name == c".." || changes.len() >= MAX_CHANGES {
                continue;
            }
            let path = below.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
            let Ok(stat) = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let kind = FileType::from_raw_mode(stat.st_mode);
            let was_there = std::fs::symlink_metadata(workspace.join(&path)).is_ok();
            let change = match (kind, was_there) {
                (FileType::CharacterDevice, _) if stat.st_rdev == 0 => Some(ChangeKind::Deleted),
                // A directory that was there is in the upper layer because of what is in it.
                (FileType::Directory, true) => None,
                (_, true) => Some(ChangeKind::Modified),
                (_, false) => Some(ChangeKind::Added),
            };
            if let Some(kind) = change {
                changes.push(Change {
                    path: path.to_string_lossy().into_owned(),
                    kind,
                });
            }
            if kind == FileType::Directory
                && let Ok(next) = open_dir(&dir, name)
            {
                open.push((next, path));
            }
        }
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    changes
}

fn open_dir(parent: &OwnedFd, name: &std::ffi::CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}
