//! Writing what came back into the caller's workspace. A stranger chose every name: nothing is opened but beneath the workspace's own descriptor, no link is
//! followed, and what is replaced is replaced whole.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
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
                remove_tree(&new.parent, name)?;
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
                remove_tree(&parent, name)?;
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
        beneath(&self.root, path, flags).map(File::from)
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
        Ok((beneath(&self.root, dir, flags)?, name))
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

fn beneath(root: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() {
        b".".as_slice()
    } else {
        path
    };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => path
            .split_at_checked(at)
            .map_or((path, b""), |(dir, name)| {
                (dir, name.get(1..).unwrap_or_default())
            }),
        None => (b"", path),
    }
}

/// Whatever has this name, with everything in it, without following a link.
fn remove_tree(parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        Err(Errno::NOENT) => return Ok(()),
        other => return other,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        let below = entry.file_name().to_bytes();
        if !matches!(below, b"." | b"..") {
            remove_tree(&dir, below)?;
        }
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// For messages.
pub(super) fn shown(path: &[u8]) -> String {
    OsStr::from_bytes(path).to_string_lossy().into_owned()
}
