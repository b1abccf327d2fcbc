//! Writing what came back into the caller's workspace. A stranger chose every name: nothing is opened but beneath the workspace's own descriptor, no link is
//! followed, and what is replaced is replaced whole.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
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
    /// How many names were tried that nothing has for long.
    tried: Cell<u64>,
}

/// A file that has no name yet, and is gone with its descriptor.
#[derive(Debug)]
pub(super) struct Unplaced {
    pub(super) file: File,
}

/// More than anybody has put in the way by chance.
const MOST_TRIES: u64 = 1_000;

impl Beneath {
    pub(super) fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&root)?;
        Ok(Self {
            root,
            owner: (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid)),
            tried: Cell::new(0),
        })
    }

    /// A new file. It has no name until it is known to be needed: nothing is to be seen of it in a directory where nothing changes.
    pub(super) fn begin(&self) -> Result<Unplaced, Errno> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let made = rustix::fs::openat(&self.root, ".", flags, mode);
        // A file system without such files, or a workspace that is closed to us.
        let made = made.or_else(|_| rustix::fs::open(std::env::temp_dir(), flags, mode));
        let made = made.or_else(|_| self.without_name());
        made.map(|file| Unplaced {
            file: File::from(file),
        })
    }

    /// A file whose name is taken from it at once, where no other kind can be had.
    pub(super) fn without_name(&self) -> Result<OwnedFd, Errno> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..MOST_TRIES {
            let name = self.next_name();
            match rustix::fs::openat(&self.root, &*name, flags, Mode::RUSR | Mode::WUSR) {
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
                Ok(file) => {
                    rustix::fs::unlinkat(&self.root, &*name, AtFlags::empty())?;
                    return Ok(file);
                }
            }
        }
        Err(Errno::EXIST)
    }

    fn next_name(&self) -> Vec<u8> {
        let number = self.tried.get();
        self.tried.set(number + 1);
        format!(".cofferdam-{}-{number}", std::process::id()).into_bytes()
    }

    /// Puts the file where it belongs, in one step.
    pub(super) fn place(&self, new: Unplaced, path: &[u8], mode: u32) -> Result<(), Errno> {
        let (parent, name) = self.parent(path)?;
        self.finish(&new.file, mode)?;
        if link(&new.file, &parent, name).is_ok() {
            return Ok(());
        }
        // Something has the name. Only a file with a name can take its place.
        let temporary = self.name(new, &parent, mode)?;
        let put = || rustix::fs::renameat(&parent, temporary.as_slice(), &parent, name);
        let placed = match put() {
            // The program made a file of a directory.
            Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
                clear(&parent, name).and_then(|()| put())
            }
            other => other,
        };
        if placed.is_err() {
            let _ = rustix::fs::unlinkat(&parent, temporary.as_slice(), AtFlags::empty());
        }
        placed
    }

    /// Gives the file a name that nothing has.
    fn name(&self, mut new: Unplaced, parent: &OwnedFd, mode: u32) -> Result<Vec<u8>, Errno> {
        for _ in 0..MOST_TRIES {
            let name = self.next_name();
            match link(&new.file, parent, &name) {
                Ok(()) => return Ok(name),
                Err(Errno::EXIST) => continue,
                // It lies in another file system.
                Err(_) => {}
            }
            match self.copy(&mut new.file, parent, &name, mode) {
                Ok(()) => return Ok(name),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::EXIST)
    }

    fn copy(&self, from: &mut File, parent: &OwnedFd, name: &[u8], mode: u32) -> Result<(), Errno> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(file);
        let copied = from
            .rewind()
            .and_then(|()| io::copy(from, &mut file))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            .and_then(|_| self.finish(&file, mode));
        if copied.is_err() {
            let _ = rustix::fs::unlinkat(parent, name, AtFlags::empty());
        }
        copied
    }

    fn finish(&self, file: &File, mode: u32) -> Result<(), Errno> {
        rustix::fs::fchmod(file, Mode::from_raw_mode(mode & 0o777))?;
        self.hand_over(file)
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

/// By the only name that a file without one has. A name that is taken stays with whoever has it.
fn link(file: &File, parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(rustix::fs::CWD, own, parent, name, AtFlags::SYMLINK_FOLLOW)
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
