//! Making processes: a full copy in new namespaces ([`fork_into`]), and a light one that borrows our memory ([`spawn_sharing_memory`]).

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::Pid;

use crate::raw;

/// Which side of a [`fork_into`] this is.
pub(crate) enum Forked {
    Child,
    Parent { pid: Pid, pidfd: OwnedFd },
}

/// `struct clone_args` of clone3(2), first 88 bytes (Linux 5.7).
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Copies this process into new namespaces and, where one is given, into a version 2 cgroup.
///
/// The child is a single thread with a copy of all memory. Until it execs it may only make raw system calls: a lock that another thread held at
/// this moment stays locked for ever in the copy.
pub(crate) fn fork_into(namespaces: u64, cgroup: Option<BorrowedFd<'_>>) -> Result<Forked, Errno> {
    let mut pidfd: i32 = -1;
    let mut args = CloneArgs {
        flags: namespaces | libc::CLONE_PIDFD as u64 | CLONE_CLEAR_SIGHAND,
        pidfd: (&raw mut pidfd).expose_provenance() as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: the kernel reads `args` and writes `pidfd`, both alive here. Without CLONE_VM and without a stack of its own the child runs on a
    // copy of this very stack, so returning twice is sound.
    let pid = unsafe {
        raw::syscall(
            libc::SYS_clone3,
            [(&raw const args).addr(), size_of::<CloneArgs>(), 0, 0, 0, 0],
        )?
    };
    match i32::try_from(pid).ok().and_then(Pid::from_raw) {
        None => Ok(Forked::Child),
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
        Some(pid) => Ok(Forked::Parent {
            pid,
            pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
        }),
    }
}

/// How long a process made by [`spawn_sharing_memory`] borrows its maker's memory.
pub(crate) enum Sharing {
    /// The maker sleeps until the child has called `execve` or ended.
    UntilExec,
    /// Both run; the child ends by itself.
    ForLife,
}

/// Starts `entry(argument)` as a process of its own (own descriptor table, own identity) that shares this process's memory.
///
/// # Safety
/// `entry` must make raw system calls only (no allocation, no lock, no thread-local), must not unwind, and everything it reaches through `argument`
/// and `stack` must stay alive until the child has ended or called `execve`.
pub(crate) unsafe fn spawn_sharing_memory(
    stack: &mut [u8],
    sharing: Sharing,
    entry: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: *mut libc::c_void,
) -> Result<Pid, Errno> {
    let flags = match sharing {
        Sharing::UntilExec => libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
        Sharing::ForLife => libc::CLONE_VM | libc::SIGCHLD,
    };
    let top = stack.as_mut_ptr_range().end;
    let aligned = top.map_addr(|addr| addr & !15);
    // SAFETY: `aligned` is the end of a live buffer that only the child uses; the rest is the caller's promise. glibc's wrapper calls `entry` on the
    // new stack and ends the child with its return value.
    let pid = unsafe { libc::clone(entry, aligned.cast(), flags, argument) };
    Pid::from_raw(pid.max(0)).ok_or_else(last_error)
}

fn last_error() -> Errno {
    std::io::Error::last_os_error()
        .raw_os_error()
        .map_or(Errno::AGAIN, Errno::from_raw_os_error)
}
