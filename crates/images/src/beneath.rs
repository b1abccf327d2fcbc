//! A root that is being unpacked. A stranger chose every name in it: nothing is opened but below its own descriptor, as a program would find it whose root it is. Everything
//! belongs to whoever unpacks it; no bit and no attribute in it gives anybody rights.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use cofferdam_store::beneath::{self, open_as_root};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::bounds::Left;
use crate::error::ImageError;

/// The root.
#[derive(Debug)]
pub(crate) struct Root<'a> {
    dir: OwnedFd,
    left: &'a Left,
}

/// Why something is not there.
#[derive(Debug)]
pub(crate) enum Unmade {
    Errno(Errno),
    /// There was more of it than is taken.
    Bound(ImageError),
}

impl From<Errno> for Unmade {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<ImageError> for Unmade {
    fn from(error: ImageError) -> Self {
        Self::Bound(error)
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

impl<'r> Root<'r> {
    /// Of a directory that nobody else has touched. Directories that no entry names are counted here, as they are made.
    pub(crate) fn open(path: &Path, left: &'r Left) -> Result<Self, Errno> {
        let dir = rustix::fs::open(path, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Self { dir, left })
    }

    /// The directory that a path lies in, made if it is not there, with the path's last name.
    pub(crate) fn parent<'a>(&self, parts: &[&'a [u8]]) -> Result<(OwnedFd, &'a [u8]), Unmade> {
        let (name, way) = parts.split_last().ok_or(Errno::INVAL)?;
        match open_as_root(&self.dir, &way.join(&b'/'), DIRECTORY) {
            Err(Errno::NOENT) => Ok((self.make_way(way)?, name)),
            other => Ok((other?, name)),
        }
    }

    fn make_way(&self, way: &[&[u8]]) -> Result<OwnedFd, Unmade> {
        let mut at = open_as_root(&self.dir, b"", DIRECTORY)?;
        for length in 1..=way.len() {
            let so_far = way.get(..length).unwrap_or_default();
            let name = so_far.last().copied().unwrap_or_default();
            at = match open_as_root(&self.dir, &so_far.join(&b'/'), DIRECTORY) {
                Err(Errno::NOENT) => {
                    self.left.take_entry()?;
                    // A link to nothing has the name already, and is not followed.
                    rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755))?;
                    rustix::fs::openat(&at, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?
                }
                other => other?,
            };
        }
        Ok(at)
    }

    pub(crate) fn make_dir(&self, parts: &[&[u8]], mode: u32) -> Result<(), Unmade> {
        let (parent, name) = self.parent(parts)?;
        match kind(&parent, name)? {
            Some(FileType::Directory) => {}
            Some(_) => {
                rustix::fs::unlinkat(&parent, name, AtFlags::empty())?;
                rustix::fs::mkdirat(&parent, name, Mode::RWXU)?;
            }
            None => rustix::fs::mkdirat(&parent, name, Mode::RWXU)?,
        }
        let made = rustix::fs::openat(&parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        // Later layers must get in, whoever we are.
        rustix::fs::fchmod(&made, Mode::from_raw_mode(mode & 0o1777 | 0o700))?;
        Ok(())
    }

    pub(crate) fn make_link(&self, parts: &[&[u8]], target: &[u8]) -> Result<(), Unmade> {
        let (parent, name) = self.parent(parts)?;
        clear(&parent, name)?;
        rustix::fs::symlinkat(target, &parent, name)?;
        Ok(())
    }

    /// A second name for a file that is there.
    pub(crate) fn make_name(&self, parts: &[&[u8]], of: &[&[u8]]) -> Result<(), Unmade> {
        let (from, old) = of
            .split_last()
            .ok_or(Errno::INVAL)
            .and_then(|(name, way)| {
                let way = open_as_root(&self.dir, &way.join(&b'/'), DIRECTORY)?;
                Ok((way, *name))
            })?;
        if kind(&from, old)? == Some(FileType::Directory) {
            return Err(Errno::ISDIR.into());
        }
        let (parent, name) = self.parent(parts)?;
        let is_itself = match (stat(&from, old)?, stat(&parent, name)?) {
            (Some(a), Some(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
            _ => false,
        };
        if is_itself {
            return Ok(());
        }
        clear(&parent, name)?;
        rustix::fs::linkat(&from, old, &parent, name, AtFlags::empty())?;
        Ok(())
    }

    /// An empty file in the place of whatever was there.
    pub(crate) fn make_file(&self, parts: &[&[u8]]) -> Result<File, Unmade> {
        let (parent, name) = self.parent(parts)?;
        clear(&parent, name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&parent, name, flags | OFlags::CLOEXEC, mode)?;
        Ok(file.into())
    }

    /// Whatever has this name goes.
    pub(crate) fn remove(&self, parts: &[&[u8]]) -> Result<(), Errno> {
        let Some((name, way)) = parts.split_last() else {
            return Ok(());
        };
        match open_as_root(&self.dir, &way.join(&b'/'), DIRECTORY) {
            Ok(parent) => clear(&parent, name),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// The names in a directory; none where there is no such directory.
    pub(crate) fn names(&self, parts: &[&[u8]]) -> Result<Vec<(Vec<u8>, FileType)>, Errno> {
        let dir = match open_as_root(&self.dir, &parts.join(&b'/'), DIRECTORY) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Vec::new()),
            Err(errno) => return Err(errno),
        };
        let mut found = Vec::new();
        for name in beneath::names(&dir).map_err(errno_of)? {
            let name = name.into_bytes();
            if let Some(kind) = kind(&dir, &name)? {
                found.push((name, kind));
            }
        }
        Ok(found)
    }
}

/// How a file is left: without bits that give rights, and with the time that it had, which compiled Python is compared with.
pub(crate) fn finish(file: &File, mode: u32, time: u64) -> Result<(), Errno> {
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode & 0o777))?;
    let time = Timespec {
        tv_sec: i64::try_from(time).unwrap_or(0),
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    match rustix::fs::futimens(file, &times) {
        // A time that the file system does not know.
        Err(Errno::INVAL | Errno::OVERFLOW) => Ok(()),
        other => other,
    }
}

fn clear(parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    beneath::remove(parent, name).map_err(errno_of)
}

fn stat(parent: &OwnedFd, name: &[u8]) -> Result<Option<rustix::fs::Stat>, Errno> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn kind(parent: &OwnedFd, name: &[u8]) -> Result<Option<FileType>, Errno> {
    let found = stat(parent, name)?;
    Ok(found.map(|found| FileType::from_raw_mode(found.st_mode)))
}

fn errno_of(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
