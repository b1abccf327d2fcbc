//! The supervisor's end of a listener: reads which call was refused and answers it. A call is never let through for what its arguments point to: the caller
//! could change that after it was looked at. What is let through is let through whatever its arguments: `mmap`, which is asked about to be counted, and in a run that must give the same each
//! time the calls whose answers are made elsewhere.

use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{Ioctl, seccomp_notif, seccomp_notif_resp};
use rustix::io::Errno;

use crate::raw;

/// A refused call, whose caller waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    /// Names this attempt to [`respond`].
    pub id: u64,
    /// The calling thread, as the reader's pid namespace numbers it; 0 if it is not visible there.
    pub pid: u32,
    pub number: u32,
    /// As passed in registers. Pointers are into the caller's memory, which can change at any time.
    pub args: [u64; 6],
}

/// A shared mapping that is about to be made; only [`super::Variant::NoShm`] asks about these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedMapping {
    pub bytes: u64,
    /// The descriptor that is mapped; `None` for new memory.
    pub descriptor: Option<u64>,
}

impl Notification {
    pub fn shared_mapping(&self) -> Option<SharedMapping> {
        const MAP_ANONYMOUS: u64 = 0x20;
        let [_, bytes, _, flags, descriptor, _] = self.args;
        (i64::from(self.number) == libc::SYS_mmap).then_some(SharedMapping {
            bytes,
            descriptor: (flags & MAP_ANONYMOUS == 0).then_some(descriptor & 0xffff_ffff),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    Call(Notification),
    /// The caller died, or a signal took it out of the call, before it was read; or no process is left under the filter.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    Sent,
    /// The caller died, or a signal took it out of the call, before the answer.
    Gone,
}

/// Reads one notification; waits for one if there is none, so poll the listener first. A listener whose processes have all ended polls as
/// hung up, not as readable.
///
/// # Errors
/// What the kernel answered, `INTR` included.
pub fn receive(listener: BorrowedFd<'_>) -> Result<Received, Errno> {
    let mut notif = EMPTY;
    // SAFETY: the request's number carries the size of seccomp_notif, and the kernel writes exactly one at the pointer, which is exclusively
    // ours; any bytes are valid in its integer fields. It wants it zeroed before, which EMPTY is.
    match unsafe {
        ioctl(
            listener,
            libc::SECCOMP_IOCTL_NOTIF_RECV,
            (&raw mut notif).expose_provenance(),
        )
    } {
        Ok(()) => Ok(Received::Call(Notification {
            id: notif.id,
            pid: notif.pid,
            number: notif.data.nr.cast_unsigned(),
            args: notif.data.args,
        })),
        Err(Errno::NOENT) => Ok(Received::Gone),
        Err(errno) => Err(errno),
    }
}

/// Has the call fail with `errno`. Values that are not an errno (1 to 4095) become EPERM: a refused call never succeeds.
///
/// # Errors
/// What the kernel answered: `INPROGRESS` if this id was answered before.
pub fn respond(listener: BorrowedFd<'_>, id: u64, errno: i32) -> Result<Answered, Errno> {
    let errno = if (1..=4095).contains(&errno) {
        errno
    } else {
        libc::EPERM
    };
    send(
        listener,
        seccomp_notif_resp {
            id,
            val: 0,
            error: -errno,
            flags: 0,
        },
    )
}

/// Has the call return `value`, as if it had been made.
///
/// # Errors
/// What the kernel answered: `INPROGRESS` if this id was answered before.
pub fn answer(listener: BorrowedFd<'_>, id: u64, value: i64) -> Result<Answered, Errno> {
    send(
        listener,
        seccomp_notif_resp {
            id,
            val: value,
            error: 0,
            flags: 0,
        },
    )
}

/// Whether the caller still waits. What was opened by its number before this says yes is the caller's, and not that of a process which got the number afterwards.
pub fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the request's number carries the size of a u64, and the kernel reads exactly one at the pointer.
    let asked = unsafe {
        ioctl(
            listener,
            libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
            (&raw const id).expose_provenance(),
        )
    };
    asked.is_ok()
}

fn send(listener: BorrowedFd<'_>, mut answer: seccomp_notif_resp) -> Result<Answered, Errno> {
    // SAFETY: the request's number carries the size of seccomp_notif_resp, and the kernel reads exactly one at the pointer.
    match unsafe {
        ioctl(
            listener,
            libc::SECCOMP_IOCTL_NOTIF_SEND,
            (&raw mut answer).expose_provenance(),
        )
    } {
        Ok(()) => Ok(Answered::Sent),
        Err(Errno::NOENT) => Ok(Answered::Gone),
        Err(errno) => Err(errno),
    }
}

/// Lets a call go on that was asked about only to be counted. What was counted must have been in the registers, which nobody can change meanwhile.
///
/// # Errors
/// What the kernel answered: `INPROGRESS` if this id was answered before.
pub fn let_through(listener: BorrowedFd<'_>, id: u64) -> Result<Answered, Errno> {
    let flags = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or(1);
    send(
        listener,
        seccomp_notif_resp {
            id,
            val: 0,
            error: 0,
            flags,
        },
    )
}

const EMPTY: seccomp_notif = seccomp_notif {
    id: 0,
    pid: 0,
    flags: 0,
    data: libc::seccomp_data {
        nr: 0,
        arch: 0,
        instruction_pointer: 0,
        args: [0; 6],
    },
};

/// # Safety
/// `argument` must be what the kernel expects for `request`.
unsafe fn ioctl(fd: BorrowedFd<'_>, request: Ioctl, argument: usize) -> Result<(), Errno> {
    let fd = usize::try_from(fd.as_raw_fd()).map_err(|_| Errno::BADF)?;
    let request = usize::try_from(request).map_err(|_| Errno::INVAL)?;
    // SAFETY: the descriptor is borrowed for the call; the caller answers for the argument.
    unsafe { raw::syscall(libc::SYS_ioctl, [fd, request, argument, 0, 0, 0]) }.map(|_| ())
}
