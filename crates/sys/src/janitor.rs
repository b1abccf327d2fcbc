//! The process that removes a run's control groups: the same one whether the run ends well or the supervisor is killed. It borrows the supervisor's memory, so it
//! costs no copy of it, sweeps what an even worse crash left, and sleeps on a pipe that closes when the supervisor says so or ends, however that happens.
//!
//! Where sandboxes are built one after the other, a process for each would cost more than all else: there one janitor is for a whole family of groups, by the beginning of their names, and
//! whoever made a group removes it, unless it is killed.

use std::ffi::{CStr, CString};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{WaitId, WaitIdOptions};
use rustix::thread::Timespec;

use crate::cgroup::Hierarchy;
use crate::clone::{self, Stack};
use crate::raw;

/// Every group of ours has this prefix; a sweep touches no other.
const PREFIX: &[u8] = b"cofferdam-";
/// As many as version 1 has controllers that we use.
const MAX_PLACES: usize = 5;
/// What the janitor keeps open: the places, and its end of the pipe.
const MAX_KEPT: usize = MAX_PLACES + 1;
/// How often a group is tried that still holds a process: for about ten seconds, since naps grow.
const TRIES: u32 = 500;
const FIRST_NAP_NANOS: i64 = 50_000;
const LONGEST_NAP_NANOS: i64 = 20_000_000;

/// The supervisor's hold on its janitor. Dropping it waits until everything is gone.
#[derive(Debug)]
pub struct Janitor {
    pid: u32,
    pidfd: OwnedFd,
    lifeline: Option<OwnedFd>,
    /// Borrowed by the janitor until it has ended.
    work: ManuallyDrop<Box<Work>>,
}

/// What a janitor removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Charge {
    /// The group of this name.
    Group,
    /// Every group whose name begins so.
    Family,
}

struct Work {
    places: [i32; MAX_PLACES],
    count: usize,
    charge: Charge,
    name: CString,
    /// A family may outlive whoever found the places.
    _held: Vec<OwnedFd>,
    wake: i32,
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
    /// Starts a janitor for the group `name`, before that is made: from its first moment on there is somebody to remove it. `None` where no group can be.
    pub fn start(hierarchy: &Hierarchy, name: &str) -> Result<Option<Self>, Errno> {
        let places = numbers(hierarchy.places());
        Self::watch_over(&places, Vec::new(), Charge::Group, name)
    }

    fn watch_over(
        places: &[i32],
        held: Vec<OwnedFd>,
        charge: Charge,
        name: &str,
    ) -> Result<Option<Self>, Errno> {
        if places.is_empty() {
            return Ok(None);
        }
        if places.len() > MAX_PLACES {
            // Groups would be left behind.
            return Err(Errno::TOOBIG);
        }
        let (wake, lifeline) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let mut work = Box::new(Work {
            places: [-1; MAX_PLACES],
            count: places.len(),
            charge,
            _held: held,
            name: CString::new(name).map_err(|_| Errno::INVAL)?,
            wake: wake.as_raw_fd(),
            stack: clone::stack(32 * 1024),
        });
        for (slot, place) in work.places.iter_mut().zip(places) {
            *slot = *place;
        }
        let mut stack = std::mem::take(&mut work.stack);
        let argument = (&raw const *work).cast_mut().cast();
        // SAFETY: `watch` makes raw system calls only. `work` and `stack` are heap memory that is freed only after the process has been reaped, or that
        // lives on in the shared memory when this process ends first.
        let started = unsafe { clone::spawn_sharing_memory(&mut stack, 0, watch, argument) };
        work.stack = stack;
        let (pid, pidfd) = started?;
        Ok(Some(Self {
            pid: pid.as_raw_nonzero().get().unsigned_abs(),
            pidfd,
            lifeline: Some(lifeline),
            work: ManuallyDrop::new(work),
        }))
    }

    /// Tells the janitor to begin: everything in the group has ended or is about to. The group's counters can no longer be read.
    fn begin(&mut self) {
        self.lifeline = None;
    }

    fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec::default())) == Ok(0)
    }
}

fn numbers<'a>(places: impl IntoIterator<Item = &'a OwnedFd>) -> Vec<i32> {
    places.into_iter().map(AsRawFd::as_raw_fd).collect()
}

/// The groups of many runs, with one janitor for all of them. It goes, and they with it, when this and all its wards are gone.
#[derive(Debug)]
pub struct Family {
    name: String,
    janitor: Janitor,
}

impl Family {
    /// For groups whose names begin with `name`. `None` where no group can be.
    pub fn start(hierarchy: &Hierarchy, name: &str) -> Result<Option<Self>, Errno> {
        let held = hierarchy.places().into_iter();
        let held: Vec<OwnedFd> = held
            .map(|place| rustix::io::fcntl_dupfd_cloexec(place, 3))
            .collect::<Result<_, _>>()?;
        let places = numbers(&held);
        let janitor = Janitor::watch_over(&places, held, Charge::Family, name)?;
        Ok(janitor.map(|janitor| Self {
            name: name.to_owned(),
            janitor,
        }))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether somebody would see to its groups if this process were killed.
    pub fn is_watched(&self) -> bool {
        self.janitor.is_alive()
    }
}

/// One group of a family. Dropping it removes the group, whose processes have ended or are about to.
#[derive(Debug)]
pub struct Ward {
    family: Arc<Family>,
    name: CString,
}

impl Ward {
    /// Before the group is made. Its name must begin with its family's.
    pub fn new(family: &Arc<Family>, name: &str) -> Result<Self, Errno> {
        if !name.starts_with(family.name()) {
            return Err(Errno::INVAL);
        }
        Ok(Self {
            family: Arc::clone(family),
            name: CString::new(name).map_err(|_| Errno::INVAL)?,
        })
    }
}

impl Drop for Ward {
    fn drop(&mut self) {
        for place in self.family.janitor.work.places() {
            remove(place, &self.name);
        }
    }
}

/// Whoever removes the group of a run.
#[derive(Debug)]
pub enum Remover {
    Janitor(Janitor),
    Ward(Ward),
}

impl Remover {
    /// Has the removal begin, where it is done beside us. The group's counters can no longer be read.
    pub fn begin(&mut self) {
        if let Self::Janitor(janitor) = self {
            janitor.begin();
        }
    }

    /// The process that is there for this run alone.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Janitor(janitor) => Some(janitor.pid),
            Self::Ward(_) => None,
        }
    }
}

impl Work {
    fn places(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let places = self.places.get(..self.count).unwrap_or_default().iter();
        // SAFETY: the caller's hierarchy, which holds these descriptors, outlives the run, and a family has its own; `keep_only` spares them in the janitor's process.
        places.map(|&place| unsafe { BorrowedFd::borrow_raw(place) })
    }

    fn clear(&self) {
        for place in self.places() {
            match self.charge {
                Charge::Group => remove(place, &self.name),
                Charge::Family => remove_family(place, self.name.to_bytes()),
            }
        }
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.begin();
        let ended = loop {
            match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED)
            {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        let finished = matches!(ended, Ok(Some(status)) if status.exited());
        if !finished {
            // Somebody killed it.
            self.work.clear();
        }
        // SAFETY: the janitor has ended, and this is the only place that drops it.
        unsafe { ManuallyDrop::drop(&mut self.work) };
    }
}

/// Removes the group as soon as its last process is gone.
fn remove(place: BorrowedFd<'_>, name: &CStr) {
    again_and_again(|| rustix::fs::unlinkat(place, name, AtFlags::REMOVEDIR) == Err(Errno::BUSY));
}

/// The same for all whose names begin so.
fn remove_family(place: BorrowedFd<'_>, beginning: &[u8]) {
    again_and_again(|| {
        let mut is_left = false;
        each_group(place, |name| {
            if name.to_bytes().starts_with(beginning) {
                let removed = rustix::fs::unlinkat(place, name, AtFlags::REMOVEDIR);
                is_left |= removed == Err(Errno::BUSY);
            }
        });
        is_left
    });
}

/// With naps that grow, for as long as there is something left to do.
fn again_and_again(mut is_left: impl FnMut() -> bool) {
    let mut nap = FIRST_NAP_NANOS;
    for _ in 0..TRIES {
        if !is_left() {
            return;
        }
        let _ = rustix::thread::nanosleep(&Timespec {
            tv_sec: 0,
            tv_nsec: nap,
        });
        nap = (nap * 2).min(LONGEST_NAP_NANOS);
    }
}

/// Where the janitor's process begins.
extern "C" fn watch(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `Janitor::start` handed us a live `Work`, which outlives this process.
    let work = unsafe { &*argument.cast::<Work>() };
    let _ = rustix::thread::set_name(c"cofferdam-sweep");
    shield();
    keep_only(work);
    // Now, while the run is on its way, and not when somebody waits for our end.
    for place in work.places() {
        sweep(place, &work.name);
    }
    // SAFETY: open in this process for its whole life: `keep_only` spared it.
    let wake = unsafe { BorrowedFd::borrow_raw(work.wake) };
    // Readable only as end of file: nobody ever writes.
    while let Err(Errno::INTR) = rustix::io::read(wake, &mut [0u8; 1]) {}
    work.clear();
    raw::exit(0)
}

/// A process of its own session, deaf to the terminal's signals: Ctrl-C is for the supervisor.
pub(crate) fn shield() {
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

fn keep_only(work: &Work) {
    let mut keep = [-1; MAX_KEPT];
    let used = work.places.iter().chain([&work.wake]);
    for (slot, fd) in keep.iter_mut().zip(used) {
        *slot = *fd;
    }
    self::keep(&mut keep);
}

/// Closes every descriptor but those that are used: above all our copy of the lifeline's writing end, or we would wait for ourselves.
pub(crate) fn keep(keep: &mut [i32]) {
    keep.sort_unstable();
    let mut from = 0;
    for fd in keep.iter().filter_map(|fd| usize::try_from(*fd).ok()) {
        if fd > from {
            // SAFETY: this descriptor table is a copy that only this process uses; nothing in it is used but `keep`.
            let _ = unsafe { raw::syscall(libc::SYS_close_range, [from, fd - 1, 0, 0, 0, 0]) };
        }
        from = fd + 1;
    }
    // SAFETY: as above.
    let _ = unsafe { raw::syscall(libc::SYS_close_range, [from, u32::MAX as usize, 0, 0, 0, 0]) };
}

/// Removes groups of ours that nobody holds a lock on any more: a crash that took the janitor too left them.
fn sweep(place: BorrowedFd<'_>, own: &CStr) {
    each_group(place, |name| {
        if name == own {
            return;
        }
        let Ok(dir) = rustix::fs::openat(
            place,
            name,
            OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        ) else {
            return;
        };
        // One that is being made has no lock yet for a moment.
        if is_young(&dir) {
            return;
        }
        if rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = rustix::fs::unlinkat(place, name, AtFlags::REMOVEDIR);
        }
    });
}

/// Every group of ours in a place.
fn each_group(place: BorrowedFd<'_>, mut work: impl FnMut(&CStr)) {
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
        if entry.file_name().to_bytes().starts_with(PREFIX) {
            work(entry.file_name());
        }
    }
}

fn is_young(dir: &OwnedFd) -> bool {
    const GRACE_SECONDS: u64 = 2;
    let (now, _) = raw::clock(libc::CLOCK_REALTIME);
    rustix::fs::fstat(dir)
        .is_ok_and(|stat| now.saturating_sub(stat.st_mtime.unsigned_abs()) < GRACE_SECONDS)
}
