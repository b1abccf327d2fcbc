//! Files of journals that have been adopted, kept to be used again. Making a file costs several times what renaming one does, and on ext4 the more the more files were removed lately:
//! it looks for a number that was not in use a moment ago.
//!
//! A free file is empty and has one of 256 names. Whoever wants one takes a name at random; if nothing has it, a new file is made.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::data_dir::DataDir;
use crate::id::RunId;

/// The name that a run tries, and that its journal may have when it is free again.
fn place(dir: &DataDir, run: RunId) -> PathBuf {
    let number = run.as_bytes().last().copied().unwrap_or(0);
    dir.spool().join(format!("{number:02x}.free"))
}

/// Gives a free file to a run, locked, under the name of its journal. `None` where there is none to be had.
pub(super) fn take(dir: &DataDir, run: RunId, path: &Path) -> Option<OwnedFd> {
    let place = place(dir, run);
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(&place, flags, Mode::empty()).ok()?;
    // From before it has the name of a journal: nobody may take it for one that was left.
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    rustix::fs::rename(&place, path).ok()?;
    Some(file)
}

/// Frees the journal of a run that is in the database, or removes it where its place is taken.
pub(crate) fn retire(dir: &DataDir, run: RunId, path: &Path) {
    let freed = empty(path).and_then(|()| {
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        let (here, there) = (rustix::fs::CWD, place(dir, run));
        rustix::fs::renameat_with(here, path, here, there, flags)
    });
    if freed.is_err() {
        let _ = std::fs::remove_file(path);
    }
}

fn empty(path: &Path) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    rustix::fs::ftruncate(&file, 0)
}
