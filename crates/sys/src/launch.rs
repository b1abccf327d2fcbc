//! The supervisor's side of a sandbox: clones its init, gives it its identity, and talks to it.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::blueprint::{Blueprint, Identity, Isolation, Privileged};
use crate::clone::{self, Forked, Stack};
use crate::errand::Errand;
use crate::guest::{self, Guest, Waiting};
use crate::init::{self, Order, Stacks};
use crate::made_network::MadeNetwork;
use crate::protocol::{self, Event, Given, RESULT_FD, WaitStatus};

/// A sandbox whose init runs. Dropping it closes the lifeline, so nothing of it can outlive its owner.
#[derive(Debug)]
pub struct Sandbox {
    pid: Pid,
    pidfd: OwnedFd,
    control: OwnedFd,
    reaped: bool,
    /// A hold on its mounts: while there is one, init can end without taking them down.
    _mounts: Option<OwnedFd>,
    /// Init's end of the control socket, for a program's process that comes from elsewhere.
    door: Option<OwnedFd>,
    guest: Option<Guest>,
    /// The process group from which it comes.
    guests_group: Option<Pid>,
    /// What init and the program's process read, for as long as they live: for ever, where their end could not be seen.
    inner: ManuallyDrop<Box<Inner>>,
}

/// Everything that init may look at in memory that it shares with us.
struct Inner {
    blueprint: Blueprint,
    /// Set once, before the word to go, by us; looked at after it, by the program's process.
    errand: OnceLock<Errand>,
    order: Order,
    keep: Vec<i32>,
    /// Ours to close once init has its own copy.
    control: i32,
    /// Init's own stack is above what is lent of it.
    stack: Stack,
    lent: Stacks,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("blueprint", &self.blueprint)
            .finish_non_exhaustive()
    }
}

/// Enough for unoptimised builds: init's own frames, the stacks of the thread beside it and of the program's process, and the table of processes that a run without a pid
/// namespace ends with. Only touched pages are real.
const STACK: usize = 1024 * 1024;
/// How long an init may take to end because of a guest, and how often that is looked for.
const GUEST_PATIENCE: Duration = Duration::from_secs(2);
const GUEST_LOOK: Duration = Duration::from_millis(20);
/// How long an init without a pid namespace may take to end what is below it when nobody waits for that.
const PARTING: Duration = Duration::from_secs(5);
const LENT: usize = Stacks::BESIDE + Stacks::PROGRAM;

/// Why no sandbox could be cloned.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("cannot make the control socket: {0}")]
    Socket(Errno),
    #[error("cannot clone a process into new namespaces: {0}")]
    Clone(Errno),
    #[error("cannot write {file} of the new user namespace: {errno}")]
    Map { file: &'static str, errno: Errno },
}

/// The sandbox has its errand already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sandbox is in use already")]
pub struct Entrusted;

/// Whether a signal found its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    Sent,
    /// It had already ended.
    Gone,
}

/// Clones the init of a new sandbox, in the version 2 cgroup if one is given, and in the network that its blueprint names, if that names one. It builds itself while this returns; [`Sandbox::receive`] tells how it went.
pub fn launch(
    blueprint: Blueprint,
    errand: Errand,
    cgroup: Option<BorrowedFd<'_>>,
    network: Option<&MadeNetwork>,
) -> Result<Sandbox, LaunchError> {
    let order = Order::AtOnce;
    start(blueprint, OnceLock::from(errand), order, cgroup, network)
}

/// The same for a sandbox that stands and waits: [`Sandbox::entrust`] says later what for. Init shares our memory, so it is in no version 2 cgroup; the program's process can be, by
/// [`Sandbox::join`]. It is born in the network that its blueprint names, if that names one.
pub fn park(blueprint: Blueprint, network: Option<&MadeNetwork>) -> Result<Sandbox, LaunchError> {
    start(blueprint, OnceLock::new(), Order::AtOnce, None, network)
}

/// The same without a process for the program: one comes from elsewhere, by [`Sandbox::take_door`] and what [`Event::Namespaces`] brings.
pub fn park_for_a_guest(
    blueprint: Blueprint,
    network: Option<&MadeNetwork>,
) -> Result<Sandbox, LaunchError> {
    start(blueprint, OnceLock::new(), Order::ForAGuest, None, network)
}

fn start(
    blueprint: Blueprint,
    errand: OnceLock<Errand>,
    order: Order,
    cgroup: Option<BorrowedFd<'_>>,
    network: Option<&MadeNetwork>,
) -> Result<Sandbox, LaunchError> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(LaunchError::Socket)?;
    let mut keep: Vec<i32> = blueprint.trees.iter().map(AsRawFd::as_raw_fd).collect();
    keep.push(theirs.as_raw_fd());
    keep.sort_unstable();
    if keep.first().is_some_and(|&fd| fd <= RESULT_FD) {
        // A caller without standard streams: init would put /dev/null over what it needs, or the program its result channel.
        return Err(LaunchError::Socket(Errno::BADF));
    }
    let identity = match blueprint.isolation {
        Isolation::Namespaces(identity) => Some(identity),
        Isolation::None => None,
    };
    let control = theirs.as_raw_fd();
    let mut stack = clone::stack(STACK);
    let lent = Stacks::lend(&mut stack);
    let mut inner = Box::new(Inner {
        blueprint,
        errand,
        order,
        keep,
        control,
        stack,
        lent,
    });
    // Not sooner: a socket belongs to the network that it was made in.
    let cloned = match network {
        None => clone_init(&mut inner, cgroup),
        Some(network) => network.within(|| clone_init(&mut inner, cgroup)).flatten(),
    };
    let (pid, pidfd) = cloned.map_err(LaunchError::Clone)?;
    // The descriptor tables are separate from here on: init keeps its copy.
    let door = (order == Order::ForAGuest).then_some(theirs);
    let sandbox = Sandbox {
        pid,
        pidfd,
        control: ours,
        reaped: false,
        _mounts: None,
        door,
        guest: None,
        guests_group: None,
        inner: ManuallyDrop::new(inner),
    };
    if let Some(identity) = identity {
        write_maps(pid, &identity)?;
    }
    // An init that is already gone has left its reason in the socket.
    let _ = protocol::send(sandbox.control.as_fd(), &[protocol::KIND_MAPPED], &[]);
    Ok(sandbox)
}

/// In memory shared with us, which costs least; but not in a version 2 group of its own: were the kernel to kill init there for want of memory, it would kill
/// everything that shares its memory, and that is us.
fn clone_init(inner: &mut Inner, cgroup: Option<BorrowedFd<'_>>) -> Result<(Pid, OwnedFd), Errno> {
    let namespaces = namespaces(inner.blueprint.isolation);
    if cgroup.is_some() {
        return match clone::fork_into(u64::from(namespaces.cast_unsigned()), cgroup)? {
            Forked::Child => become_init(inner, Order::OneAfterTheOther),
            Forked::Parent { pid, pidfd } => Ok((pid, pidfd)),
        };
    }
    let mut stack = std::mem::take(&mut inner.stack);
    let argument = std::ptr::from_ref(inner).cast_mut().cast();
    let own = stack.get_mut(LENT..).unwrap_or_default();
    // SAFETY: init makes raw system calls only. What it reads is behind a box that `Sandbox` frees only after it has reaped init.
    let cloned = unsafe { clone::spawn_sharing_memory(own, namespaces, begin, argument) };
    inner.stack = stack;
    cloned
}

extern "C" fn begin(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `clone_init` handed us a live `Inner`, of which only `stack` changes afterwards, and that we do not look at, and `errand`, which may be set once from another process.
    let inner = unsafe { &*argument.cast::<Inner>() };
    // Without walls there is nothing to build meanwhile; and a tool that wants to end with its parent must have one that stays, not a thread that has only started it.
    // Nor where numbers count: the thread would have one of them.
    let order = match inner.blueprint.isolation {
        Isolation::Namespaces(_) if inner.blueprint.fixed.is_some() => Order::OneAfterTheOther,
        Isolation::Namespaces(_) => inner.order,
        Isolation::None => Order::OneAfterTheOther,
    };
    become_init(inner, order)
}

/// Only dropped when something panics: what it stands in never returns.
struct EndOnUnwind;

impl Drop for EndOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// In a version 2 group, whatever helps init is counted there, against the program's processes: then it works alone.
fn become_init(inner: &Inner, order: Order) -> ! {
    // In a copy of us, unwinding would come out as a second supervisor.
    let _never = EndOnUnwind;
    // SAFETY: this process's own copy of the descriptor, which nothing in it closes.
    let control = unsafe { BorrowedFd::borrow_raw(inner.control) };
    let task = (&inner.blueprint, &inner.errand);
    init::run(task, control, &inner.keep, inner.lent, order)
}

impl Sandbox {
    /// From now on its mounts are taken down when this value goes, and not while init ends, for which whoever waits for that would wait too. Where the kernel does not allow it, all stays as it is.
    pub fn hold_mounts_best_effort(&mut self) {
        let path = format!("/proc/{}/ns/mnt", self.pid());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        self._mounts = rustix::fs::openat(CWD, path, flags, Mode::empty()).ok();
    }

    /// Sleeps until init has anything to say, or a guest has ended, or for `at_most`. Nothing is read.
    pub fn await_word(&self, at_most: Duration) {
        let guest = self.guest_pidfd();
        let mut fds: Vec<PollFd<'_>> = std::iter::once(self.control.as_fd())
            .chain(guest)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeout = Timespec::try_from(at_most).ok();
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
    }

    /// Says what a parked sandbox is for, once. One that knows already keeps to that.
    pub fn entrust(&self, errand: Errand) -> Result<(), Entrusted> {
        self.inner.errand.set(errand).map_err(|_| Entrusted)
    }

    /// Has the program's process wait in the version 2 cgroups whose `cgroup.procs` files are given; [`Event::Joined`] tells when it does. The kernel may take long for it, so this is nothing to
    /// do while somebody waits.
    ///
    /// It shares our memory until it executes, and is alone in its group until then. Were memory to run out there, the kernel would have nobody to kill: it spares a process whose parent sleeps
    /// until it executes.
    pub fn join(&self, groups: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        protocol::send(self.control.as_fd(), &[protocol::KIND_JOIN], groups)
    }

    /// Lets the errand's program go, with these standard streams, in the version 1 cgroups whose `tasks` files are given.
    pub fn go(&self, streams: &Given<'_>, joins: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let written = self.guest.as_ref().map_or(&[][..], Guest::errand);
        protocol::send_go(self.control.as_fd(), streams, joins, written)
    }

    /// Through which the program's process comes; whoever takes it passes it on and closes it.
    pub fn take_door(&mut self) -> Option<OwnedFd> {
        self.door.take()
    }

    /// From now on a process of this group may come in.
    pub fn expect_from(&mut self, group: Pid) {
        self.guests_group = Some(group);
    }

    /// Takes on the program's process that has come in. It must be a child of ours.
    pub fn admit(&mut self, pidfd: OwnedFd) {
        self.guest = Some(Guest::new(pidfd));
    }

    /// As [`Self::entrust`], for a guest, in the form that it reads.
    pub fn entrust_guest(&mut self, errand: Vec<u8>) -> Result<(), Entrusted> {
        let guest = self
            .guest
            .as_mut()
            .filter(|guest| guest.errand().is_empty());
        guest.ok_or(Entrusted)?.set_errand(errand);
        Ok(())
    }

    /// Readable when the program's process has ended, where that is ours to see.
    pub fn guest_pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.guest.as_ref().and_then(Guest::pidfd)
    }

    /// The guest's pid as the caller sees it.
    pub fn guest_pid(&self) -> Option<u32> {
        self.guest.as_ref()?.pid()
    }

    /// How the guest ended; `None` when there is none, or it goes on.
    pub fn guest_ended(&mut self) -> Option<(WaitStatus, Duration)> {
        self.guest.as_mut()?.ended(Waiting::No)
    }

    /// The next event, without waiting: `Err(AGAIN)` when there is none yet, `Ok(None)` when init has gone.
    pub fn receive(&self) -> Result<Option<Event>, Errno> {
        protocol::receive(self.control.as_fd())
    }

    /// Kills init, and with it every process of its pid namespace.
    pub fn kill(&self) -> Result<Kill, Errno> {
        match rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) => Ok(Kill::Sent),
            Err(Errno::SRCH) => Ok(Kill::Gone),
            Err(errno) => Err(errno),
        }
    }

    /// Tells init to end everything and itself: for a sandbox without a pid namespace, where killing init alone would set the rest free.
    pub fn end(&self) {
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Write);
    }

    fn ends_within(&self, patience: Duration) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let timeout = Timespec::try_from(patience).ok();
        rustix::event::poll(&mut fds, timeout.as_ref()) != Ok(0)
    }

    /// Waits until init has ended, but not for ever: one that its own program has stopped is killed after `patience`.
    pub fn reap_or_kill(&mut self, patience: Duration) -> Result<(), Errno> {
        if !self.ends_within(patience) {
            self.kill()?;
        }
        self.reap()
    }

    /// Waits until init has ended. By then the kernel has ended and reaped everything else in the namespace.
    pub fn reap(&mut self) -> Result<(), Errno> {
        if self.inner.order == Order::ForAGuest {
            self.let_guest_go()?;
        }
        while !self.reaped {
            match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED)
            {
                Ok(_) | Err(Errno::CHILD) => self.reaped = true,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// An init that ends waits until nobody is left in its namespace, and a guest is there until we have seen its end. One that has not introduced itself yet is found by its group; where
    /// all that fails, init is given up.
    fn let_guest_go(&mut self) -> Result<(), Errno> {
        let until = Instant::now() + GUEST_PATIENCE;
        loop {
            while self.guest.is_none() {
                match self.receive() {
                    Ok(Some(Event::Guest { pidfd })) => self.admit(pidfd),
                    Ok(Some(_)) => {}
                    _ => break,
                }
            }
            if let Some(guest) = &mut self.guest {
                guest.ended(Waiting::Yes);
                return Ok(());
            }
            if let Some(group) = self.guests_group {
                guest::reap_strays(group);
            }
            let left = until.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
            let timeout = Timespec::try_from(left.min(GUEST_LOOK)).ok();
            match rustix::event::poll(&mut fds, timeout.as_ref()) {
                Ok(0) if left.is_zero() => return Err(Errno::TIMEDOUT),
                Ok(0) | Err(_) => {}
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Readable when there is an event or init has gone.
    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Readable when init has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// What the sandbox was built from.
    pub fn blueprint(&self) -> &Blueprint {
        &self.inner.blueprint
    }

    /// Init's pid as the caller sees it.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // Without a pid namespace the program's process outlives an init that is killed, with all that it started; until it executes it even stands on the memory that is freed here. An init that
        // is told ends it first.
        let is_told = self.inner.blueprint.isolation == Isolation::None && !self.reaped;
        if is_told {
            self.end();
        }
        let has_gone = !is_told || self.ends_within(PARTING);
        if !self.reaped {
            let _ = self.kill();
            let _ = self.reap();
        }
        if self.reaped && has_gone {
            // SAFETY: nobody reads it any more, and it is not used again.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}

/// The network namespace is made inside, beside everything else, since it takes longest; the cgroup namespace by the
/// program's process for itself.
fn namespaces(isolation: Isolation) -> i32 {
    match isolation {
        Isolation::None => 0,
        Isolation::Namespaces(_) => {
            libc::CLONE_NEWUSER
                | libc::CLONE_NEWPID
                | libc::CLONE_NEWNS
                | libc::CLONE_NEWIPC
                | libc::CLONE_NEWUTS
        }
    }
}

fn write_maps(pid: Pid, identity: &Identity) -> Result<(), LaunchError> {
    let pid = pid.as_raw_nonzero();
    let write = |file: &'static str, content: &str| -> Result<(), LaunchError> {
        let failed = |errno| LaunchError::Map { file, errno };
        let path = format!("/proc/{pid}/{file}");
        let opened = rustix::fs::openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(failed)?;
        rustix::io::write(&opened, content.as_bytes())
            .map(drop)
            .map_err(failed)
    };
    if identity.privileged == Privileged::No {
        write("setgroups", "deny")?;
    }
    write(
        "uid_map",
        &format!("{} {} 1", identity.inside_uid, identity.outside_uid),
    )?;
    write(
        "gid_map",
        &format!("{} {} 1", identity.inside_gid, identity.outside_gid),
    )
}
