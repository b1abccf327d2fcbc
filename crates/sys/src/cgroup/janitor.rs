//! The process that removes a run's control groups: the same one whether the run ends well or the supervisor is killed. It borrows the supervisor's memory, so it costs no copy of
//! it, sleeps on a pipe that closes when the supervisor ends, however that happens, and sweeps what an even worse crash left before.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{WaitId, WaitIdOptions};
use rustix::thread::Timespec;

use crate::clone::{self, Stack};
use crate::raw;

/// Every group of ours has this prefix; a sweep touches no other.
pub(super) const PREFIX: &[u8] = b"cofferdam-";
const MAX_PLACES: usize = 4;
/// How long the last process of a killed sandbox may take to go, in steps of [`STEP_NANOS`].
const STEPS: u32 = 2000;
const STEP_NANOS: i64 = 2_000_000;

/// The supervisor's hold on its janitor.
#[derive(Debug)]
pub(super) struct Janitor {
    pidfd: OwnedFd,
    lifeline: Option<OwnedFd>,
    /// Borrowed by the janitor until it has ended.
    _work: Box<Work>,
}

struct Work {
    places: [i32; MAX_PLACES],
    count: usize,
    name: CString,
    wake: OwnedFd,
    stack: Stack,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Janitor {
    /// Starts a janitor for the group `name` in each of `places`.
    pub(super) fn start(places: Vec<&OwnedFd>, name: &str) -> Result<Self, Errno> {
        let (wake, lifeline) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let mut work = Box::new(Work {
            places: [-1; MAX_PLACES],
            count: places.len().min(MAX_PLACES),
            name: CString::new(name).map_err(|_| Errno::INVAL)?,
            wake,
            stack: clone::stack(32 * 1024),
        });
        for (slot, place) in work.places.iter_mut().zip(places) {
            *slot = place.as_raw_fd();
        }
        let mut stack = std::mem::take(&mut work.stack);
        let argument = (&raw const *work).cast_mut().cast();
        // SAFETY: `watch` makes raw system calls only. `work` and `stack` are heap memory that `Janitor` owns until it has reaped the process, or that
        // lives on in the shared memory when this process is killed.
        let started =
            unsafe { clone::spawn_sharing_memory(&mut stack, 0, watch, argument) };
        work.stack = stack;
        let (_, pidfd) = started?;
        Ok(Self { pidfd, lifeline: Some(lifeline), _work: work })
    }

    /// Tells the janitor to remove the groups now; it goes on by itself.
    pub(super) fn begin(&mut self) {
        self.lifeline = None;
    }

    /// Waits until the groups are gone and the janitor with them.
    pub(super) fn finish(mut self) {
        self.begin();
        while let Err(Errno::INTR) = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED) {}
    }
}

/// Removes the group as soon as its last process is gone.
pub(super) fn remove_patiently(parent: BorrowedFd<'_>, name: &str) {
    for _ in 0..STEPS {
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::BUSY) => nap(),
            _ => return,
        }
    }
}

fn nap() {
    let _ = rustix::thread::nanosleep(&Timespec {
        tv_sec: 0,
        tv_nsec: STEP_NANOS,
    });
}

/// Where the janitor's process begins.
extern "C" fn watch(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `Janitor::start` handed us a live `Work`, which outlives this process.
    let work = unsafe { &*argument.cast::<Work>() };
    let _ = rustix::thread::set_name(c"cofferdam-sweep");
    shield();
    keep_only(work);
    let places = work.places.get(..work.count).unwrap_or_default();
    for &place in places {
        // SAFETY: open in this process for its whole life: `keep_only` spared it.
        sweep(unsafe { BorrowedFd::borrow_raw(place) }, &work.name);
    }
    // Readable only as end of file: nobody ever writes.
    while let Err(Errno::INTR) = rustix::io::read(&work.wake, &mut [0u8; 1]) {}
    for &place in places {
        // SAFETY: as above.
        let place = unsafe { BorrowedFd::borrow_raw(place) };
        for _ in 0..STEPS {
            match rustix::fs::unlinkat(place, &work.name, AtFlags::REMOVEDIR) {
                Err(Errno::BUSY) => nap(),
                _ => break,
            }
        }
    }
    raw::exit(0)
}

/// A process of its own session, deaf to the terminal's signals: Ctrl-C is for the supervisor.
fn shield() {
    let _ = rustix::process::setsid();
    let everything = u64::MAX;
    let how = libc::SIG_SETMASK.cast_unsigned() as usize;
    // SAFETY: the kernel reads 8 bytes of mask.
    let _ = unsafe {
        raw::syscall(
            libc::SYS_rt_sigprocmask,
            [how, (&raw const everything).addr(), 0, 8, 0, 0],
        )
    };
}

/// Closes every descriptor but the places and the pipe's reading end: above all our copy of its writing end, or we would wait for ourselves.
fn keep_only(work: &Work) {
    let mut keep = [i32::MAX; MAX_PLACES + 1];
    for (slot, fd) in keep.iter_mut().zip(
        work.places
            .iter()
            .take(work.count)
            .copied()
            .chain([work.wake.as_raw_fd()]),
    ) {
        *slot = fd;
    }
    keep.sort_unstable();
    let mut from = 0u32;
    for fd in keep
        .into_iter()
        .filter(|&fd| fd != i32::MAX)
        .map(i32::cast_unsigned)
    {
        if fd > from {
            // SAFETY: this descriptor table is a copy that only this process uses; nothing in it is used but `keep`.
            let _ = unsafe {
                raw::syscall(
                    libc::SYS_close_range,
                    [from as usize, fd as usize - 1, 0, 0, 0, 0],
                )
            };
        }
        from = fd + 1;
    }
    // SAFETY: as above.
    let _ = unsafe {
        raw::syscall(
            libc::SYS_close_range,
            [from as usize, u32::MAX as usize, 0, 0, 0, 0],
        )
    };
}

/// Removes groups of ours that nobody holds a lock on any more: a crash that took the janitor too left them.
fn sweep(place: BorrowedFd<'_>, own: &CStr) {
    let Ok(listing) = rustix::fs::openat(
        place,
        c".",
        OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    ) else {
        return;
    };
    let mut buffer = [std::mem::MaybeUninit::<u8>::uninit(); 4096];
    let mut entries = RawDir::new(listing.as_fd(), &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name();
        if !name.to_bytes().starts_with(PREFIX) || name == own {
            continue;
        }
        let Ok(dir) = rustix::fs::openat(
            place,
            name,
            OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        ) else {
            continue;
        };
        // One that is being made has no lock yet for a moment.
        if is_young(&dir) {
            continue;
        }
        if rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = rustix::fs::unlinkat(place, name, AtFlags::REMOVEDIR);
        }
    }
}

fn is_young(dir: &OwnedFd) -> bool {
    const GRACE_SECONDS: i64 = 2;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
    rustix::fs::fstat(dir).is_ok_and(|stat| now.saturating_sub(stat.st_mtime) < GRACE_SECONDS)
}
