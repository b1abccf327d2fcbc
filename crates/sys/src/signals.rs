//! Signals as something to wait for: blocked, and read from a descriptor.

use std::os::fd::{FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::Signal;

use crate::raw;

/// Blocks a signal for the calling thread. One that the kernel sends along with an error, such as SIGXFSZ, then leaves only the error.
pub fn hold_back(signal: Signal) -> Result<(), Errno> {
    block(1 << (signal.as_raw() - 1))
}

fn block(mask: u64) -> Result<(), Errno> {
    let at = (&raw const mask).expose_provenance();
    let how = libc::SIG_BLOCK.cast_unsigned() as usize;
    // SAFETY: the kernel reads 8 bytes of mask.
    unsafe { raw::syscall(libc::SYS_rt_sigprocmask, [how, at, 0, 8, 0, 0])? };
    Ok(())
}

/// Blocks these signals for the calling thread and returns a descriptor that becomes readable when one arrives. Programs in a sandbox start with
/// nothing blocked.
pub fn watch(signals: &[Signal]) -> Result<OwnedFd, Errno> {
    let mask = signals
        .iter()
        .fold(0u64, |mask, signal| mask | 1 << (signal.as_raw() - 1));
    block(mask)?;
    let at = (&raw const mask).expose_provenance();
    let flags = (libc::SFD_CLOEXEC | libc::SFD_NONBLOCK).cast_unsigned() as usize;
    // SAFETY: the kernel reads 8 bytes of mask.
    let fd = unsafe { raw::syscall(libc::SYS_signalfd4, [usize::MAX, at, 8, flags, 0, 0])? };
    // SAFETY: a new descriptor that the kernel has just made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).map_err(|_| Errno::BADF)?) })
}
