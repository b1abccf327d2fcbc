//! The network namespace: the most expensive part of a sandbox, and nothing else depends on it, so it is made beside the rest. Allocates nothing.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::beside::{Beside, Work};
use crate::init::Failure;
use crate::protocol::Stage;
use crate::raw;

/// The descriptor of the new namespace, in the table that maker and init share.
pub(crate) type Made = Result<i32, Failure>;

pub(crate) const fn work() -> Work<Made> {
    Work::new(make)
}

/// Waits until the namespace is there and moves this process into it.
pub(crate) fn enter(maker: Beside<'_, Made>) -> Result<(), Failure> {
    let at = |errno| (Stage::NetworkNamespace, errno);
    let namespace = maker.wait().map_err(at)??;
    // SAFETY: the maker left this descriptor for us, and it has ended.
    let namespace = unsafe { OwnedFd::from_raw_fd(namespace) };
    rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(at)
}

/// A namespace with loopback up: test runners and build servers talk to themselves over it.
fn make() -> Made {
    let at_namespace = |errno| (Stage::NetworkNamespace, errno);
    let at_loopback = |errno| (Stage::Loopback, errno);
    // SAFETY: the namespace is this process's own; the descriptor table that it shares is not unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(at_namespace)?;
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(at_loopback)?;
    // struct ifreq: 16 bytes of name, then a union of 24 bytes that starts with the flags.
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"lo");
    let flags = u16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or_default();
    request[16..18].copy_from_slice(&flags.to_ne_bytes());
    let fd = socket.as_raw_fd().cast_unsigned() as usize;
    let at = request.as_mut_ptr().expose_provenance();
    // SAFETY: the kernel reads one ifreq (40 bytes).
    unsafe { raw::syscall(libc::SYS_ioctl, [fd, SIOCSIFFLAGS, at, 0, 0, 0]) }
        .map_err(at_loopback)?;
    // SAFETY: takes no pointer; returns a new descriptor of the socket's namespace.
    let namespace = unsafe { raw::syscall(libc::SYS_ioctl, [fd, SIOCGSKNS, 0, 0, 0, 0]) }
        .map_err(at_namespace)?;
    i32::try_from(namespace).map_err(|_| at_namespace(Errno::BADF))
}

/// Sets an interface's flags.
const SIOCSIFFLAGS: usize = 0x8914;
/// Asks a socket for its network namespace.
const SIOCGSKNS: usize = 0x894C;
