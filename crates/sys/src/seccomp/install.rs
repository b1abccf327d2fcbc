//! Puts a filter on the calling thread. Runs in the child between clone and exec, which may share the supervisor's memory: it allocates
//! nothing, takes no lock and does not touch errno.

use std::os::fd::RawFd;

use libc::{c_ulong, sock_filter, sock_fprog};
use rustix::io::Errno;

use crate::raw;

/// Whether the filter's notifications get a descriptor to be read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// For a program built with `Denied::Errno`.
    Absent,
    /// For a program built with `Denied::Notify`; without it the kernel answers notified calls with ENOSYS. Only one filter of a process can
    /// have a listener (`BUSY`).
    Wanted,
}

/// Installs `program` on the calling thread, for good: it outlives exec and is inherited by every child. The thread must have
/// `no_new_privs` set or `CAP_SYS_ADMIN` in its user namespace (`ACCESS` otherwise).
///
/// A listener comes back close-on-exec. It must leave the child before exec: whoever holds it can have refused calls performed.
///
/// # Errors
/// What the kernel answered; `INVAL` also for a program of more instructions than it can count.
pub fn install(program: &[sock_filter], listener: Listener) -> Result<Option<RawFd>, Errno> {
    // Without SPEC_ALLOW, kernels before 5.16 also turn speculation off for the thread, at a cost to every program. What the sandbox
    // protects is in other processes, which that would not help.
    let plain = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    match listener {
        Listener::Absent => set_filter(program, plain).map(|_| None),
        Listener::Wanted => {
            let listening = plain | libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
            // Once the supervisor has read a notification only a fatal signal interrupts the call, so that a runtime which signals itself
            // all the time (Go) does not have the same attempt recorded twice. Unknown before 5.19.
            let answer = match set_filter(
                program,
                listening | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
            ) {
                Err(Errno::INVAL) => set_filter(program, listening),
                other => other,
            }?;
            RawFd::try_from(answer).map(Some).map_err(|_| Errno::BADF)
        }
    }
}

fn set_filter(program: &[sock_filter], flags: c_ulong) -> Result<usize, Errno> {
    let program = sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| Errno::INVAL)?,
        // The type has no const; the kernel only reads.
        filter: program.as_ptr().cast_mut(),
    };
    let args = [
        libc::SECCOMP_SET_MODE_FILTER as usize,
        usize::try_from(flags).map_err(|_| Errno::INVAL)?,
        (&raw const program).expose_provenance(),
        0,
        0,
        0,
    ];
    // SAFETY: the kernel reads one sock_fprog at the third argument and `len` instructions at its `filter`, both borrowed for the whole call,
    // copies them and writes no memory of ours. No memory changes meaning: later calls may fail with an errno, which callers handle anyway.
    unsafe { raw::syscall(libc::SYS_seccomp, args) }
}
