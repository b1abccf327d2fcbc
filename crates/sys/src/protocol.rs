//! What the supervisor and the init inside the sandbox say to each other, over one `SOCK_SEQPACKET` pair. The same socket is the lifeline: when the
//! supervisor's end closes, for whatever reason, init ends and the kernel ends everything else in its pid namespace.
//!
//! Every message starts with a kind byte. Numbers are native-endian: both ends are the same binary.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::guest::Entrances;
use crate::routes::Counters;

/// Descriptors in one message at most: stdin, stdout, stderr, the result channel and a join file for each version 1 controller.
pub(crate) const MAX_FDS: usize = 9;

pub(crate) const KIND_MAPPED: u8 = 1;
/// Brings the program's streams and its version 1 cgroups; for the program's process, not for init.
const KIND_GO: u8 = 2;
/// The same, with the result channel after the streams.
pub(crate) const KIND_GO_WITH_RESULT: u8 = 3;
/// Brings version 2 cgroups to be entered while there is nothing to do yet; for the program's process too.
pub(crate) const KIND_JOIN: u8 = 4;

const KIND_SETUP_FAILED: u8 = 16;
const KIND_READY: u8 = 17;
const KIND_STARTED: u8 = 18;
const KIND_EXEC_FAILED: u8 = 19;
const KIND_LISTENER: u8 = 20;
const KIND_EXITED: u8 = 21;
const KIND_WAITING: u8 = 22;
const KIND_ROUTES: u8 = 23;
const KIND_NAMESPACES: u8 = 24;
const KIND_GUEST: u8 = 25;
const KIND_DOOR: u8 = 26;
const KIND_JOINED: u8 = 27;

/// What init and the program's process report.
#[derive(Debug)]
pub enum Event {
    /// A [`crate::blueprint::Step`] failed: its index, or one of the stages before and after the steps.
    SetupFailed {
        stage: Stage,
        errno: i32,
    },
    /// The slow parts are under way: the CPU is free for something else.
    Waiting,
    /// The sandbox stands. Directories asked for by [`crate::blueprint::Step::SendDir`] come along, in order.
    Ready {
        dirs: Vec<OwnedFd>,
        proc: ProcView,
    },
    /// The listener for calls that seccomp refuses.
    Listener {
        fd: OwnedFd,
    },
    /// The counters of the program's network namespace.
    Routes {
        counters: Counters,
    },
    /// A socket of [`crate::blueprint::Blueprint::doors`], by its index there.
    Door {
        index: usize,
        socket: OwnedFd,
    },
    /// What a process from elsewhere needs to come in; see [`crate::guest`].
    Namespaces {
        entrances: Entrances,
    },
    /// One has come in, and is the program's process.
    Guest {
        pidfd: OwnedFd,
    },
    /// The program's process is in the cgroups that it was shown by [`crate::launch::Sandbox::join`].
    Joined,
    /// The program is executed now; the time is of the monotonic clock.
    Started {
        at: Duration,
    },
    ExecFailed {
        stage: Stage,
        errno: i32,
    },
    Exited {
        status: WaitStatus,
        cpu: Duration,
    },
}

/// Whether the sandbox has a /proc of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcView {
    Own,
    Absent,
}

/// How wait(2) said that the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitStatus {
    Exited { code: i32 },
    Signaled { signal: i32 },
}

/// Where in building a sandbox or starting a program something failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Descriptors,
    NetworkNamespace,
    Loopback,
    Doors,
    Identity,
    Step(u32),
    OldRoot,
    Landlock,
    Capabilities,
    Clone,
    Cgroup,
    CgroupNamespace,
    Rlimits,
    Addresses,
    Affinity,
    Cwd,
    NoNewPrivs,
    Seccomp,
    Exec,
}

impl Stage {
    const FIXED: [(Self, &'static str); 18] = [
        (Self::Descriptors, "close inherited descriptors"),
        (Self::NetworkNamespace, "make a network namespace"),
        (Self::Loopback, "bring loopback up"),
        (Self::Identity, "take on the sandbox's identity"),
        (Self::OldRoot, "let go of the host's files"),
        (Self::Landlock, "build the Landlock rules"),
        (Self::Capabilities, "drop capabilities"),
        (Self::Clone, "start a process"),
        (Self::Cgroup, "enter the cgroup"),
        (Self::CgroupNamespace, "make a cgroup namespace"),
        (Self::Rlimits, "set resource limits"),
        (Self::Affinity, "set CPU affinity"),
        (Self::Cwd, "enter the working directory"),
        (Self::NoNewPrivs, "give up new privileges"),
        (Self::Seccomp, "install the system call filter"),
        (Self::Exec, "execute the program"),
        (Self::Doors, "open the ways out of the sandbox"),
        (Self::Addresses, "keep the addresses of memory the same"),
    ];
    const STEP_BASE: u32 = 1000;

    /// The stage in words; a step is described by the blueprint that holds it.
    pub fn describe(self) -> &'static str {
        Self::FIXED
            .iter()
            .find(|(stage, _)| *stage == self)
            .map_or("a step of the blueprint", |(_, words)| words)
    }

    pub(crate) fn to_wire(self) -> u32 {
        match self {
            Self::Step(index) => Self::STEP_BASE + index,
            fixed => Self::FIXED
                .iter()
                .zip(0..)
                .find(|((stage, _), _)| *stage == fixed)
                .map_or(0, |(_, n)| n),
        }
    }

    fn from_wire(n: u32) -> Self {
        match n.checked_sub(Self::STEP_BASE) {
            Some(index) => Self::Step(index),
            None => Self::FIXED
                .get(n as usize)
                .map_or(Self::Descriptors, |(stage, _)| *stage),
        }
    }
}

/// The kinds of messages that a process from elsewhere says and hears, by the names it knows them by.
pub(crate) const KINDS_OF_GUESTS: [(&str, u8); 10] = [
    ("setup-failed", KIND_SETUP_FAILED),
    ("started", KIND_STARTED),
    ("exec-failed", KIND_EXEC_FAILED),
    ("listener", KIND_LISTENER),
    ("waiting", KIND_WAITING),
    ("routes", KIND_ROUTES),
    ("guest", KIND_GUEST),
    ("go-with-result", KIND_GO_WITH_RESULT),
    ("join", KIND_JOIN),
    ("joined", KIND_JOINED),
];

/// A small event as init writes it: kind and three numbers. Fixed size, so nothing is allocated inside.
pub(crate) fn encode(kind_and_values: (u8, [u64; 3])) -> [u8; 32] {
    let mut bytes = [0u8; 32];
    bytes[0] = kind_and_values.0;
    for (chunk, value) in bytes[8..]
        .as_chunks_mut::<8>()
        .0
        .iter_mut()
        .zip(kind_and_values.1)
    {
        *chunk = value.to_ne_bytes();
    }
    bytes
}

pub(crate) fn setup_failed(stage: Stage, errno: Errno) -> [u8; 32] {
    encode((
        KIND_SETUP_FAILED,
        [
            u64::from(stage.to_wire()),
            errno.raw_os_error().unsigned_abs().into(),
            0,
        ],
    ))
}

pub(crate) fn exec_failed(stage: Stage, errno: Errno) -> [u8; 32] {
    encode((
        KIND_EXEC_FAILED,
        [
            u64::from(stage.to_wire()),
            errno.raw_os_error().unsigned_abs().into(),
            0,
        ],
    ))
}

pub(crate) fn waiting() -> [u8; 32] {
    encode((KIND_WAITING, [0; 3]))
}

pub(crate) fn joined() -> [u8; 32] {
    encode((KIND_JOINED, [0; 3]))
}

pub(crate) fn ready(proc: ProcView) -> [u8; 32] {
    encode((KIND_READY, [u64::from(proc == ProcView::Own), 0, 0]))
}

pub(crate) fn listener() -> [u8; 32] {
    encode((KIND_LISTENER, [0; 3]))
}

pub(crate) fn started(at_nanos: u64) -> [u8; 32] {
    encode((KIND_STARTED, [at_nanos, 0, 0]))
}

pub(crate) fn exited(status: i32, cpu_micros: u64) -> [u8; 32] {
    encode((KIND_EXITED, [status.cast_unsigned().into(), cpu_micros, 0]))
}

pub(crate) fn routes() -> [u8; 32] {
    encode((KIND_ROUTES, [0; 3]))
}

pub(crate) fn door(index: u64) -> [u8; 32] {
    encode((KIND_DOOR, [index, 0, 0]))
}

pub(crate) fn namespaces([device, inode]: [u64; 2]) -> [u8; 32] {
    encode((KIND_NAMESPACES, [device, inode, 0]))
}

/// Reads the next event. `None` when init has gone without another word.
pub(crate) fn receive(control: BorrowedFd<'_>) -> Result<Option<Event>, Errno> {
    let mut bytes = [0u8; 32];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::net::recvmsg(
        control,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut ancillary,
        flags,
    )?;
    let mut fds: Vec<OwnedFd> = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::BADMSG);
    }
    decode(&bytes, fds).map(Some)
}

fn decode(bytes: &[u8; 32], fds: Vec<OwnedFd>) -> Result<Event, Errno> {
    let mut values = [0u64; 3];
    for (value, chunk) in values.iter_mut().zip(bytes[8..].as_chunks::<8>().0) {
        *value = u64::from_ne_bytes(*chunk);
    }
    let small = |value: u64| u32::try_from(value).map_err(|_| Errno::BADMSG);
    let signed = |value: u64| i32::try_from(value).map_err(|_| Errno::BADMSG);
    Ok(match bytes[0] {
        KIND_SETUP_FAILED => Event::SetupFailed {
            stage: Stage::from_wire(small(values[0])?),
            errno: signed(values[1])?,
        },
        KIND_EXEC_FAILED => Event::ExecFailed {
            stage: Stage::from_wire(small(values[0])?),
            errno: signed(values[1])?,
        },
        KIND_WAITING => Event::Waiting,
        KIND_JOINED => Event::Joined,
        KIND_ROUTES => Event::Routes {
            counters: Counters::from_fds(fds).ok_or(Errno::BADMSG)?,
        },
        KIND_NAMESPACES => Event::Namespaces {
            entrances: Entrances {
                fds,
                root: [values[0], values[1]],
            },
        },
        KIND_DOOR => Event::Door {
            index: usize::try_from(values[0]).map_err(|_| Errno::BADMSG)?,
            socket: fds.into_iter().next().ok_or(Errno::BADMSG)?,
        },
        KIND_GUEST => Event::Guest {
            pidfd: fds.into_iter().next().ok_or(Errno::BADMSG)?,
        },
        KIND_READY => {
            let proc = if values[0] == 1 {
                ProcView::Own
            } else {
                ProcView::Absent
            };
            Event::Ready { dirs: fds, proc }
        }
        KIND_LISTENER => Event::Listener {
            fd: fds.into_iter().next().ok_or(Errno::BADMSG)?,
        },
        KIND_STARTED => Event::Started {
            at: Duration::from_nanos(values[0]),
        },
        KIND_EXITED => Event::Exited {
            status: wait_status(signed(values[0])?),
            cpu: Duration::from_micros(values[1]),
        },
        _ => return Err(Errno::BADMSG),
    })
}

fn wait_status(status: i32) -> WaitStatus {
    if libc::WIFSIGNALED(status) {
        WaitStatus::Signaled {
            signal: libc::WTERMSIG(status),
        }
    } else {
        WaitStatus::Exited {
            code: libc::WEXITSTATUS(status),
        }
    }
}

/// Sends one message with its descriptors. Allocation-free.
pub(crate) fn send(
    control: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    rustix::net::sendmsg(
        control,
        &[IoSlice::new(bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )
    .map(drop)
}

/// Lets the program go, with these standard streams, inside the version 1 cgroups whose `tasks` files are given. `errand` is for a process that cannot read it where it lies.
pub(crate) fn send_go(
    control: BorrowedFd<'_>,
    streams: &Given<'_>,
    joins: &[BorrowedFd<'_>],
    errand: &[u8],
) -> Result<(), Errno> {
    let mut fds: Vec<BorrowedFd<'_>> = streams.stdio.to_vec();
    fds.extend(streams.result);
    fds.extend_from_slice(joins);
    let kind = match streams.result {
        None => KIND_GO,
        Some(_) => KIND_GO_WITH_RESULT,
    };
    if errand.is_empty() {
        return send(control, &[kind], &fds);
    }
    send(control, &[&[kind], errand].concat(), &fds)
}

/// The descriptors that a program begins with.
#[derive(Debug)]
pub struct Given<'a> {
    pub stdio: [BorrowedFd<'a>; 3],
    /// Becomes descriptor [`RESULT_FD`]: where the program answers, apart from what it prints.
    pub result: Option<BorrowedFd<'a>>,
}

/// The number that the result channel has in the program.
pub const RESULT_FD: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_survive_the_wire() {
        for (stage, _) in Stage::FIXED {
            assert_eq!(Stage::from_wire(stage.to_wire()), stage);
        }
        assert_eq!(Stage::from_wire(Stage::Step(7).to_wire()), Stage::Step(7));
    }

    #[test]
    fn events_survive_the_wire() {
        let event = decode(&exited(9, 1_500_000), Vec::new()).unwrap();
        let Event::Exited { status, cpu } = event else {
            panic!("{event:?}")
        };
        assert_eq!(status, WaitStatus::Signaled { signal: 9 });
        assert_eq!(cpu, Duration::from_millis(1500));
        let event = decode(&setup_failed(Stage::Step(3), Errno::PERM), Vec::new()).unwrap();
        let Event::SetupFailed { stage, errno } = event else {
            panic!("{event:?}")
        };
        assert_eq!((stage, errno), (Stage::Step(3), 1));
    }

    #[test]
    fn an_unknown_message_is_refused() {
        assert_eq!(decode(&[0; 32], Vec::new()).unwrap_err(), Errno::BADMSG);
    }
}
