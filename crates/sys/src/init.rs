//! The init inside a sandbox: process 1 of its pid namespace. Builds the sandbox, starts programs when told to, reaps whatever ends, and ends itself, and
//! with it everything inside, when the supervisor's end of the control socket closes.
//!
//! It never executes anything, and it shares the supervisor's memory or is a copy of it, so it makes raw system calls only: no allocation, no lock. From
//! inside, that memory is out of reach: init keeps capabilities that no program in the sandbox has, so the kernel lets none of them trace it or open its
//! /proc files, and its /proc entry is not even shown.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::Signal;

use crate::blueprint::{Blueprint, Isolation, Routes};
use crate::child::{self, Stdio};
use crate::protocol::{
    self, Afterwards, INLINE_MAX, KIND_EXEC, KIND_EXEC_IN_MEMORY_FILE, KIND_SIGNAL, MAX_FDS, Stage,
};
use crate::steps::{self, Built};
use crate::{descendants, enclose, raw, routes, signals};

/// A failure inside: where, and what the kernel said.
pub(crate) type Failure = (Stage, Errno);

/// Becomes the sandbox's init. `keep` holds the descriptors that survive, sorted: the control socket and prepared mounts.
pub(crate) fn run(blueprint: &Blueprint, control: BorrowedFd<'_>, keep: &[i32]) -> ! {
    let server = enclose::build(blueprint, control, keep).and_then(|(built, ruleset)| {
        let server = Server::new(blueprint, control, ruleset)
            .map_err(|errno| (Stage::Descriptors, errno))?;
        report_ready(control, &built).map_err(|errno| (Stage::Descriptors, errno))?;
        Ok(server)
    });
    match server {
        Ok(mut server) => server.serve(),
        Err((stage, errno)) => {
            let _ = protocol::send(control, &protocol::setup_failed(stage, errno), &[]);
            raw::exit(1)
        }
    }
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

/// The loop of a built sandbox.
struct Server<'a> {
    blueprint: &'a Blueprint,
    control: BorrowedFd<'a>,
    ruleset: Option<OwnedFd>,
    signals: OwnedFd,
    /// The program that was started last, and what its end means for the sandbox.
    main: Option<(i32, Afterwards)>,
    message: [u64; INLINE_MAX / 8],
}

impl<'a> Server<'a> {
    fn new(
        blueprint: &'a Blueprint,
        control: BorrowedFd<'a>,
        ruleset: Option<OwnedFd>,
    ) -> Result<Self, Errno> {
        Ok(Self {
            blueprint,
            control,
            ruleset,
            signals: signals::watch(&[Signal::CHILD])?,
            main: None,
            message: [0; INLINE_MAX / 8],
        })
    }

    fn serve(&mut self) -> ! {
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(self.control, PollFlags::IN),
                PollFd::new(&self.signals, PollFlags::IN),
            ];
            if rustix::event::poll(&mut fds, None).is_err() {
                continue;
            }
            let (asked, ended) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
            if ended {
                self.reap();
            }
            if asked {
                self.answer();
            }
        }
    }

    /// Reads one message and does what it says. A closed socket means that the supervisor is gone, so everything ends.
    fn answer(&mut self) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut fds: [Option<OwnedFd>; MAX_FDS] = [const { None }; MAX_FDS];
        // SAFETY: plain bytes behind plain words; any content is valid for both.
        let buffer = unsafe {
            std::slice::from_raw_parts_mut(
                self.message.as_mut_ptr().cast::<u8>(),
                size_of_val(&self.message),
            )
        };
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = rustix::net::recvmsg(
            self.control,
            &mut [std::io::IoSliceMut::new(buffer)],
            &mut ancillary,
            flags,
        );
        let length = match received {
            Ok(received) => received.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => 0,
        };
        if length == 0 {
            self.end();
        }
        let mut taken = 0;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                for fd in rights {
                    fds[taken.min(MAX_FDS - 1)] = Some(fd);
                    taken += 1;
                }
            }
        }
        let [kind, stay, ..] = self.message[0].to_ne_bytes();
        let afterwards = if stay == 1 {
            Afterwards::Stay
        } else {
            Afterwards::End
        };
        match kind {
            KIND_EXEC => self.execute_inline(length, &fds, afterwards),
            KIND_EXEC_IN_MEMORY_FILE => self.execute_from_file(&fds, afterwards),
            KIND_SIGNAL => self.signal_main(),
            _ => {}
        }
    }

    fn execute_inline(&mut self, length: usize, fds: &[Option<OwnedFd>], afterwards: Afterwards) {
        let Some(stdio) = Stdio::take(fds) else {
            return;
        };
        let program = self.message.as_mut_ptr();
        self.execute(program, length, stdio, afterwards);
    }

    /// A description too large for a message: mapped privately, so that its offsets can become addresses in place.
    fn execute_from_file(&mut self, fds: &[Option<OwnedFd>], afterwards: Afterwards) {
        let Ok(length) = usize::try_from(self.message[1]) else {
            return;
        };
        let (Some(Some(file)), Some(rest)) = (fds.first(), fds.get(1..)) else {
            return;
        };
        let Some(stdio) = Stdio::take(rest) else {
            return;
        };
        use rustix::mm::{MapFlags, ProtFlags};
        // SAFETY: a new private mapping at an address of the kernel's choice; it overlaps nothing.
        let mapped = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
                file,
                0,
            )
        };
        match mapped {
            Ok(address) => {
                self.execute(address.cast(), length, stdio, afterwards);
                // SAFETY: the mapping made above; the program has called execve or ended, so nobody reads it any more.
                let _ = unsafe { rustix::mm::munmap(address, length) };
            }
            Err(errno) => {
                let _ = protocol::send(
                    self.control,
                    &protocol::exec_failed(Stage::Exec, errno),
                    &[],
                );
            }
        }
    }

    fn execute(
        &mut self,
        program: *mut u64,
        length: usize,
        stdio: Stdio<'_>,
        afterwards: Afterwards,
    ) {
        let started = child::start(
            self.blueprint,
            self.control,
            self.ruleset.as_ref(),
            program,
            length,
            stdio,
        );
        let report = match started {
            Ok(pid) => {
                self.main = Some((pid, afterwards));
                protocol::started(pid)
            }
            Err((stage, errno)) => protocol::exec_failed(stage, errno),
        };
        let _ = protocol::send(self.control, &report, &[]);
    }

    fn signal_main(&self) {
        let Some(pid) = self
            .main
            .and_then(|(pid, _)| rustix::process::Pid::from_raw(pid))
        else {
            return;
        };
        let signal = self.message[1];
        // SAFETY: numbers only; the pid is our own unreaped child, so it cannot have been reused.
        let _ = unsafe {
            raw::syscall(
                libc::SYS_kill,
                [
                    pid.as_raw_nonzero().get().cast_unsigned() as usize,
                    usize::try_from(signal).unwrap_or(0),
                    0,
                    0,
                    0,
                    0,
                ],
            )
        };
    }

    /// Reaps everything that has ended; orphans of the sandbox arrive here too.
    fn reap(&mut self) {
        let mut drained = [0u8; 128];
        let _ = rustix::io::read(&self.signals, &mut drained);
        while let Some((pid, status, cpu_micros)) = reap_one() {
            match self.main {
                Some((main, afterwards)) if main == pid => {
                    self.main = None;
                    let _ = protocol::send(
                        self.control,
                        &protocol::exited(status, cpu_micros, self.routes()),
                        &[],
                    );
                    if afterwards == Afterwards::End {
                        self.end();
                    }
                }
                _ => {}
            }
        }
    }

    fn routes(&self) -> Option<u64> {
        match self.blueprint.routes {
            Routes::Counted => routes::attempts_without_route(),
            Routes::Ignored => None,
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
    // SAFETY: the kernel writes one int and one rusage.
    let pid = unsafe {
        raw::syscall(
            libc::SYS_wait4,
            [
                usize::MAX,
                (&raw mut status).addr(),
                flags,
                (&raw mut usage).addr(),
                0,
                0,
            ],
        )
    };
    let pid = i32::try_from(pid.ok()?).ok().filter(|&pid| pid > 0)?;
    let micros =
        |time: libc::timeval| time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_usec.unsigned_abs();
    Some((pid, status, micros(usage.ru_utime) + micros(usage.ru_stime)))
}
