//! How much space a run holds: scratch as the file system counts it, and a writable directory of the caller's as the files that the run made or changed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_contract::units::Bytes;
use cofferdam_sys::mappings::{self, Nameless};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::time::ClockId;

use crate::disk_walk::{Since, Walk};

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

/// When a limit is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// More than the limit is too much.
    Running,
    /// The program failed: was the limit what it met? Then it holds all that it was allowed, and not more.
    Failed,
}

/// Watches a directory that the program may write. There is no kernel limit on a directory, so this looks again and again: cheaply at the free space of
/// the whole file system, and only when that has shrunk, or some time has passed, at the files themselves.
///
/// Not seen: nameless files that wait in a socket, held by no process.
#[derive(Debug)]
pub(crate) struct Growth {
    dir: OwnedFd,
    device: u64,
    limit: u64,
    free_at_start: u64,
    since: Since,
    walk: Option<(Walk, Nameless)>,
    /// Time that the walk under way, or the last one, has taken.
    spent: Duration,
    next_walk: Instant,
}

/// A walk may take this part of the time at most, and this long without letting the supervisor look at anything else.
const WALK_SHARE: u32 = 20;
const WALK_PAUSE: Duration = Duration::from_millis(500);
const SLICE: Duration = Duration::from_millis(5);
/// The same when the free space says that the limit may be passed.
const URGENT_SHARE: u32 = 4;
const URGENT_PAUSE: Duration = Duration::from_millis(20);
const URGENT_SLICE: Duration = Duration::from_millis(20);
/// Time for the one walk after a failure.
const LAST_SLICE: Duration = Duration::from_millis(250);
/// A file that was cut off at the limit may lack its last block.
const BLOCK: u64 = 4096;

impl Growth {
    /// Must be made before the program can write, and as late as that allows: see [`Since`].
    pub(crate) fn new(path: &Path, limit: Bytes) -> Result<Self, Errno> {
        let dir = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let device = rustix::fs::fstat(&dir)?.st_dev;
        let free_at_start = free_bytes(dir.as_fd()).ok_or(Errno::IO)?;
        Ok(Self {
            dir,
            device,
            limit: limit.get(),
            free_at_start,
            since: Since {
                maybe: time(ClockId::RealtimeCoarse),
                surely: time(ClockId::Realtime),
            },
            walk: None,
            spent: Duration::ZERO,
            next_walk: Instant::now() + WALK_PAUSE,
        })
    }

    /// Whether the files that the run made or changed hold more than the limit. `pids` are the run's processes, whose files may have lost their names.
    pub(crate) fn is_over(&mut self, moment: Moment, pids: impl FnOnce() -> Vec<u32>) -> bool {
        let shrunk = self
            .free_at_start
            .saturating_sub(free_bytes(self.dir.as_fd()).unwrap_or(self.free_at_start));
        let now = Instant::now();
        let (enough, slice) = match moment {
            Moment::Running if shrunk > self.limit => (self.limit, URGENT_SLICE),
            Moment::Running => (self.limit, SLICE),
            Moment::Failed => (self.limit.saturating_sub(BLOCK), LAST_SLICE),
        };
        if self.walk.is_none() {
            let is_due = match moment {
                Moment::Running => now >= self.next_walk,
                Moment::Failed => shrunk >= self.limit / 2 || now >= self.next_walk,
            };
            // The first sign of trouble does not wait for its turn.
            let is_news = shrunk > self.limit && self.next_walk > now + self.urgent_pause();
            if !is_due && !is_news {
                return false;
            }
            let Some(walk) = Walk::new(&self.dir, self.since) else {
                return shrunk > self.limit;
            };
            let nameless = mappings::nameless_files(&pids(), self.device);
            self.walk = Some((walk, nameless));
            self.spent = Duration::ZERO;
        }
        let Some((walk, nameless)) = &mut self.walk else {
            return false;
        };
        let done = walk.advance(now + slice, enough.saturating_sub(nameless.bytes), shrunk);
        let held = nameless.bytes.saturating_add(walk.held(shrunk));
        // Where not everything can be seen, the free space of the whole file system is all there is to go by.
        let hidden = walk.has_unknown() || nameless.has_unknown;
        let over = held > enough || done && hidden && shrunk > enough;
        self.spent += now.elapsed();
        if done || over {
            self.walk = None;
            let pause = if shrunk > self.limit {
                self.urgent_pause()
            } else {
                WALK_PAUSE.max(self.spent * WALK_SHARE)
            };
            self.next_walk = Instant::now() + pause;
        }
        over
    }

    fn urgent_pause(&self) -> Duration {
        URGENT_PAUSE.max(self.spent * URGENT_SHARE)
    }
}

fn time(clock: ClockId) -> (i64, i64) {
    let now = rustix::time::clock_gettime(clock);
    (now.tv_sec, now.tv_nsec)
}

fn free_bytes(dir: BorrowedFd<'_>) -> Option<u64> {
    let stat = rustix::fs::fstatfs(dir).ok()?;
    Some(stat.f_bfree * u64::try_from(stat.f_bsize).ok()?)
}
