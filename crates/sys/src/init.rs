//! The init inside a sandbox: process 1 of its pid namespace. Builds the sandbox around the program's process, reaps whatever ends, and ends itself, and with
//! it everything inside, when the program has ended or the supervisor's end of the control socket has closed.
//!
//! It never executes anything, and it shares the supervisor's memory or is a copy of it, so it makes raw system calls only: no allocation, no lock. From
//! inside, that memory is out of reach: init keeps capabilities that no program in the sandbox has, so the kernel lets none of them trace it or open its
//! /proc files, and its /proc entry is not even shown.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::blueprint::{Blueprint, Isolation};
use crate::child::{self, Building};
use crate::protocol::{self, Stage};
use crate::steps::{self, Built};
use crate::{clone, descendants, enclose, raw, signals};

/// A failure inside: where, and what the kernel said.
pub(crate) type Failure = (Stage, Errno);

/// When the sandbox is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// While the program's process prepares itself.
    AtOnce,
    /// Before there is such a process.
    OneAfterTheOther,
}

/// Becomes the sandbox's init. `keep` holds the descriptors that survive, sorted: the control socket and prepared mounts.
pub(crate) fn run(blueprint: &Blueprint, control: BorrowedFd<'_>, keep: &[i32], order: Order) -> ! {
    let mut site = Site::new(blueprint, control);
    match begin(blueprint, control, keep, order, &mut site) {
        Ok(init) => init.serve(),
        Err((stage, errno)) => {
            let _ = protocol::send(control, &protocol::setup_failed(stage, errno), &[]);
            raw::exit(1)
        }
    }
}

/// Starts the builder and then the program's process, which waits for it. By the time that this returns, the program has been executed, or has failed to be.
fn begin<'a>(
    blueprint: &'a Blueprint,
    control: BorrowedFd<'a>,
    keep: &[i32],
    order: Order,
    site: &mut Site<'_>,
) -> Result<Init<'a>, Failure> {
    enclose::detach(blueprint, control, keep)?;
    let signals = signals::watch(&[Signal::CHILD]).map_err(|errno| (Stage::Descriptors, errno))?;
    match order {
        Order::AtOnce => site.begin().map_err(|errno| (Stage::Clone, errno))?,
        Order::OneAfterTheOther => site.build(order),
    }
    let program =
        child::start(blueprint, control, &site.building).map_err(|errno| (Stage::Clone, errno))?;
    Ok(Init {
        blueprint,
        control,
        signals,
        program,
    })
}

/// Where the builder works: in the frame of an init that never returns, so it outlives the builder.
struct Site<'a> {
    blueprint: &'a Blueprint,
    control: BorrowedFd<'a>,
    building: Building,
    stack: [MaybeUninit<u8>; BUILDER_STACK],
}

/// Large enough for unoptimised builds; only touched pages are real.
const BUILDER_STACK: usize = 64 * 1024;

impl<'a> Site<'a> {
    fn new(blueprint: &'a Blueprint, control: BorrowedFd<'a>) -> Self {
        let stack = [const { MaybeUninit::uninit() }; BUILDER_STACK];
        Self {
            blueprint,
            control,
            building: Building::new(),
            stack,
        }
    }

    /// Starts the builder: a thread beside init, since init sleeps while the program's process borrows its memory. A thread leaves nothing to be reaped.
    fn begin(&mut self) -> Result<(), Errno> {
        let argument = std::ptr::from_mut(self).cast();
        // SAFETY: `build` keeps to raw system calls. `self` lies in init's frame, which lasts until init ends, and the builder with it.
        unsafe { clone::spawn_thread(&mut self.stack, build, argument) }
    }

    /// `beside` says whether the program's process is being made at the same time.
    fn build(&self, beside: Order) {
        let before_pivot = match beside {
            Order::AtOnce => Some(&self.building),
            Order::OneAfterTheOther => None,
        };
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

extern "C" fn build(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `begin` handed us a live `Site`; the stack in it, on which we run, is not touched through this reference.
    let site = unsafe { &*argument.cast::<Site<'_>>() };
    site.build(Order::AtOnce);
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
    blueprint: &'a Blueprint,
    control: BorrowedFd<'a>,
    signals: OwnedFd,
    program: i32,
}

impl Init<'_> {
    fn serve(&self) -> ! {
        loop {
            // What is to be read from the socket is for the program's process; only its end concerns us.
            let mut fds = [
                PollFd::from_borrowed_fd(self.control, PollFlags::RDHUP),
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
            if pid == self.program {
                let _ = protocol::send(self.control, &protocol::exited(status, cpu_micros), &[]);
                self.end();
            }
        }
    }

    /// Ends the sandbox. Where there is no pid namespace to do it for us, finds and kills every descendant first.
    fn end(&self) -> ! {
        if self.blueprint.isolation == Isolation::None {
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
