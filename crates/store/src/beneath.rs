//! Names that a stranger chose, below a directory that is held open: no way out of it by `..`, by a link or by a mount of /proc, and removal as deep as anybody can nest.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Opens what lies below, following no link. An empty path is the directory itself.
pub fn open(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, or_dot(path), flags, Mode::empty(), resolve)
}

/// Opens what a program would find there whose root this directory is: links are followed, and lead nowhere else.
pub fn open_as_root(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, or_dot(path), flags, Mode::empty(), resolve)
}

/// The directory and the last name of a path.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => path
            .split_at_checked(at)
            .map_or((path, b""), |(dir, name)| {
                (dir, name.get(1..).unwrap_or_default())
            }),
        None => (b"", path),
    }
}

fn or_dot(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}

/// Removes whatever has this name, with everything in it: as deep as a program likes, with directories that it closed to us. Neither the stack nor the number of
/// descriptors depends on the depth: what is deep is moved up first. No link is followed.
pub fn remove(parent: impl AsFd, name: impl Arg + Copy) -> io::Result<()> {
    match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    open_up(&parent, name);
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(&parent, name, flags, Mode::empty())?;
    let mut number = 0_u64;
    // Each round empties the top, and moves what is in its directories up into it.
    while empty_once(&dir, &mut number)? {}
    Ok(rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
}

/// Removes every file and empty directory of the top, and lifts the contents of its other directories. Whether anything is left.
fn empty_once(top: &OwnedFd, number: &mut u64) -> io::Result<bool> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut is_left = false;
    for name in names(top)? {
        match rustix::fs::unlinkat(top, &*name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
        open_up(top, &*name);
        let dir = rustix::fs::openat(top, &*name, flags, Mode::empty())?;
        for inner in names(&dir)? {
            match rustix::fs::unlinkat(&dir, &*inner, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(Errno::ISDIR | Errno::PERM) => {}
                Err(errno) => return Err(errno.into()),
            }
            *number += 1;
            open_up(&dir, &*inner);
            let lifted = CString::new(format!(".cofferdam-removing-{number}"))?;
            rustix::fs::renameat(&dir, &*inner, top, &*lifted)?;
            is_left = true;
        }
        rustix::fs::unlinkat(top, &*name, AtFlags::REMOVEDIR)?;
    }
    Ok(is_left)
}

/// What is in a directory.
pub fn names(dir: impl AsFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

/// A directory that its program closed. Not through a link: a link has no mode of its own to change.
fn open_up(dir: impl AsFd, name: impl Arg) {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let _ = rustix::fs::chmodat(dir, name, Mode::RWXU, flags);
}
