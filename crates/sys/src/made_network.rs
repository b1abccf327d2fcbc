//! A network namespace that is made before there is a sandbox for it: that takes the kernel longer than everything else around a program, and need not wait until it is known what the
//! sandbox will be like.
//!
//! It belongs to the caller's user namespace, in which no program of a sandbox has any right, so none can change how it is set up.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, LinkNameSpaceType, UnshareFlags, futex, move_into_link_name_space};

use crate::clone::{self, Stack};
use crate::{network, raw};

/// One with loopback up and nothing else.
#[derive(Debug)]
pub struct MadeNetwork {
    fd: OwnedFd,
    identity: [u64; 2],
}

const TRIES: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

impl MadeNetwork {
    /// Looks at it from inside while it is new. Takes the right to make namespaces in the caller's user namespace.
    pub(crate) fn make_and<T>(look: impl FnOnce() -> T) -> Result<(Self, T), Errno> {
        let home = open("ns/net")?;
        // SAFETY: concerns this thread alone, which comes back.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
        let made = Self::of_this_thread().map(|made| (made, look()));
        come_back_to(&home);
        made
    }

    fn of_this_thread() -> Result<Self, Errno> {
        network::loopback_up()?;
        Self::of(open("ns/net")?)
    }

    fn of(fd: OwnedFd) -> Result<Self, Errno> {
        let identity = network::identity_of(&fd)?;
        Ok(Self { fd, identity })
    }

    /// By which a process knows that it is in it.
    pub fn identity(&self) -> [u64; 2] {
        self.identity
    }

    /// Does the work in a thread that is in it meanwhile: what is cloned there is born in it.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> Result<T, Errno> {
        let home = open("ns/net")?;
        enter(self.fd.as_fd())?;
        let done = work();
        come_back_to(&home);
        Ok(done)
    }
}

/// One that a thread makes while its caller goes on. Dropping it waits for the thread, too.
#[derive(Debug)]
pub struct Making(Box<Work>);

/// What the thread works with.
struct Work {
    /// Of the thread, for as long as it lives.
    tid: AtomicU32,
    /// Whether it may begin.
    go: AtomicU32,
    /// The network's descriptor, or the error's number below 0.
    made: AtomicI32,
    stack: Stack,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work")
            .field("tid", &self.tid)
            .finish_non_exhaustive()
    }
}

/// Enough for unoptimised builds; only touched pages are real.
const STACK: usize = 64 * 1024;
/// Neither made nor failed: the thread has not come to it, or somebody has taken what it made.
const NOTHING: i32 = -libc::ECHILD;

impl Making {
    /// Takes the right to make namespaces in the caller's user namespace.
    pub fn begin() -> Result<Self, Errno> {
        let mut work = Box::new(Work {
            tid: AtomicU32::new(0),
            go: AtomicU32::new(0),
            made: AtomicI32::new(NOTHING),
            stack: Stack::default(),
        });
        let mut stack = clone::stack(STACK);
        let argument = (&raw const *work).cast_mut().cast();
        // SAFETY: `make` makes raw system calls only. `work` and `stack` are heap memory that is freed only after the thread has ended.
        let started = unsafe { clone::spawn_awaited_thread(&mut stack, &work.tid, make, argument) };
        work.stack = stack;
        let thread = started?;
        elsewhere_best_effort(thread);
        work.go.store(1, Ordering::Release);
        let _ = futex::wake(&work.go, futex::Flags::PRIVATE, 1);
        Ok(Self(work))
    }

    /// Waits until it is there.
    pub fn finish(self) -> Result<MadeNetwork, Errno> {
        MadeNetwork::of(self.wait()?)
    }

    fn wait(&self) -> Result<OwnedFd, Errno> {
        loop {
            match self.0.tid.load(Ordering::Acquire) {
                0 => break,
                // The kernel's own wake-up is not a private one.
                tid => drop(futex::wait(&self.0.tid, futex::Flags::empty(), tid, None)),
            }
        }
        match self.0.made.swap(NOTHING, Ordering::AcqRel) {
            // SAFETY: the thread has opened it for us, and this is the only one who takes it.
            fd @ 0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            errno => Err(Errno::from_raw_os_error(-errno)),
        }
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        drop(self.wait());
    }
}

/// The kernel would have it begin on this CPU and its caller wait. A thread that sleeps is moved when it wakes.
fn elsewhere_best_effort(thread: Pid) {
    let Ok(mut others) = rustix::thread::sched_getaffinity(None) else {
        return;
    };
    others.unset(rustix::thread::sched_getcpu());
    if others != CpuSet::new() {
        let _ = rustix::thread::sched_setaffinity(Some(thread), &others);
    }
}

/// Where the thread begins.
extern "C" fn make(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `Making::begin` handed us a live `Work`, of which only `stack` changes meanwhile, and that we do not look at.
    let (go, made) = unsafe {
        let work = argument.cast::<Work>();
        (&(*work).go, &(*work).made)
    };
    while go.load(Ordering::Acquire) == 0 {
        let _ = futex::wait(go, futex::Flags::PRIVATE, 0, None);
    }
    let namespace = leave_for_good().map(IntoRawFd::into_raw_fd);
    let told = namespace.unwrap_or_else(|errno| -errno.raw_os_error());
    made.store(told, Ordering::Release);
    raw::exit_thread()
}

/// For a thread that has nothing else to do. Allocates nothing.
fn leave_for_good() -> Result<OwnedFd, Errno> {
    // SAFETY: concerns this thread alone.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    network::loopback_up()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, c"/proc/thread-self/ns/net", flags, Mode::empty())
}

/// A thread that cannot come back would go on in a sandbox's network, on the caller's behalf: better to have none. The kernel refuses it for want of memory only.
fn come_back_to(home: &OwnedFd) {
    for _ in 0..TRIES {
        if enter(home.as_fd()).is_ok() {
            return;
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
    std::process::abort();
}

impl AsFd for MadeNetwork {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn enter(namespace: BorrowedFd<'_>) -> Result<(), Errno> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))
}

pub(crate) fn open(of_this_thread: &str) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/thread-self/{of_this_thread}");
    rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}
