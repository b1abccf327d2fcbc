//! A program's process that was not made here: a copy of an interpreter that waits outside (see the engine's `zygote`) enters a sandbox that stands. Init shows it the entrances; it is a child of the
//! supervisor, which the kernel tells how it ended.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use rustix::thread::CapabilitySet;

use crate::blueprint::{Blueprint, Isolation, NetworkNamespace, Privileged, Routes};
use crate::init::{Failure, Site};
use crate::protocol::{self, Event, MAX_FDS, Stage, WaitStatus};
use crate::{child, landlock, raw};

/// What a process from elsewhere needs to come in.
#[derive(Debug)]
pub struct Entrances {
    /// Namespaces, in the order in which they are to be entered, and the Landlock rules where there are any.
    pub fds: Vec<OwnedFd>,
    /// Device and inode of the sandbox's root, by which it knows that it is inside.
    pub root: [u64; 2],
}

/// The namespaces of an init, opened while the host's /proc is there. In the order in which they are to be entered: rights in all of them come with the first.
pub(crate) struct Namespaces([OwnedFd; 5]);

impl Namespaces {
    pub(crate) fn open() -> Result<Self, Errno> {
        let open = |path: &CStr| {
            rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        };
        Ok(Self([
            open(c"/proc/self/ns/user")?,
            open(c"/proc/self/ns/mnt")?,
            open(c"/proc/self/ns/pid")?,
            open(c"/proc/self/ns/ipc")?,
            open(c"/proc/self/ns/uts")?,
        ]))
    }

    /// Sends them to the supervisor, with the Landlock rules where there are any: their paths are those of the sandbox, which stands now.
    pub(crate) fn show(self, site: &Site<'_>, root: [u64; 2]) -> Result<(), Failure> {
        let rules = site.blueprint.landlock.as_ref();
        let rules = rules.map(landlock::ruleset).transpose();
        let rules = rules.map_err(|errno| (Stage::Landlock, errno))?;
        let mut fds = [site.control; MAX_FDS];
        let mut count = 0;
        for (place, fd) in fds.iter_mut().zip(self.0.iter().chain(&rules)) {
            *place = fd.as_fd();
            count += 1;
        }
        let fds = fds.get(..count).unwrap_or_default();
        protocol::send(site.control, &protocol::namespaces(root), fds)
            .map_err(|errno| (Stage::Descriptors, errno))
    }
}

/// Whether somebody has the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    Yes,
    No,
}

/// The program's process, a child of ours.
#[derive(Debug)]
pub struct Guest {
    /// Gone once it was reaped.
    pidfd: Option<OwnedFd>,
    pid: Option<u32>,
    errand: Vec<u8>,
}

impl Guest {
    pub fn new(pidfd: OwnedFd) -> Self {
        Self {
            pid: pid_of(&pidfd),
            pidfd: Some(pidfd),
            errand: Vec::new(),
        }
    }

    /// As the caller sees it.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid
    }

    pub(crate) fn errand(&self) -> &[u8] {
        &self.errand
    }

    pub(crate) fn set_errand(&mut self, errand: Vec<u8>) {
        self.errand = errand;
    }

    /// Readable when it has ended; `None` when that is known.
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// How it ended and the CPU time of it and all that it had waited for, told once.
    pub fn ended(&mut self, waiting: Waiting) -> Option<(WaitStatus, Duration)> {
        let pidfd = self.pidfd.as_ref()?;
        let told = match wait_for(pidfd, waiting) {
            Ok(Some(told)) => Some(told),
            Ok(None) => return None,
            // Somebody else has reaped it, and nobody will ever know.
            Err(_) => None,
        };
        self.pidfd = None;
        told
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Some(pidfd) = &self.pidfd {
            let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
            self.ended(Waiting::Yes);
        }
    }
}

fn pid_of(pidfd: &OwnedFd) -> Option<u32> {
    let path = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let told = std::fs::read_to_string(path).ok()?;
    let pid = told.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    pid.trim().parse().ok()
}

/// Sees the end of every child in this process group that has ended, whoever made it: copies that were ended before anybody told us of them.
pub fn reap_strays(group: Pid) {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    while let Ok(Some(_)) = rustix::process::waitid(WaitId::Pgid(Some(group)), ended) {}
}

/// Ends every process of the group and sees the end of those that are our children.
pub fn end_group(group: Pid) {
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    loop {
        match rustix::process::waitid(WaitId::Pgid(Some(group)), WaitIdOptions::EXITED) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// `waitid`, whose fifth argument no library passes on.
fn wait_for(pidfd: &OwnedFd, waiting: Waiting) -> Result<Option<(WaitStatus, Duration)>, Errno> {
    // SAFETY: all-zero is a valid value of both.
    let (mut info, mut usage): (libc::siginfo_t, libc::rusage) = unsafe { std::mem::zeroed() };
    let flags = match waiting {
        Waiting::Yes => libc::WEXITED,
        Waiting::No => libc::WEXITED | libc::WNOHANG,
    };
    let arguments = [
        libc::P_PIDFD as usize,
        pidfd.as_raw_fd().cast_unsigned() as usize,
        (&raw mut info).expose_provenance(),
        (flags | libc::__WALL).cast_unsigned() as usize,
        (&raw mut usage).expose_provenance(),
        0,
    ];
    loop {
        // SAFETY: the kernel writes one siginfo and one rusage.
        match unsafe { raw::syscall(libc::SYS_waitid, arguments) } {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    // SAFETY: what `waitid` fills in are these two; zero says that nobody has ended.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    let status = match info.si_code {
        libc::CLD_EXITED => WaitStatus::Exited { code: status },
        _ => WaitStatus::Signaled { signal: status },
    };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs())
            + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    Ok(Some((status, time(usage.ru_utime) + time(usage.ru_stime))))
}

/// The socket to an interpreter that waits.
#[derive(Debug)]
pub struct Line {
    socket: OwnedFd,
}

impl Line {
    /// Our end, and the one that becomes the interpreter's standard input.
    pub fn new() -> Result<(Self, OwnedFd), Errno> {
        let (socket, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self { socket }, theirs))
    }

    pub fn say(&self, words: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        protocol::send(self.socket.as_fd(), words, fds)
    }

    /// Whether anybody is at the other end.
    pub fn is_open(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        rustix::event::poll(&mut fds, Some(&Timespec::default())) == Ok(0)
    }

    /// The next answer, waited for until `until`.
    pub fn hear(&self, until: Instant) -> Result<Event, Errno> {
        loop {
            match protocol::receive(self.socket.as_fd()) {
                Ok(Some(event)) => return Ok(event),
                Ok(None) => return Err(Errno::PIPE),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Errno::TIMEDOUT);
            }
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            let timeout = Timespec::try_from(left).ok();
            let _ = rustix::event::poll(&mut fds, timeout.as_ref());
        }
    }
}

/// What a guest must know of the sandbox's blueprint, in the form that it reads: who it is, whether its network's counters are wanted and whether it is given one, its CPUs; then the
/// filter.
pub fn describe(blueprint: &Blueprint, root: [u64; 2]) -> Vec<u8> {
    let (uid, gid, privileged) = match blueprint.isolation {
        Isolation::Namespaces(identity) => (
            identity.inside_uid,
            identity.inside_gid,
            identity.privileged == Privileged::Yes,
        ),
        Isolation::None => (0, 0, false),
    };
    let routes = blueprint.routes == Routes::Counted;
    let [device, inode] = root;
    let given = blueprint.network != NetworkNamespace::New;
    let [privileged, routes, given] = [privileged, routes, given].map(u8::from);
    let mut text = format!("{uid} {gid} {privileged} {routes} {given} {device} {inode}");
    for cpu in &blueprint.cpus {
        text.push_str(&format!(" {cpu}"));
    }
    text.push('\n');
    let mut bytes = text.into_bytes();
    for instruction in &blueprint.filter {
        bytes.extend(instruction.code.to_ne_bytes());
        bytes.extend([instruction.jt, instruction.jf]);
        bytes.extend(instruction.k.to_ne_bytes());
    }
    bytes
}

/// What it takes to have a child born in the pid namespace of a sandbox. The child gives it up with the first namespace that it enters.
const TO_SEND: CapabilitySet = CapabilitySet::SYS_ADMIN;

/// Has a program that will wait begin without what it would inherit: signals that are ignored, a personality, all other capabilities, descriptors. Before it executes, since an interpreter runs much
/// before its first line is ours. Fails for whoever is not privileged.
pub fn confine(command: &mut std::process::Command) {
    // SAFETY: raw system calls only, between fork and exec.
    unsafe { command.pre_exec(|| leave_everything().map_err(Into::into)) };
}

fn leave_everything() -> Result<(), Errno> {
    const CLOSE_ON_EXEC: usize = 4;
    let default = [0usize; 4]; // struct kernel_sigaction with SIG_DFL, no flags, empty mask
    for signal in 1..=64 {
        // SAFETY: the kernel reads one kernel_sigaction and writes nothing. SIGKILL and SIGSTOP answer EINVAL, as they should.
        let _ = unsafe {
            raw::syscall(
                libc::SYS_rt_sigaction,
                [signal, default.as_ptr().expose_provenance(), 0, 8, 0, 0],
            )
        };
    }
    // SAFETY: numbers only.
    unsafe {
        let _ = raw::syscall(libc::SYS_personality, [0; 6]);
        let last = u32::MAX as usize;
        raw::syscall(libc::SYS_close_range, [3, last, CLOSE_ON_EXEC, 0, 0, 0])?;
    }
    child::limit_bounding_set(TO_SEND)?;
    rustix::thread::set_no_new_privs(true)?;
    child::keep_capabilities(TO_SEND)
}

/// The numbers of the system calls that an interpreter makes, of the messages it exchanges and of the stages it passes, as it reads them.
pub fn numbers() -> String {
    let calls = [
        ("capset", libc::SYS_capset),
        ("clone3", libc::SYS_clone3),
        ("close_range", libc::SYS_close_range),
        ("keyctl", libc::SYS_keyctl),
        ("landlock_restrict_self", libc::SYS_landlock_restrict_self),
        ("personality", libc::SYS_personality),
        ("prctl", libc::SYS_prctl),
        ("rt_sigaction", libc::SYS_rt_sigaction),
        ("seccomp", libc::SYS_seccomp),
        ("setns", libc::SYS_setns),
        ("unshare", libc::SYS_unshare),
    ];
    let stages = [
        ("descriptors", Stage::Descriptors),
        ("network", Stage::NetworkNamespace),
        ("loopback", Stage::Loopback),
        ("identity", Stage::Identity),
        ("root", Stage::OldRoot),
        ("landlock", Stage::Landlock),
        ("capabilities", Stage::Capabilities),
        ("clone", Stage::Clone),
        ("cgroup", Stage::Cgroup),
        ("cgroup-namespace", Stage::CgroupNamespace),
        ("rlimits", Stage::Rlimits),
        ("affinity", Stage::Affinity),
        ("cwd", Stage::Cwd),
        ("privileges", Stage::NoNewPrivs),
        ("seccomp", Stage::Seccomp),
        ("exec", Stage::Exec),
    ];
    let most = [format!("most-fds={MAX_FDS}")];
    let calls = calls.map(|(name, number)| format!("{name}={number}"));
    let kinds = protocol::KINDS_OF_GUESTS.map(|(name, kind)| format!("kind.{name}={kind}"));
    let stages = stages.map(|(name, stage)| format!("stage.{name}={}", stage.to_wire()));
    let words: Vec<String> = most
        .into_iter()
        .chain(calls)
        .chain(kinds)
        .chain(stages)
        .collect();
    words.join(" ")
}
