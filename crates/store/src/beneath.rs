//! Names that a stranger chose, below a directory that is held open: no way out of it by `..`, by a link or by a mount of /proc, and removal as deep as anybody can nest.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

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
            open_up(&dir, &*inner);
            lift(&dir, &inner, top, number)?;
            is_left = true;
        }
        rustix::fs::unlinkat(top, &*name, AtFlags::REMOVEDIR)?;
    }
    Ok(is_left)
}

/// Moves a directory up, under the next name that is free: whoever made the tree knows these names too. An empty directory of that name is replaced, and was to go as well.
fn lift(dir: &OwnedFd, name: &CString, top: &OwnedFd, number: &mut u64) -> io::Result<()> {
    loop {
        *number += 1;
        let lifted = CString::new(format!(".cofferdam-removing-{number}"))?;
        match rustix::fs::renameat(dir, &**name, top, &*lifted) {
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
            other => return Ok(other?),
        }
    }
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

/// A directory that its program closed. The kernel changes no mode without following links before Linux 6.6: so it is by the descriptor of what is a directory, and no link.
/// Where this fails, the next step says why.
pub(crate) fn open_up(dir: impl AsFd, name: impl Arg) {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(found) = rustix::fs::openat(dir, name, flags, Mode::empty()) {
        let own = format!("/proc/self/fd/{}", found.as_raw_fd());
        let _ = rustix::fs::chmod(own, Mode::RWXU);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_tree_cannot_stay_by_taking_the_names_that_removal_uses() {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().join("tree");
        let taken = |number: u32| tree.join(format!(".cofferdam-removing-{number}"));
        for number in [1, 2, 5] {
            fs::create_dir_all(taken(number).join("x/y/z")).unwrap();
            fs::write(taken(number).join("file"), "x").unwrap();
        }
        fs::write(taken(3), "x").unwrap();
        std::os::unix::fs::symlink(place.path(), taken(4)).unwrap();
        fs::create_dir(taken(6)).unwrap();
        fs::create_dir_all(taken(1).join(".cofferdam-removing-1/.cofferdam-removing-2/x")).unwrap();
        remove(rustix::fs::CWD, tree.as_path()).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
