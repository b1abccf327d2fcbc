//! Files of journals that have been adopted, kept to be used again. Making a file costs several times what renaming one does, and on ext4 the more the more files were removed lately:
//! it looks for a number that was not in use a moment ago.
//!
//! A free file is empty and has one of [`PLACES`] names. Whoever wants one tries a few of them from a random one on, and so does whoever has one to leave: whoever finds none left may
//! be the one who adopts (see [`crate::adopt::is_due`]), so nearly all are in use or free and hardly ever is one made or removed.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::data_dir::DataDir;
use crate::id::RunId;

const PLACES: u16 = 512;
/// How many of them are tried. One more costs a microsecond, a new file a hundred.
const TRIES: u16 = 8;

/// The names that a run tries, and that its journal may have when it is free again.
fn places(dir: &DataDir, run: RunId) -> impl Iterator<Item = PathBuf> {
    let spool = dir.spool();
    let random = run.as_bytes().last_chunk().copied().unwrap_or_default();
    let first = u16::from_le_bytes(random);
    (0..TRIES).map(move |step| {
        let number = first.wrapping_add(step) % PLACES;
        spool.join(format!("{number:03x}.free"))
    })
}

/// Gives a free file to a run, locked, under the name of its journal. `None` where there is none to be had; an error where it has a journal already.
pub(super) fn take(dir: &DataDir, run: RunId, path: &Path) -> Result<Option<OwnedFd>, Errno> {
    for place in places(dir, run) {
        match take_from(&place, path) {
            Ok(file) => return Ok(Some(file)),
            Err(Errno::EXIST) => return Err(Errno::EXIST),
            Err(_) => {}
        }
    }
    Ok(None)
}

fn take_from(place: &Path, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(place, flags, Mode::empty())?;
    // From before it has the name of a journal: nobody may take it for one that was left.
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let here = rustix::fs::CWD;
    rustix::fs::renameat_with(here, place, here, path, RenameFlags::NOREPLACE)?;
    // Somebody may have used this file and another may have been left here since it was opened.
    let (ours, named) = (rustix::fs::fstat(&file), rustix::fs::lstat(path));
    let is_the_same =
        matches!((ours, named), (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino));
    if !is_the_same {
        let _ = rustix::fs::unlink(path);
        return Err(Errno::STALE);
    }
    Ok(file)
}

/// Frees the journal of a run that is in the database, or removes it where there are enough.
pub(crate) fn retire(dir: &DataDir, run: RunId, path: &Path) {
    let leave_at = |place: PathBuf| {
        let here = rustix::fs::CWD;
        rustix::fs::renameat_with(here, path, here, place, RenameFlags::NOREPLACE)
    };
    let is_free = empty(path).is_ok() && places(dir, run).any(|place| leave_at(place).is_ok());
    if !is_free {
        let _ = std::fs::remove_file(path);
    }
}

/// Whether a run like this one would find no free file. Then many journals are waiting to be adopted, or the history is new.
pub(crate) fn is_scarce(dir: &DataDir, run: RunId) -> bool {
    let is_there = |place: PathBuf| rustix::fs::access(place, Access::EXISTS).is_ok();
    !places(dir, run).any(is_there)
}

/// Not what somebody reads right now: that is better removed, since whoever has it open keeps it.
fn empty(path: &Path) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    rustix::fs::ftruncate(&file, 0)
}
