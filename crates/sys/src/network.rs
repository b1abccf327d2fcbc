//! The network namespace of a program's process: one of its own, with loopback up and nothing else, or one that was made ahead. Allocates nothing.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::UnshareFlags;

use crate::init::Failure;
use crate::protocol::Stage;
use crate::raw;

/// Moves the calling process into a new network namespace. Loopback is up: test runners and build servers talk to themselves over it.
pub(crate) fn leave_the_hosts() -> Result<(), Failure> {
    // SAFETY: the namespace is this process's own.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
        .map_err(|errno| (Stage::NetworkNamespace, errno))?;
    loopback_up().map_err(|errno| (Stage::Loopback, errno))
}

/// Whether the calling process was born in the namespace that was made for it. Asked while the host's /proc is there.
pub(crate) fn check_given(identity: [u64; 2]) -> Result<(), Failure> {
    let here = rustix::fs::stat(c"/proc/self/ns/net").map(|stat| [stat.st_dev, stat.st_ino]);
    match here {
        Ok(here) if here == identity => Ok(()),
        Ok(_) => Err((Stage::NetworkNamespace, Errno::XDEV)),
        Err(errno) => Err((Stage::NetworkNamespace, errno)),
    }
}

/// Device and inode of a namespace.
pub(crate) fn identity_of(namespace: &OwnedFd) -> Result<[u64; 2], Errno> {
    rustix::fs::fstat(namespace).map(|stat| [stat.st_dev, stat.st_ino])
}

pub(crate) fn loopback_up() -> Result<(), Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // struct ifreq: 16 bytes of name, then a union of 24 bytes that starts with the flags.
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"lo");
    let flags = u16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or_default();
    request[16..18].copy_from_slice(&flags.to_ne_bytes());
    let fd = socket.as_raw_fd().cast_unsigned() as usize;
    let at = request.as_mut_ptr().expose_provenance();
    // SAFETY: the kernel reads one ifreq (40 bytes).
    unsafe { raw::syscall(libc::SYS_ioctl, [fd, SIOCSIFFLAGS, at, 0, 0, 0]) }.map(drop)
}

/// Sets an interface's flags.
const SIOCSIFFLAGS: usize = 0x8914;
