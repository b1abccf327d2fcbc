//! The init inside a sandbox: process 1 of its pid namespace. Builds the sandbox around the program's process, reaps whatever ends, and ends itself, and with
//! it everything inside, when the program has ended or the supervisor's end of the control socket has closed.
//!
//! It never executes anything, and it shares the supervisor's memory or is a copy of it, so it makes raw system calls only: no allocation, no lock. From
//! inside, that memory is out of reach: init keeps capabilities that no program in the sandbox has, so the kernel lets none of them trace it or open its
//! /proc files, and its /proc entry is not even shown.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::blueprint::{Blueprint, Isolation};
use crate::child::{self, Building, Start};
use crate::clone::{self, Lent};
use crate::errand::Errand;
use crate::guest::Namespaces;
use crate::protocol::{self, Stage};
use crate::steps::{self, Built};
use crate::{descendants, enclose, raw, signals};

/// A failure inside: where, and what the kernel said.
pub(crate) type Failure = (Stage, Errno);

/// When the sandbox is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// While the program's process prepares itself.
    AtOnce,
    /// Before there is such a process.
    OneAfterTheOther,
    /// Without one: it will come from elsewhere.
    ForAGuest,
}

/// Becomes the sandbox's init. `keep` holds the descriptors that survive, sorted: the control socket and prepared mounts.
pub(crate) fn run(
    (blueprint, errand): (&Blueprint, &OnceLock<Errand>),
    control: BorrowedFd<'_>,
    keep: &[i32],
    stacks: Stacks,
    order: Order,
) -> ! {
    let site = Site {
        blueprint,
        errand,
        control,
        building: Building::new(),
        program: AtomicI32::new(0),
        stacks,
    };
    match begin(&site, keep, order) {
        Ok(signals) => Init {
            site: &site,
            signals,
        }
        .serve(),
        Err((stage, errno)) => {
            let _ = protocol::send(control, &protocol::setup_failed(stage, errno), &[]);
            raw::exit(1)
        }
    }
}

/// Has the program's process made and the sandbox built. A failure of either is told by whoever met it.
fn begin(site: &Site<'_>, keep: &[i32], order: Order) -> Result<OwnedFd, Failure> {
    enclose::detach(site.blueprint, site.control, keep)?;
    let signals = signals::watch(&[Signal::CHILD]).map_err(|errno| (Stage::Descriptors, errno))?;
    match order {
        Order::AtOnce => {
            site.start_program_beside()
                .map_err(|errno| (Stage::Clone, errno))?;
            site.build(Some(&site.building));
        }
        Order::OneAfterTheOther => {
            site.build(None);
            site.start_program();
        }
        Order::ForAGuest => {
            let namespaces = Namespaces::open().map_err(|errno| (Stage::Descriptors, errno))?;
            let root = site.try_build(None)?;
            namespaces.show(site, root)?;
        }
    }
    Ok(signals)
}

/// What init and the thread beside it work on. It lies in the frame of an init that never returns, so it outlives the thread.
pub(crate) struct Site<'a> {
    pub(crate) blueprint: &'a Blueprint,
    errand: &'a OnceLock<Errand>,
    pub(crate) control: BorrowedFd<'a>,
    building: Building,
    /// The program's pid, from the moment at which it exists.
    program: AtomicI32,
    stacks: Stacks,
}

/// The stacks of those who run beside init, each used once.
#[derive(Clone, Copy)]
pub(crate) struct Stacks {
    beside: Lent,
    program: Lent,
}

impl Stacks {
    /// Large enough for unoptimised builds; only touched pages are real.
    pub(crate) const BESIDE: usize = 64 * 1024;
    pub(crate) const PROGRAM: usize = 64 * 1024;

    /// The lower end of a stack that is much larger.
    pub(crate) fn lend(stack: &mut [MaybeUninit<u8>]) -> Self {
        let (beside, rest) = stack.split_at_mut(Self::BESIDE);
        let (program, _) = rest.split_at_mut(Self::PROGRAM);
        Self {
            beside: Lent::new(beside),
            program: Lent::new(program),
        }
    }
}

impl Site<'_> {
    /// In a thread of its own, since whoever makes the program's process sleeps while that borrows its memory. A thread leaves nothing to be reaped.
    fn start_program_beside(&self) -> Result<(), Errno> {
        let argument = std::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: lent for this, for as long as init lives, and used here only.
        let stack = unsafe { self.stacks.beside.take() };
        // SAFETY: `make_program` keeps to raw system calls. `self` lies in init's frame, which lasts until init ends, and the thread with it.
        unsafe { clone::spawn_thread(stack, make_program, argument) }
    }

    fn start_program(&self) {
        // SAFETY: lent for this, for as long as init lives; a program is started once.
        let stack = unsafe { self.stacks.program.take() };
        let start = Start {
            blueprint: self.blueprint,
            errand: self.errand,
            control: self.control,
            building: &self.building,
        };
        if let Err(errno) = start.go(stack, &self.program) {
            let _ = protocol::send(
                self.control,
                &protocol::setup_failed(Stage::Clone, errno),
                &[],
            );
        }
        // Whoever was not born, or was killed before it could say so, is not waited for.
        self.building.announce_birth();
    }

    /// `before_pivot` is given when the program's process is being made at the same time.
    fn build(&self, before_pivot: Option<&Building>) {
        match self.try_build(before_pivot) {
            Ok(root) => self.building.succeeded(root),
            Err((stage, errno)) => {
                let _ = protocol::send(self.control, &protocol::setup_failed(stage, errno), &[]);
                self.building.failed();
            }
        }
    }

    fn try_build(&self, before_pivot: Option<&Building>) -> Result<[u64; 2], Failure> {
        let built = enclose::build(self.blueprint, before_pivot)?;
        let root = child::identity_of(c"/").map_err(|errno| (Stage::OldRoot, errno))?;
        report_ready(self.control, &built).map_err(|errno| (Stage::Descriptors, errno))?;
        Ok(root)
    }
}

extern "C" fn make_program(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `start_program_beside` handed us a live `Site`.
    let site = unsafe { &*argument.cast::<Site<'_>>() };
    site.start_program();
    raw::exit_thread()
}

fn report_ready(control: BorrowedFd<'_>, built: &Built) -> Result<(), Errno> {
    let mut fds = [control; steps::MAX_DIRS];
    let mut count = 0;
    for dir in built.dirs.iter().flatten() {
        fds[count] = dir.as_fd();
        count += 1;
    }
    protocol::send(
        control,
        &protocol::ready(built.proc),
        fds.get(..count).unwrap_or_default(),
    )
}

/// An init whose sandbox stands.
struct Init<'a> {
    site: &'a Site<'a>,
    signals: OwnedFd,
}

impl Init<'_> {
    fn serve(&self) -> ! {
        loop {
            // What is to be read from the socket is for the program's process; only its end concerns us.
            let mut fds = [
                PollFd::from_borrowed_fd(self.site.control, PollFlags::RDHUP),
                PollFd::new(&self.signals, PollFlags::IN),
            ];
            if rustix::event::poll(&mut fds, None).is_err() {
                continue;
            }
            let (gone, ended) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
            if ended {
                self.reap();
            }
            if gone {
                self.end();
            }
        }
    }

    /// Reaps everything that has ended; orphans of the sandbox arrive here too.
    fn reap(&self) {
        let mut drained = [0u8; 128];
        let _ = rustix::io::read(&self.signals, &mut drained);
        while let Some((pid, status, cpu_micros)) = reap_one() {
            if pid == self.site.program.load(Ordering::Acquire) {
                let _ = protocol::send(
                    self.site.control,
                    &protocol::exited(status, cpu_micros),
                    &[],
                );
                self.end();
            }
        }
    }

    /// Ends the sandbox. Where there is no pid namespace to do it for us, finds and kills every descendant first.
    fn end(&self) -> ! {
        if self.site.blueprint.isolation == Isolation::None {
            descendants::kill_all();
        }
        raw::exit(0)
    }
}

/// wait4 without waiting: the pid, the status and the CPU time of one ended child and of all that it had waited for.
pub(crate) fn reap_one() -> Option<(i32, i32, u64)> {
    let mut status: i32 = 0;
    // SAFETY: all-zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let flags = (libc::WNOHANG | libc::__WALL).cast_unsigned() as usize;
    let (status_at, usage_at) = (
        (&raw mut status).expose_provenance(),
        (&raw mut usage).expose_provenance(),
    );
    // SAFETY: the kernel writes one int and one rusage.
    let pid = unsafe {
        raw::syscall(
            libc::SYS_wait4,
            [usize::MAX, status_at, flags, usage_at, 0, 0],
        )
    };
    let pid = i32::try_from(pid.ok()?).ok().filter(|&pid| pid > 0)?;
    let micros =
        |time: libc::timeval| time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_usec.unsigned_abs();
    Some((pid, status, micros(usage.ru_utime) + micros(usage.ru_stime)))
}
