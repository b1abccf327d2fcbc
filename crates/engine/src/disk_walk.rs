//! A walk through a directory that somebody hostile may change meanwhile: adds up what has changed since the start of the run. It follows no link, leaves no
//! file system, holds a bounded number of descriptors, and can be interrupted, since the supervisor has a clock to watch.

use std::collections::HashSet;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// Seconds and nanoseconds, as a file's change time has them.
pub(crate) type Time = (i64, i64);

/// The start of the run, on the clocks that change times come from. Some are as coarse as the kernel's tick, so that what the caller did just before the start
/// and what the program did just after it carry the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Since {
    /// What the program changes has this time or a later one.
    pub(crate) maybe: Time,
    /// What the caller changed before the start has this time or an earlier one.
    pub(crate) surely: Time,
}

#[derive(Debug)]
pub(crate) struct Walk {
    since: Since,
    /// The directories being read, each within the one before it.
    open: Vec<Level>,
    /// Directories too far down for that, to be walked when `open` is done.
    deep: Vec<OwnedFd>,
    /// Inodes that have been counted: a file can have two names, or be moved from behind us to before us.
    counted: HashSet<(u64, u64)>,
    surely: u64,
    maybe: u64,
    has_unknown: bool,
}

#[derive(Debug)]
struct Level {
    dir: Dir,
    device: u64,
}

/// Bounds on descriptors; a shell gives a process 1024 of them, and often less.
const MAX_OPEN: usize = 64;
const MAX_DEEP: usize = 32;
/// Entries between two looks at the clock.
const ENTRIES_PER_LOOK: u32 = 64;

impl Walk {
    pub(crate) fn new(top: &OwnedFd, since: Since) -> Option<Self> {
        let mut walk = Self {
            since,
            open: Vec::new(),
            deep: Vec::new(),
            counted: HashSet::new(),
            surely: 0,
            maybe: 0,
            has_unknown: false,
        };
        let top = open_dir(top.as_fd(), c".").ok()?;
        walk.enter(top).ok()?;
        Some(walk)
    }

    /// Goes on until everything has been seen (true), more than `enough` has been found or `until` has come.
    pub(crate) fn advance(&mut self, until: Instant, enough: u64, shrunk: u64) -> bool {
        let mut entries = 0;
        loop {
            let Some(level) = self.open.last_mut() else {
                let Some(next) = self.deep.pop() else {
                    return true;
                };
                if self.enter(next).is_err() {
                    self.has_unknown = true;
                }
                continue;
            };
            match level.dir.read() {
                Some(Ok(entry)) => self.visit(entry.file_name()),
                Some(Err(_)) | None => {
                    self.open.pop();
                }
            }
            entries += 1;
            if self.held(shrunk) > enough
                || entries % ENTRIES_PER_LOOK == 0 && Instant::now() >= until
            {
                return false;
            }
        }
    }

    /// What the run holds by what has been seen so far. What may be the caller's as well takes no new space if it is, so it counts as far as the file system's
    /// free space has `shrunk`.
    pub(crate) fn held(&self, shrunk: u64) -> u64 {
        self.surely.saturating_add(self.maybe.min(shrunk))
    }

    /// Whether there are directories that the run changed and that we may not read, or more of them than can be held.
    pub(crate) fn has_unknown(&self) -> bool {
        self.has_unknown
    }

    fn visit(&mut self, name: &CStr) {
        let Some(level) = self.open.last() else {
            return;
        };
        let Ok(dir) = level.dir.fd() else {
            return;
        };
        if name == c"." || name == c".." {
            return;
        }
        let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else {
            return;
        };
        let changed = (stat.st_ctime, nanoseconds(&stat));
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let below = is_dir.then(|| open_dir(dir, name));
        // Something else mounted here belongs to somebody else. A subvolume has a device of its own too, and is no mount.
        let elsewhere = match &below {
            Some(opened) => matches!(opened, Err(Errno::XDEV)),
            None => stat.st_dev != level.device,
        };
        if elsewhere {
            return;
        }
        if changed >= self.since.maybe && self.counted.insert((stat.st_dev, stat.st_ino)) {
            let bytes = stat.st_blocks.unsigned_abs() * 512;
            if changed > self.since.surely {
                self.surely = self.surely.saturating_add(bytes);
            } else {
                self.maybe = self.maybe.saturating_add(bytes);
            }
        }
        match below {
            None | Some(Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {}
            Some(Ok(below)) if self.open.len() < MAX_OPEN => {
                if self.enter(below).is_err() {
                    self.has_unknown = true;
                }
            }
            Some(Ok(below)) if self.deep.len() < MAX_DEEP => self.deep.push(below),
            Some(Ok(_)) => self.has_unknown = true,
            // What the caller had locked before is none of the run's.
            Some(Err(Errno::ACCESS | Errno::PERM)) => {
                self.has_unknown |= changed >= self.since.maybe;
            }
            Some(Err(_)) => self.has_unknown = true,
        }
    }

    fn enter(&mut self, dir: OwnedFd) -> Result<(), Errno> {
        let device = rustix::fs::fstat(&dir)?.st_dev;
        let dir = Dir::new(dir)?;
        self.open.push(Level { dir, device });
        Ok(())
    }
}

fn open_dir(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(
        parent,
        name,
        OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
    )
}

fn nanoseconds(stat: &Stat) -> i64 {
    i64::try_from(stat.st_ctime_nsec).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    const EVER: Since = Since {
        maybe: (0, 0),
        surely: (0, 0),
    };

    /// Written out, so that it has blocks.
    fn put(path: &Path, bytes: usize) {
        let mut file = std::fs::File::create(path).unwrap();
        file.write_all(&vec![1; bytes]).unwrap();
        file.sync_data().unwrap();
    }

    fn walk(dir: &Path, since: Since, enough: u64) -> Walk {
        let top = rustix::fs::open(dir, OFlags::DIRECTORY, Mode::empty()).unwrap();
        let mut walk = Walk::new(&top, since).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        walk.advance(until, enough, u64::MAX);
        walk
    }

    #[test]
    fn a_file_counts_once_however_many_names_it_has() {
        let dir = tempfile::tempdir().unwrap();
        put(&dir.path().join("a"), 100_000);
        std::fs::hard_link(dir.path().join("a"), dir.path().join("b")).unwrap();
        let outside = tempfile::tempdir().unwrap();
        put(&outside.path().join("big"), 1 << 20);
        symlink(outside.path(), dir.path().join("link")).unwrap();
        let held = walk(dir.path(), EVER, u64::MAX).held(0);
        assert!((98_304..200_000).contains(&held), "{held}");
    }

    #[test]
    fn files_are_found_however_deep_they_lie_with_few_descriptors() {
        let dir = tempfile::tempdir().unwrap();
        let mut at = dir.path().to_owned();
        for _ in 0..300 {
            at.push("d");
        }
        std::fs::create_dir_all(&at).unwrap();
        put(&at.join("a"), 5 << 20);
        let walk = walk(dir.path(), EVER, u64::MAX);
        assert!(walk.held(0) >= 5 << 20, "{}", walk.held(0));
        assert!(!walk.has_unknown());
    }

    #[test]
    fn what_is_older_than_the_run_is_not_the_runs() {
        let dir = tempfile::tempdir().unwrap();
        put(&dir.path().join("a"), 100_000);
        let later = (i64::MAX, 0);
        let none = Since {
            maybe: later,
            surely: later,
        };
        assert_eq!(walk(dir.path(), none, u64::MAX).held(u64::MAX), 0);
        // In the same tick as the start: as far as the free space has shrunk.
        let tick = Since {
            maybe: (0, 0),
            surely: later,
        };
        let unsure = walk(dir.path(), tick, u64::MAX);
        assert_eq!((unsure.held(0), unsure.held(1000)), (0, 1000));
    }

    #[test]
    fn a_walk_ends_early_when_it_knows_enough() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..100 {
            put(&dir.path().join(n.to_string()), 8192);
        }
        let held = walk(dir.path(), EVER, 20_000).held(0);
        assert!(held > 20_000 && held < 50_000, "{held}");
    }
}
