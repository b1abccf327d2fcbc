//! Opening what lies below a directory that we hold, one name at a time. No link is followed and no other mount is entered, whoever changes the tree meanwhile.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

pub(super) use crate::beneath::split;

const STAY: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV);

pub(super) fn open_dir(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(parent, name, flags, Mode::empty(), STAY)
}

/// For reading. Whether it is a regular file is for the caller to see on the descriptor; until then, a pipe does not wait for its other end.
pub(super) fn open_file(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat2(parent, name, flags, Mode::empty(), STAY)
}

/// Goes down `path` step by step. The empty path is `top` itself.
pub(super) fn descend(top: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let mut at = open_dir(top, b".")?;
    if path.is_empty() {
        return Ok(at);
    }
    for name in path.split(|byte| *byte == b'/') {
        at = open_dir(at.as_fd(), name)?;
    }
    Ok(at)
}
