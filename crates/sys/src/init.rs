//! The init inside a sandbox: process 1 of its pid namespace. Builds the sandbox around the program's process, reaps whatever ends, and ends itself, and with
//! it everything inside, when the program has ended or the supervisor's end of the control socket has closed.
//!
//! It never executes anything, and it shares the supervisor's memory or is a copy of it, so it makes raw system calls only: no allocation, no lock. From
//! inside, that memory is out of reach: init keeps capabilities that no program in the sandbox has, so the kernel lets none of them trace it or open its
//! /proc files, and its /proc entry is not even shown.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::blueprint::{Blueprint, Isolation};
use crate::child::Place;
use crate::protocol::{self, Stage};
use crate::steps::{self, Built};
use crate::{descendants, enclose, raw, signals};

/// A failure inside: where, and what the kernel said.
pub(crate) type Failure = (Stage, Errno);

/// Becomes the sandbox's init. `keep` holds the descriptors that survive, sorted: the control socket and prepared mounts.
pub(crate) fn run(blueprint: &Blueprint, control: BorrowedFd<'_>, keep: &[i32]) -> ! {
    let mut place = Place::new(blueprint, control);
    match build(blueprint, control, keep, &mut place) {
        Ok(init) => init.serve(),
        Err((stage, errno)) => {
            let _ = protocol::send(control, &protocol::setup_failed(stage, errno), &[]);
            if blueprint.isolation == Isolation::None {
                descendants::kill_all();
            }
            raw::exit(1)
        }
    }
}

fn build<'a>(
    blueprint: &'a Blueprint,
    control: BorrowedFd<'a>,
    keep: &[i32],
    place: &mut Place<'_>,
) -> Result<Init<'a>, Failure> {
    let at = |errno| (Stage::Descriptors, errno);
    enclose::detach(blueprint, control, keep)?;
    let signals = signals::watch(&[Signal::CHILD]).map_err(at)?;
    let program = place.begin().map_err(|errno| (Stage::Clone, errno))?;
    let built = enclose::build(blueprint, control)?;
    place.announce();
    report_ready(control, &built).map_err(at)?;
    Ok(Init {
        blueprint,
        control,
        signals,
        program,
    })
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
