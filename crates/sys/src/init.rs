//! The init inside a sandbox: process 1 of its pid namespace. Builds the sandbox, starts programs when told to, reaps whatever ends, and ends itself, and
//! with it everything inside, when the supervisor's end of the control socket closes.
//!
//! It is a copy of the supervisor that never executes anything else, so it makes raw system calls only: no allocation, no lock. It holds nothing that
//! the sandbox may not see except its own memory, which is not dumpable and so cannot be read from inside.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use rustix::process::{DumpableBehavior, Signal};
use rustix::thread::UnshareFlags;

use crate::blueprint::{Blueprint, Isolation, Privileged};
use crate::child::{self, Stdio};
use crate::protocol::{
    self, Afterwards, INLINE_MAX, KIND_EXEC, KIND_EXEC_IN_MEMORY_FILE, KIND_MAPPED, KIND_SIGNAL,
    MAX_FDS, Stage,
};
use crate::steps::{self, Built};
use crate::{descendants, landlock, raw, signals};

/// A failure inside: where, and what the kernel said.
pub(crate) type Failure = (Stage, Errno);

/// Becomes the sandbox's init. `keep` holds the descriptors that survive, sorted: the control socket and prepared mounts.
pub(crate) fn run(blueprint: &Blueprint, control: BorrowedFd<'_>, keep: &[i32]) -> ! {
    let server = build(blueprint, control, keep).and_then(|(built, ruleset)| {
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

fn build(
    blueprint: &Blueprint,
    control: BorrowedFd<'_>,
    keep: &[i32],
) -> Result<(Built, Option<OwnedFd>), Failure> {
    reset_signals();
    close_all_but(keep).map_err(|errno| (Stage::Descriptors, errno))?;
    let _ = rustix::process::setsid();
    match blueprint.isolation {
        Isolation::None => {
            await_mapping(control)?;
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
                .map_err(|errno| (Stage::Identity, errno))?;
        }
        Isolation::Namespaces(identity) => {
            new_network()?;
            await_mapping(control)?;
            if identity.privileged == Privileged::Yes {
                take_identity(identity.inside_uid, identity.inside_gid)
                    .map_err(|errno| (Stage::Identity, errno))?;
            }
            leave_session_keyring_best_effort();
            rustix::process::umask(Mode::empty());
        }
    }
    let built = steps::execute(&blueprint.steps, &blueprint.trees)
        .map_err(|(index, errno)| (Stage::Step(u32::try_from(index).unwrap_or(u32::MAX)), errno))?;
    let ruleset = match &blueprint.landlock {
        Some(rules) => Some(landlock::ruleset(rules).map_err(|errno| (Stage::Landlock, errno))?),
        None => None,
    };
    if blueprint.isolation != Isolation::None {
        rustix::process::umask(Mode::from_raw_mode(0o022));
        empty_bounding_set().map_err(|errno| (Stage::Capabilities, errno))?;
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(|errno| (Stage::Identity, errno))?;
    }
    Ok((built, ruleset))
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

/// All signals blocked (they are read from a descriptor), all dispositions default: what the supervisor ignores, such as SIGPIPE, a program must not.
fn reset_signals() {
    let everything: u64 = u64::MAX;
    let default = [0usize; 4]; // struct kernel_sigaction with SIG_DFL, no flags, empty mask
    // SAFETY: the kernel reads 8 bytes of mask.
    let _ = unsafe {
        raw::syscall(
            libc::SYS_rt_sigprocmask,
            [
                libc::SIG_SETMASK.cast_unsigned() as usize,
                (&raw const everything).addr(),
                0,
                8,
                0,
                0,
            ],
        )
    };
    for signal in 1..32 {
        // SAFETY: the kernel reads one kernel_sigaction (32 bytes) and writes nothing. SIGKILL and SIGSTOP answer EINVAL, as they should.
        let _ = unsafe {
            raw::syscall(
                libc::SYS_rt_sigaction,
                [signal, default.as_ptr().addr(), 0, 8, 0, 0],
            )
        };
    }
}

/// Closes every inherited descriptor but `keep`, and puts /dev/null on the standard ones.
fn close_all_but(keep: &[i32]) -> Result<(), Errno> {
    let null = rustix::fs::openat(
        CWD,
        c"/dev/null",
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    for standard in 0..3 {
        // SAFETY: duplicates a descriptor that we hold onto a standard one, which nothing in this process owns through a type.
        unsafe {
            raw::syscall(
                libc::SYS_dup3,
                [
                    null.as_raw_fd().cast_unsigned() as usize,
                    standard,
                    libc::O_CLOEXEC.cast_unsigned() as usize,
                    0,
                    0,
                    0,
                ],
            )?
        };
    }
    // `null` itself falls to the range closed below.
    std::mem::forget(null);
    let mut from: u32 = 3;
    for &fd in keep {
        let fd = fd.cast_unsigned();
        if fd > from {
            close_range(from, fd - 1)?;
        }
        from = fd + 1;
    }
    close_range(from, u32::MAX)
}

fn close_range(first: u32, last: u32) -> Result<(), Errno> {
    // SAFETY: no type in this process still owns a descriptor in the range and will use it: we are a fresh copy and only `keep` is used from here on.
    unsafe {
        raw::syscall(
            libc::SYS_close_range,
            [first as usize, last as usize, 0, 0, 0, 0],
        )
    }
    .map(drop)
}

/// A network namespace of our own, with loopback up: test runners and build servers talk to themselves over it.
fn new_network() -> Result<(), Failure> {
    // SAFETY: this process is a single thread.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
        .map_err(|errno| (Stage::NetworkNamespace, errno))?;
    loopback_up().map_err(|errno| (Stage::Loopback, errno))
}

fn loopback_up() -> Result<(), Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // struct ifreq: 16 bytes of name, then a union of 24 bytes that starts with the flags.
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"lo");
    let flags = libc::IFF_UP | libc::IFF_RUNNING;
    request[16..18].copy_from_slice(&u16::try_from(flags).unwrap_or_default().to_ne_bytes());
    let args = [
        socket.as_raw_fd().cast_unsigned() as usize,
        libc::SIOCSIFFLAGS as usize,
        request.as_mut_ptr().addr(),
        0,
        0,
        0,
    ];
    // SAFETY: the kernel reads one ifreq (40 bytes).
    unsafe { raw::syscall(libc::SYS_ioctl, args) }.map(drop)
}

/// Waits until the parent has written our id maps. A parent that is gone has written none.
fn await_mapping(control: BorrowedFd<'_>) -> Result<(), Failure> {
    let mut byte = [0u8; 1];
    match rustix::net::recv(control, &mut byte, RecvFlags::empty()) {
        Ok((1, _)) if byte[0] == KIND_MAPPED => Ok(()),
        Ok(_) => raw::exit(1),
        Err(errno) => Err((Stage::Identity, errno)),
    }
}

fn take_identity(uid: u32, gid: u32) -> Result<(), Errno> {
    let uid = rustix::process::Uid::from_raw(uid);
    let gid = rustix::process::Gid::from_raw(gid);
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

/// The caller's session keyring stays outside. Best effort: where a container forbids the call, the filter forbids it to programs too.
fn leave_session_keyring_best_effort() {
    const JOIN_SESSION_KEYRING: usize = 1;
    // SAFETY: a null name asks for a new anonymous keyring; nothing is read.
    let _ = unsafe { raw::syscall(libc::SYS_keyctl, [JOIN_SESSION_KEYRING, 0, 0, 0, 0, 0]) };
}

/// Nothing that is executed from here on can gain a capability, whatever its file says.
fn empty_bounding_set() -> Result<(), Errno> {
    for capability in 0..64 {
        // SAFETY: numbers only.
        let dropped = unsafe {
            raw::syscall(
                libc::SYS_prctl,
                [
                    libc::PR_CAPBSET_DROP.cast_unsigned() as usize,
                    capability,
                    0,
                    0,
                    0,
                    0,
                ],
            )
        };
        match dropped {
            Ok(_) => {}
            // Past the last capability that this kernel knows.
            Err(Errno::INVAL) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
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
                    let _ =
                        protocol::send(self.control, &protocol::exited(status, cpu_micros), &[]);
                    if afterwards == Afterwards::End {
                        self.end();
                    }
                }
                _ => {}
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
