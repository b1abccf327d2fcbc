//! Making processes: a full copy ([`fork_into`]), light ones that borrow our memory for good ([`spawn_sharing_memory`]) or until they execute ([`spawn_until_exec`]), and threads ([`spawn_thread`], [`spawn_awaited_thread`]).

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32};

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
        args.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
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
        Some(pid) => {
            // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Forked::Parent { pid, pidfd })
        }
    }
}

/// A stack for a process that shares memory. Never read or cleared here, so that only the pages which are used cost anything.
pub(crate) type Stack = Box<[std::mem::MaybeUninit<u8>]>;

pub(crate) fn stack(bytes: usize) -> Stack {
    Box::new_uninit_slice(bytes)
}

/// Part of a stack's memory, for somebody who runs beside its owner. In a frame of the owner's it would cost every page: a large frame is touched page by page when it is entered.
#[derive(Clone, Copy)]
pub(crate) struct Lent {
    from: *mut std::mem::MaybeUninit<u8>,
    bytes: usize,
}

// SAFETY: an address and a size; whoever takes the memory promises that nobody else does.
unsafe impl Send for Lent {}

impl Lent {
    pub(crate) fn new(part: &mut [std::mem::MaybeUninit<u8>]) -> Self {
        Self {
            from: part.as_mut_ptr(),
            bytes: part.len(),
        }
    }

    /// # Safety
    /// The memory must still be there, and nobody else may use it.
    pub(crate) unsafe fn take<'a>(self) -> &'a mut [std::mem::MaybeUninit<u8>] {
        // SAFETY: `new` was given this much memory, which needs no value; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.from, self.bytes) }
    }
}

/// Starts `entry(argument)` as a process of its own (own descriptor table, own namespaces if asked for) that shares this process's memory: nothing is
/// copied, and no page is copied again when either side writes to it.
///
/// # Safety
/// `entry` must make raw system calls only (no allocation, no lock, no thread-local), must not unwind, and everything that it reaches through
/// `argument`, and `stack`, must stay alive until the process has ended.
pub(crate) unsafe fn spawn_sharing_memory(
    stack: &mut [std::mem::MaybeUninit<u8>],
    namespaces: i32,
    entry: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: *mut libc::c_void,
) -> Result<(Pid, OwnedFd), Errno> {
    let mut pidfd: i32 = -1;
    let flags = libc::CLONE_VM | libc::CLONE_PIDFD | libc::SIGCHLD | namespaces;
    // SAFETY: `top` is the end of a live buffer that only the child uses; the kernel writes the pidfd; the rest is the caller's promise. glibc's
    // wrapper calls `entry` on the new stack and ends the child with its return value.
    let pid = unsafe { libc::clone(entry, top(stack), flags, argument, &raw mut pidfd) };
    let pid = Pid::from_raw(pid.max(0)).ok_or_else(last_error)?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// A thread of this process, with a root and a working directory of its own.
const THREAD: i32 = libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD | libc::CLONE_FILES;

/// Starts `entry(argument)` as a thread of this process: nothing is left of it when it ends, and nobody has to wait for it. It has a root and a working directory
/// of its own.
///
/// # Safety
/// As for [`spawn_sharing_memory`]; `entry` must end with [`raw::exit_thread`].
pub(crate) unsafe fn spawn_thread(
    stack: &mut [std::mem::MaybeUninit<u8>],
    entry: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: *mut libc::c_void,
) -> Result<(), Errno> {
    // SAFETY: as in `spawn_sharing_memory`.
    let pid = unsafe { libc::clone(entry, top(stack), THREAD, argument) };
    if pid > 0 { Ok(()) } else { Err(last_error()) }
}

/// The same for a thread whose end somebody waits for: `tid` is its number while it lives, and then 0, of which the kernel wakes whoever waits there.
///
/// # Safety
/// As for [`spawn_thread`]; `tid` must stay alive as long as `stack`.
pub(crate) unsafe fn spawn_awaited_thread(
    stack: &mut [std::mem::MaybeUninit<u8>],
    tid: &AtomicU32,
    entry: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: *mut libc::c_void,
) -> Result<Pid, Errno> {
    let flags = THREAD | libc::CLONE_PARENT_SETTID | libc::CLONE_CHILD_CLEARTID;
    let (at, no_tls) = (tid.as_ptr(), std::ptr::null_mut::<libc::c_void>());
    // SAFETY: as in `spawn_sharing_memory`; the kernel writes the number before the thread runs and when it has ended.
    let pid = unsafe { libc::clone(entry, top(stack), flags, argument, at, no_tls, at) };
    Pid::from_raw(pid.max(0)).ok_or_else(last_error)
}

/// As [`spawn_sharing_memory`], without new namespaces, and sleeps until the child has called `execve` or ended. Its pid is known to others as
/// soon as it exists.
///
/// # Safety
/// The same, but nothing is used any more once this returns.
pub(crate) unsafe fn spawn_until_exec(
    stack: &mut [std::mem::MaybeUninit<u8>],
    pid: &AtomicI32,
    entry: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: *mut libc::c_void,
) -> Result<(), Errno> {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID | libc::SIGCHLD;
    // SAFETY: as in `spawn_sharing_memory`; the kernel writes the pid before the child runs.
    let made = unsafe { libc::clone(entry, top(stack), flags, argument, pid.as_ptr()) };
    if made > 0 { Ok(()) } else { Err(last_error()) }
}

/// Stacks grow down, and the ABI wants them aligned.
fn top(stack: &mut [std::mem::MaybeUninit<u8>]) -> *mut libc::c_void {
    stack
        .as_mut_ptr_range()
        .end
        .map_addr(|addr| addr & !15)
        .cast()
}

fn last_error() -> Errno {
    std::io::Error::last_os_error()
        .raw_os_error()
        .map_or(Errno::AGAIN, Errno::from_raw_os_error)
}
