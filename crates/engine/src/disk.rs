//! How much space a run holds: scratch as the file system counts it, and a writable directory of the caller's as the files that the run made or changed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_contract::units::Bytes;
use cofferdam_sys::proc;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

/// Bytes in use on the private scratch file system, and whether it has any room left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScratchUse {
    pub(crate) used: Bytes,
    pub(crate) is_full: bool,
}

pub(crate) fn scratch_use(scratch: BorrowedFd<'_>) -> Option<ScratchUse> {
    let stat = rustix::fs::fstatfs(scratch).ok()?;
    let block = u64::try_from(stat.f_bsize).ok()?;
    let used = stat.f_blocks.saturating_sub(stat.f_bfree) * block;
    Some(ScratchUse {
        used: Bytes::new(used),
        is_full: stat.f_bfree == 0 || stat.f_files > 0 && stat.f_ffree == 0,
    })
}

/// Watches a directory that the program may write. There is no kernel limit on a directory, so this looks again and again: cheaply at the free space of
/// the whole file system, and only when that has shrunk, or some time has passed, at the files themselves.
#[derive(Debug)]
pub(crate) struct Growth {
    dir: OwnedFd,
    device: u64,
    limit: u64,
    free_at_start: u64,
    since: i64,
    next_walk: Instant,
}

/// A walk may take this part of the time at most.
const WALK_SHARE: u32 = 20;
const WALK_PAUSE: Duration = Duration::from_millis(500);
/// Deeper directories are not entered: a run that makes them holds little else.
const MAX_DEPTH: u32 = 128;
/// File times come from a clock that ticks only every few milliseconds.
const CLOCK_SLACK_SECONDS: i64 = 1;

impl Growth {
    pub(crate) fn new(path: &Path, limit: Bytes) -> Option<Self> {
        let dir =
            rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let device = rustix::fs::fstat(&dir).ok()?.st_dev;
        let free_at_start = free_bytes(dir.as_fd())?;
        let since = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec
            - CLOCK_SLACK_SECONDS;
        Some(Self {
            dir,
            device,
            limit: limit.get(),
            free_at_start,
            since,
            next_walk: Instant::now() + WALK_PAUSE,
        })
    }

    /// Whether the files that the run made or changed hold more than the limit. `pids` are the run's processes, whose files may have lost their names.
    pub(crate) fn is_over(&mut self, pids: impl FnOnce() -> Vec<u32>) -> bool {
        let shrunk = self
            .free_at_start
            .saturating_sub(free_bytes(self.dir.as_fd()).unwrap_or(self.free_at_start));
        if shrunk <= self.limit && Instant::now() < self.next_walk {
            return false;
        }
        let start = Instant::now();
        let nameless = proc::nameless_bytes(&pids(), Some(self.device));
        let mut left = self.limit.checked_sub(nameless);
        if let Some(left) = &mut left {
            *left = left
                .checked_sub(self.changed_bytes(*left))
                .unwrap_or(u64::MAX);
        }
        let over = left.is_none_or(|left| left == u64::MAX);
        self.next_walk = Instant::now() + WALK_PAUSE.max(start.elapsed() * WALK_SHARE);
        over
    }

    /// Adds up the files that changed since the start; stops as soon as `enough` is passed.
    fn changed_bytes(&self, enough: u64) -> u64 {
        let mut total = 0;
        let Ok(top) = rustix::io::fcntl_dupfd_cloexec(&self.dir, 3) else {
            return 0;
        };
        let mut open = vec![(top, 0)];
        while let Some((dir, depth)) = open.pop() {
            let Ok(entries) = Dir::read_from(&dir) else {
                continue;
            };
            for entry in entries.flatten() {
                let name = entry.file_name();
                if name == c"." || name == c".." {
                    continue;
                }
                let Ok(stat) = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) else {
                    continue;
                };
                if stat.st_dev != self.device {
                    continue;
                }
                if stat.st_ctime >= self.since {
                    total += stat.st_blocks.unsigned_abs() * 512;
                }
                if total > enough {
                    return total;
                }
                if FileType::from_raw_mode(stat.st_mode) == FileType::Directory && depth < MAX_DEPTH
                {
                    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                    if let Ok(below) = rustix::fs::openat(&dir, name, flags, Mode::empty()) {
                        open.push((below, depth + 1));
                    }
                }
            }
        }
        total
    }
}

fn free_bytes(dir: BorrowedFd<'_>) -> Option<u64> {
    let stat = rustix::fs::fstatfs(dir).ok()?;
    Some(stat.f_bfree * u64::try_from(stat.f_bsize).ok()?)
}
