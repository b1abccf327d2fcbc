//! The program's own process, from its first moment to `execve`. It is made before the sandbox stands, so that what concerns it alone (its network, its
//! capabilities, its filter) is done beside the building, and then waits for the word to go. It borrows init's memory until it executes, while the thread that made it sleeps:
//! the kernel knows such a process and does not pick it when memory runs out, which would take everybody with it who shares that memory. Allocates nothing.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use rustix::process::{DumpableBehavior, Rlimit};
use rustix::thread::{CapabilitySet, CpuSet, UnshareFlags, futex};

use crate::blueprint::{Blueprint, Isolation, NetworkNamespace, Routes};
use crate::clone;
use crate::errand::{Departure, Errand};
use crate::init::Failure;
use crate::program::Program;
use crate::protocol::{self, MAX_FDS, RESULT_FD, Stage};
use crate::{doors, enclose, fixed_time, landlock, network, raw, routes, seccomp};

const BUILDING: u32 = 0;
const BUILT: u32 = 1;
const FAILED: u32 = 2;

/// What init, which builds, and the program's process have to know of each other.
#[derive(Debug)]
pub(crate) struct Building {
    state: AtomicU32,
    /// Set by the program's process as soon as it runs.
    born: AtomicU32,
    /// Device and inode of the new root.
    root: [AtomicU64; 2],
}

impl Building {
    pub(crate) const fn new() -> Self {
        Self {
            state: AtomicU32::new(BUILDING),
            born: AtomicU32::new(0),
            root: [const { AtomicU64::new(0) }; 2],
        }
    }

    /// Waits until the program's process runs. The kernel moves every process that it knows to a new root, and copies the root of a process that is being
    /// made before it knows it: one that is half made while the root changes would keep the host's.
    pub(crate) fn await_birth(&self) {
        while self.born.load(Ordering::Acquire) == 0 {
            let _ = futex::wait(&self.born, futex::Flags::PRIVATE, 0, None);
        }
    }

    pub(crate) fn announce_birth(&self) {
        self.born.store(1, Ordering::Release);
        let _ = futex::wake(&self.born, futex::Flags::PRIVATE, 1);
    }

    pub(crate) fn succeeded(&self, root: [u64; 2]) {
        for (place, value) in self.root.iter().zip(root) {
            place.store(value, Ordering::Relaxed);
        }
        self.end(BUILT);
    }

    pub(crate) fn failed(&self) {
        self.end(FAILED);
    }

    fn end(&self, how: u32) {
        self.state.store(how, Ordering::Release);
        let _ = futex::wake(&self.state, futex::Flags::PRIVATE, 1);
    }

    /// Returns once the sandbox stands. When it could not be built, init has told the supervisor why, and there is nothing to add.
    fn wait(&self) {
        loop {
            match self.state.load(Ordering::Acquire) {
                BUILDING => {
                    let _ = futex::wait(&self.state, futex::Flags::PRIVATE, BUILDING, None);
                }
                BUILT => return,
                _ => raw::exit(127),
            }
        }
    }

    /// Whether this process sees the new root, and sits in it: the last check before anything of the program's runs.
    fn is_entered(&self) -> bool {
        let expected = [
            self.root[0].load(Ordering::Relaxed),
            self.root[1].load(Ordering::Relaxed),
        ];
        [c"/", c"."]
            .into_iter()
            .all(|place| identity_of(place) == Ok(expected))
    }
}

/// Device and inode of a directory.
pub(crate) fn identity_of(path: &CStr) -> Result<[u64; 2], Errno> {
    rustix::fs::stat(path).map(|stat| [stat.st_dev, stat.st_ino])
}

/// What the program's process reads until it executes.
pub(crate) struct Start<'a> {
    pub(crate) blueprint: &'a Blueprint,
    /// There when the word to go has come.
    pub(crate) errand: &'a OnceLock<Errand>,
    pub(crate) control: BorrowedFd<'a>,
    pub(crate) building: &'a Building,
}

impl Start<'_> {
    /// Makes the program's process, puts its pid into `pid`, and returns once it has executed the program, or failed to, which it reports itself.
    pub(crate) fn go(&self, stack: &mut [MaybeUninit<u8>], pid: &AtomicI32) -> Result<(), Errno> {
        let argument = std::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: `enter` keeps to raw system calls; the call returns only after the process has executed or ended, so nothing it uses goes away before.
        unsafe { clone::spawn_until_exec(stack, pid, enter, argument) }
    }
}

/// Where the new process begins. Only ever returns by failing, and says so itself.
extern "C" fn enter(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `go` handed us a live `Start`, and sleeps until we have executed or ended.
    let start = unsafe { &*argument.cast::<Start<'_>>() };
    // First, while the host's /proc is certainly there.
    forget_the_callers_settings_best_effort();
    let network = match start.blueprint.network {
        NetworkNamespace::New => Ok(()),
        NetworkNamespace::Given(identity) => network::check_given(identity),
    };
    start.building.announce_birth();
    let Err((stage, errno)) = network.and_then(|()| become_program(start));
    let report = match stage {
        Stage::Exec | Stage::Cwd => protocol::exec_failed(stage, errno),
        _ => protocol::setup_failed(stage, errno),
    };
    let _ = protocol::send(start.control, &report, &[]);
    raw::exit(127)
}

fn become_program(start: &Start<'_>) -> Result<std::convert::Infallible, Failure> {
    let at = |stage: Stage| move |errno: Errno| (stage, errno);
    let blueprint = start.blueprint;
    let isolated = blueprint.isolation != Isolation::None;
    let _ = rustix::process::setsid();
    if isolated {
        rustix::process::umask(Mode::from_raw_mode(0o022));
        if let Some(fixed) = &blueprint.fixed {
            fixed_time::begin_best_effort(fixed);
            keep_addresses().map_err(at(Stage::Addresses))?;
        }
        if blueprint.network == NetworkNamespace::New {
            network::leave_the_hosts()?;
        }
        doors::open(&blueprint.doors, start.control).map_err(at(Stage::Doors))?;
        // SAFETY: this process is a single thread.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWCGROUP) }
            .map_err(at(Stage::CgroupNamespace))?;
        limit_bounding_set(CapabilitySet::empty()).map_err(at(Stage::Capabilities))?;
        rustix::thread::set_no_new_privs(true).map_err(at(Stage::NoNewPrivs))?;
    }
    // What is left is mostly waiting, and this CPU is free for the supervisor.
    let _ = protocol::send(start.control, &protocol::waiting(), &[]);
    start.building.wait();
    if isolated && !start.building.is_entered() {
        return Err((Stage::OldRoot, Errno::XDEV));
    }
    if blueprint.routes == Routes::Counted {
        routes::send(start.control).map_err(at(Stage::Descriptors))?;
    }
    if let Some(rules) = &blueprint.landlock {
        let ruleset = landlock::ruleset(rules).map_err(at(Stage::Landlock))?;
        landlock::restrict_self(ruleset.as_fd()).map_err(at(Stage::Landlock))?;
    }
    if isolated {
        keep_capabilities(CapabilitySet::empty()).map_err(at(Stage::Capabilities))?;
    }
    // Before the filter, which may keep the program from changing it.
    pin(&blueprint.cpus).map_err(at(Stage::Affinity))?;
    if !blueprint.filter.is_empty() {
        install_filter(start).map_err(at(Stage::Seccomp))?;
    }
    let (kind, fds) = loop {
        let (kind, fds) = await_word(start.control).map_err(at(Stage::Descriptors))?;
        if kind != protocol::KIND_JOIN {
            break (kind, fds);
        }
        join(&fds).map_err(at(Stage::Cgroup))?;
        protocol::send(start.control, &protocol::joined(), &[]).map_err(at(Stage::Descriptors))?;
    };
    let [Some(stdin), Some(stdout), Some(stderr), rest @ ..] = &fds else {
        return Err((Stage::Descriptors, Errno::BADMSG));
    };
    let (result, joins) = match (kind, rest.as_slice()) {
        (protocol::KIND_GO_WITH_RESULT, [Some(result), joins @ ..]) => (Some(result), joins),
        (_, joins) => (None, joins),
    };
    let Some(errand) = start.errand.get() else {
        return Err((Stage::Exec, Errno::INVAL));
    };
    join(joins).map_err(at(Stage::Cgroup))?;
    rustix::process::chdir(errand.program.cwd()).map_err(at(Stage::Cwd))?;
    streams_onto_standard([stdin, stdout, stderr]).map_err(at(Stage::Descriptors))?;
    if let Some(result) = result {
        result_onto_its_number(result).map_err(at(Stage::Descriptors))?;
    }
    if let Some(departure) = &errand.departure {
        depart(blueprint, departure).map_err(at(Stage::Identity))?;
    }
    // Last, since the lowest limit on descriptors leaves no room for ours.
    for (resource, value) in &errand.rlimits {
        let limit = Rlimit {
            current: Some(*value),
            maximum: Some(*value),
        };
        rustix::process::setrlimit(*resource, limit).map_err(at(Stage::Rlimits))?;
    }
    unblock_signals();
    let _ = protocol::send(start.control, &protocol::started(now_nanos()), &[]);
    Err((Stage::Exec, execute(&errand.program)))
}

/// Enters the cgroups whose files these are. The kernel asks whether their opener may, and that is the supervisor.
fn join(files: &[Option<OwnedFd>]) -> Result<(), Errno> {
    for file in files.iter().flatten() {
        rustix::io::write(file, b"0")?;
    }
    Ok(())
}

/// After the cgroups, which only we may enter.
fn depart(blueprint: &Blueprint, departure: &Departure) -> Result<(), Errno> {
    for given in &blueprint.trees {
        rustix::io::fcntl_setfd(given, rustix::io::FdFlags::empty())?;
    }
    enclose::leave_session_keyring_best_effort();
    match departure.identity {
        Some((uid, gid)) => enclose::take_identity(uid, gid),
        None => Ok(()),
    }
}

/// What a process inherits beyond signals and descriptors: a caller that the kernel may not kill for want of memory, or whose addresses are not random, would
/// pass that on.
fn forget_the_callers_settings_best_effort() {
    // SAFETY: a number only.
    let _ = unsafe { raw::syscall(libc::SYS_personality, [0; 6]) };
    write_own_setting_best_effort(c"/proc/self/oom_score_adj", b"0");
}

/// A process that has changed its identity is not dumpable, and then its /proc files belong to root.
pub(crate) fn write_own_setting_best_effort(path: &CStr, value: &[u8]) {
    let dumpable = rustix::process::dumpable_behavior();
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable);
    if let Ok(file) = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::io::write(&file, value);
    }
    if !matches!(dumpable, Ok(DumpableBehavior::Dumpable)) {
        let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// No random addresses, from the next program on.
fn keep_addresses() -> Result<(), Errno> {
    const ADDR_NO_RANDOMIZE: usize = 0x0004_0000;
    // SAFETY: a number only.
    unsafe { raw::syscall(libc::SYS_personality, [ADDR_NO_RANDOMIZE, 0, 0, 0, 0, 0]) }.map(drop)
}

/// Waits for the supervisor's word, which brings the program's streams and the version 1 cgroups that it enters, or version 2 cgroups to wait in. A supervisor that is gone sends none.
fn await_word(control: BorrowedFd<'_>) -> Result<(u8, [Option<OwnedFd>; MAX_FDS]), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match rustix::net::recvmsg(
            control,
            &mut [std::io::IoSliceMut::new(&mut byte)],
            &mut ancillary,
            flags,
        ) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    if received.bytes == 0 {
        raw::exit(1);
    }
    // Whoever lacks a file of a group would run outside of it.
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::BADMSG);
    }
    let mut fds: [Option<OwnedFd>; MAX_FDS] = [const { None }; MAX_FDS];
    let mut places = fds.iter_mut();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            for (fd, place) in rights.zip(&mut places) {
                *place = Some(fd);
            }
        }
    }
    Ok((byte[0], fds))
}

/// Nothing that is executed from here on can gain a capability other than these, whatever its file says.
pub(crate) fn limit_bounding_set(kept: CapabilitySet) -> Result<(), Errno> {
    for capability in 0..64 {
        if kept.bits() & (1 << capability) != 0 {
            continue;
        }
        let args = [
            libc::PR_CAPBSET_DROP.cast_unsigned() as usize,
            capability,
            0,
            0,
            0,
            0,
        ];
        // SAFETY: numbers only.
        match unsafe { raw::syscall(libc::SYS_prctl, args) } {
            Ok(_) => {}
            // Past the last capability that this kernel knows.
            Err(Errno::INVAL) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

pub(crate) fn keep_capabilities(kept: CapabilitySet) -> Result<(), Errno> {
    let sets = rustix::thread::CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)
}

/// Installs the filter; its listener, if there is one, goes to the supervisor and is closed here.
fn install_filter(start: &Start<'_>) -> Result<(), Errno> {
    let Some(listener) = seccomp::install(&start.blueprint.filter, start.blueprint.listener)?
    else {
        return Ok(());
    };
    // SAFETY: a new descriptor that the kernel has just made for us.
    let listener = unsafe { OwnedFd::from_raw_fd(listener) };
    protocol::send(start.control, &protocol::listener(), &[listener.as_fd()])
}

fn pin(cpus: &[usize]) -> Result<(), Errno> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu);
    }
    rustix::thread::sched_setaffinity(None, &set)
}

/// The received descriptors are all above 2, where /dev/null sits, so the order cannot matter. Everything else closes on `execve`.
fn streams_onto_standard(streams: [&OwnedFd; 3]) -> Result<(), Errno> {
    for (stream, standard) in streams.iter().zip(0..) {
        let from = stream.as_raw_fd().cast_unsigned() as usize;
        // SAFETY: replaces a standard descriptor, which no type in this process owns.
        unsafe { raw::syscall(libc::SYS_dup3, [from, standard, 0, 0, 0, 0])? };
    }
    Ok(())
}

/// Last of all: another of the received descriptors may have this number, and be of no use any more. The control socket never has it.
fn result_onto_its_number(result: &OwnedFd) -> Result<(), Errno> {
    let from = result.as_raw_fd();
    if from == RESULT_FD {
        return rustix::io::fcntl_setfd(result, rustix::io::FdFlags::empty());
    }
    let (from, to) = (
        from.cast_unsigned() as usize,
        RESULT_FD.cast_unsigned() as usize,
    );
    // SAFETY: whatever has this number belongs to nothing that is used from here on: this process executes or ends.
    unsafe { raw::syscall(libc::SYS_dup3, [from, to, 0, 0, 0, 0])? };
    Ok(())
}

fn unblock_signals() {
    let nothing: u64 = 0;
    let how = libc::SIG_SETMASK.cast_unsigned() as usize;
    let at = (&raw const nothing).expose_provenance();
    // SAFETY: the kernel reads 8 bytes of mask.
    let _ = unsafe { raw::syscall(libc::SYS_rt_sigprocmask, [how, at, 0, 8, 0, 0]) };
}

/// The clock that the supervisor's deadlines run on.
fn now_nanos() -> u64 {
    let (seconds, nanos) = raw::clock(libc::CLOCK_MONOTONIC);
    seconds * 1_000_000_000 + nanos
}

/// Tries each candidate as a shell does: a file that is there and cannot be executed is remembered, one that is missing is not.
fn execute(program: &Program) -> Errno {
    let mut remembered = Errno::NOENT;
    let (argv, env) = (
        program.argv().expose_provenance(),
        program.env().expose_provenance(),
    );
    for candidate in program.candidates() {
        let path = candidate.as_ptr().expose_provenance();
        // SAFETY: a NUL-terminated path and two null-terminated tables of NUL-terminated strings.
        match unsafe { raw::syscall(libc::SYS_execve, [path, argv, env, 0, 0, 0]) } {
            Err(Errno::NOENT | Errno::NOTDIR) | Ok(_) => {}
            Err(Errno::ACCESS) => remembered = Errno::ACCESS,
            Err(errno) => return errno,
        }
    }
    remembered
}
