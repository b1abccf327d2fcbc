//! A walk through a workspace: every entry below a directory that we hold, without following a link or leaving the mount, and with an end.
//!
//! A directory is listed as a whole before the next one is entered, so that one buffer does for all and a bounded number of descriptors is open.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, RawDir, Stat};
use rustix::io::Errno;

use super::beneath;
use super::choose::{self, Choice};

/// What a walk looks at, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) entries: usize,
    /// Of directories below the top.
    pub(super) depth: usize,
    /// Of the paths of all entries together: each is kept until the walk has ended, and the program chose how long they are.
    pub(super) path_bytes: usize,
}

pub(super) const BOUNDS: Bounds = Bounds {
    entries: 200_000,
    depth: 64,
    path_bytes: 32 << 20,
};

/// What identifies a state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) bytes: u64,
    pub(super) modified: Time,
    pub(super) changed: Time,
}

/// Seconds and nanoseconds.
pub(super) type Time = (i64, u32);

/// One entry, by the path below the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    File(Meta, Choice),
    /// A link, a pipe, a socket, a device.
    Other(FileType),
    /// Not entered.
    SensitiveDirectory,
    /// Not entered. Its entries are not known.
    Closed(Closed),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    Failed(Errno),
    OtherMount,
    TooDeep,
}

/// Whether everything was seen that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    /// There were more entries, or longer names, than are looked at.
    Cut,
}

pub(super) fn walk(
    top: BorrowedFd<'_>,
    bounds: Bounds,
    visit: &mut dyn FnMut(&[u8], Seen),
) -> Result<Extent, Errno> {
    let top = beneath::open_dir(top, b".")?;
    let mut walk = Walk {
        bounds,
        left: bounds.entries,
        path_bytes_left: bounds.path_bytes,
        extent: Extent::Whole,
        path: Vec::new(),
        open: Vec::new(),
        visit,
    };
    let mut buffer = Vec::with_capacity(BUFFER);
    walk.list(top, buffer.spare_capacity_mut())?;
    while walk.extent == Extent::Whole
        && let Some(level) = walk.open.last_mut()
    {
        walk.path.truncate(level.path);
        let Some(name) = level.below.pop() else {
            walk.open.pop();
            continue;
        };
        let opened = beneath::open_dir(level.dir.as_fd(), &name);
        walk.enter(&name, opened, buffer.spare_capacity_mut());
    }
    Ok(walk.extent)
}

/// For listing directories. Fewer calls for large ones.
const BUFFER: usize = 64 << 10;

struct Walk<'a> {
    bounds: Bounds,
    left: usize,
    path_bytes_left: usize,
    extent: Extent,
    /// Of the directory that is being listed, with `/` at its end, except for the top.
    path: Vec<u8>,
    open: Vec<Level>,
    visit: &'a mut dyn FnMut(&[u8], Seen),
}

/// A directory that has been listed and whose directories are still to be entered.
struct Level {
    dir: OwnedFd,
    path: usize,
    below: Vec<Vec<u8>>,
}

impl Walk<'_> {
    fn enter(
        &mut self,
        name: &[u8],
        opened: Result<OwnedFd, Errno>,
        buffer: &mut [MaybeUninit<u8>],
    ) {
        self.path.extend_from_slice(name);
        let closed = match opened {
            // Removed or replaced since it was listed: there is no such directory.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return,
            Err(Errno::XDEV) => Closed::OtherMount,
            Err(error) => Closed::Failed(error),
            Ok(_) if self.open.len() > self.bounds.depth => Closed::TooDeep,
            Ok(dir) => {
                let end = self.path.len();
                self.path.push(b'/');
                match self.list(dir, buffer) {
                    Ok(()) => return,
                    Err(error) => {
                        self.path.truncate(end);
                        Closed::Failed(error)
                    }
                }
            }
        };
        (self.visit)(&self.path, Seen::Closed(closed));
    }

    fn list(&mut self, dir: OwnedFd, buffer: &mut [MaybeUninit<u8>]) -> Result<(), Errno> {
        let mut level = Level {
            path: self.path.len(),
            below: Vec::new(),
            dir,
        };
        let mut entries = RawDir::new(level.dir.as_fd(), buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let left = self.left.checked_sub(1);
            let path_bytes_left = self.path_bytes_left.checked_sub(level.path + name.len());
            let (Some(left), Some(path_bytes_left)) = (left, path_bytes_left) else {
                self.extent = Extent::Cut;
                return Ok(());
            };
            self.left = left;
            self.path_bytes_left = path_bytes_left;
            self.path.truncate(level.path);
            if self.look(level.dir.as_fd(), name, entry.file_type()) == Below::Enter {
                level.below.push(name.to_vec());
            }
        }
        self.path.truncate(level.path);
        self.open.push(level);
        Ok(())
    }

    fn look(&mut self, dir: BorrowedFd<'_>, name: &[u8], kind: FileType) -> Below {
        let ask = || rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        let kind = match kind {
            // Some file systems do not tell in their listings.
            FileType::Unknown => match ask() {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(_) => return Below::Nothing,
            },
            known => known,
        };
        let seen = if kind == FileType::Directory {
            match choose::directory(name) {
                Choice::Look => return Below::Enter,
                Choice::PassOver => return Below::Nothing,
                Choice::Sensitive => Seen::SensitiveDirectory,
            }
        } else {
            let choice = choose::file(name);
            if choice == Choice::PassOver {
                return Below::Nothing;
            }
            match kind {
                FileType::RegularFile | FileType::CharacterDevice => {
                    match ask().map(|stat| identify(&stat, choice)) {
                        Ok(Some(seen)) => seen,
                        // Gone again, or nothing that anybody left.
                        Ok(None) | Err(_) => return Below::Nothing,
                    }
                }
                other => Seen::Other(other),
            }
        };
        self.path.extend_from_slice(name);
        (self.visit)(&self.path, seen);
        Below::Nothing
    }
}

fn identify(stat: &Stat, choice: Choice) -> Option<Seen> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Some(Seen::File(meta(stat), choice)),
        // The mark that an overlay leaves for what was removed.
        FileType::CharacterDevice if stat.st_rdev == 0 => None,
        other => Some(Seen::Other(other)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Below {
    Enter,
    Nothing,
}

pub(super) fn meta(stat: &Stat) -> Meta {
    let nanoseconds = |nanoseconds: u64| u32::try_from(nanoseconds).unwrap_or(u32::MAX);
    Meta {
        device: stat.st_dev,
        inode: stat.st_ino,
        bytes: stat.st_size.unsigned_abs(),
        modified: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
        changed: (stat.st_ctime, nanoseconds(stat.st_ctime_nsec)),
    }
}
