//! Writing what came back into the caller's workspace. A stranger chose every name: nothing is opened but beneath the workspace's own descriptor, no link is
//! followed, and what is replaced is replaced whole.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use cofferdam_store::beneath::{self, split};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

/// A directory of the caller's that is written to.
#[derive(Debug)]
pub(super) struct Beneath {
    root: OwnedFd,
    /// Files belong to whoever owns the directory, whoever we are.
    owner: (Uid, Gid),
}

/// A file that has no place yet.
#[derive(Debug)]
pub(super) struct Unplaced {
    parent: OwnedFd,
    temporary: Vec<u8>,
    pub(super) file: File,
}

impl Beneath {
    pub(super) fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&root)?;
        Ok(Self {
            root,
            owner: (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid)),
        })
    }

    /// A new file beside the place that it is for.
    pub(super) fn begin(&self, path: &[u8], number: usize) -> Result<Unplaced, Errno> {
        let (parent, _) = self.parent(path)?;
        let temporary = format!(".cofferdam-{}-{number}", std::process::id()).into_bytes();
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(
            &parent,
            temporary.as_slice(),
            flags,
            Mode::RUSR | Mode::WUSR,
        )?;
        Ok(Unplaced {
            parent,
            temporary,
            file: File::from(file),
        })
    }

    /// Puts the file where it belongs, in one step.
    pub(super) fn place(&self, new: Unplaced, path: &[u8], mode: u32) -> Result<(), Errno> {
        let (_, name) = split(path);
        rustix::fs::fchmod(&new.file, Mode::from_raw_mode(mode & 0o777))?;
        self.hand_over(&new.file)?;
        let put = || rustix::fs::renameat(&new.parent, new.temporary.as_slice(), &new.parent, name);
        let placed = match put() {
            // The program made a file of a directory.
            Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
                clear(&new.parent, name)?;
                put()
            }
            other => other,
        };
        if placed.is_err() {
            new.discard();
        }
        placed
    }

    pub(super) fn make_dir(&self, path: &[u8], mode: u32) -> Result<(), Errno> {
        let (parent, name) = self.parent(path)?;
        let mode = Mode::from_raw_mode(mode & 0o777 | 0o700);
        match rustix::fs::mkdirat(&parent, name, mode) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
                if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                    return Ok(());
                }
                rustix::fs::unlinkat(&parent, name, AtFlags::empty())?;
                rustix::fs::mkdirat(&parent, name, mode)?;
            }
            Err(errno) => return Err(errno),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&parent, name, flags, Mode::empty())?;
        self.hand_over(&made)
    }

    pub(super) fn make_link(&self, path: &[u8], target: &[u8]) -> Result<(), Errno> {
        let (parent, name) = self.parent(path)?;
        match rustix::fs::symlinkat(target, &parent, name) {
            Err(Errno::EXIST) => {
                clear(&parent, name)?;
                rustix::fs::symlinkat(target, &parent, name)?;
            }
            other => other?,
        }
        let (uid, gid) = self.owner;
        match rustix::fs::chownat(
            &parent,
            name,
            Some(uid),
            Some(gid),
            AtFlags::SYMLINK_NOFOLLOW,
        ) {
            // Not root: it is ours.
            Err(Errno::PERM) => Ok(()),
            other => other,
        }
    }

    /// Opens a file that is there, to read it.
    pub(super) fn read(&self, path: &[u8]) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        beneath::open(&self.root, path, flags).map(File::from)
    }

    /// Removes what the program removed: a file, a link, or a directory that is empty.
    pub(super) fn remove(&self, path: &[u8]) -> Result<(), Errno> {
        let Ok((parent, name)) = self.parent(path) else {
            return Ok(());
        };
        match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {
                match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
                    // Somebody else has put something there meanwhile.
                    Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
                    other => other,
                }
            }
            Err(Errno::NOENT) => Ok(()),
            other => other,
        }
    }

    fn parent<'a>(&self, path: &'a [u8]) -> Result<(OwnedFd, &'a [u8]), Errno> {
        let (dir, name) = split(path);
        if name.is_empty() || matches!(name, b"." | b"..") {
            return Err(Errno::INVAL);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok((beneath::open(&self.root, dir, flags)?, name))
    }

    fn hand_over(&self, made: impl AsFd) -> Result<(), Errno> {
        let (uid, gid) = self.owner;
        match rustix::fs::fchown(made, Some(uid), Some(gid)) {
            Err(Errno::PERM) => Ok(()),
            other => other,
        }
    }
}

impl Unplaced {
    pub(super) fn discard(&self) {
        let name = self.temporary.as_slice();
        let _ = rustix::fs::unlinkat(&self.parent, name, AtFlags::empty());
    }
}

/// Makes room for what has this name now.
fn clear(parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let removed = beneath::remove(parent, name);
    removed.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// For messages.
pub(super) fn shown(path: &[u8]) -> String {
    OsStr::from_bytes(path).to_string_lossy().into_owned()
}
