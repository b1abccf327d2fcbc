//! The network namespace, made by a process beside init while init mounts: it is the most expensive part of a sandbox, and the two do not depend on each
//! other. Allocates nothing.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, WaitOptions};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::clone;
use crate::init::Failure;
use crate::protocol::Stage;
use crate::raw;

/// What the process beside init works on and leaves its result in. Outlives that process: [`Network::enter`] waits for it.
pub(crate) struct NetworkStack {
    result: UnsafeCell<Result<i32, Failure>>,
    bytes: [MaybeUninit<u8>; 64 * 1024],
}

pub(crate) fn stack() -> NetworkStack {
    let nothing_yet = Err((Stage::NetworkNamespace, Errno::CHILD));
    NetworkStack { result: UnsafeCell::new(nothing_yet), bytes: [const { MaybeUninit::uninit() }; 64 * 1024] }
}

/// A network namespace in the making.
pub(crate) struct Network<'a> {
    maker: Pid,
    result: &'a UnsafeCell<Result<i32, Failure>>,
}

impl<'a> Network<'a> {
    /// Starts making it.
    pub(crate) fn begin(stack: &'a mut NetworkStack) -> Result<Self, Failure> {
        let result = &stack.result;
        let argument = std::ptr::from_ref(result).cast_mut().cast();
        // SAFETY: `make` keeps to raw system calls. The stack and the result are borrowed by `Network` until `enter` has waited for the process; init does
        // not leave before that without ending the whole namespace.
        let maker = unsafe { clone::spawn_sharing_all(&mut stack.bytes, make, argument) };
        let maker = maker.map_err(|errno| (Stage::NetworkNamespace, errno))?;
        Ok(Self { maker, result })
    }

    /// Waits until it is there and moves this process into it.
    pub(crate) fn enter(self) -> Result<(), Failure> {
        while let Err(Errno::INTR) = rustix::process::waitpid(Some(self.maker), WaitOptions::empty()) {}
        // SAFETY: the only other user of the cell has ended.
        let namespace = unsafe { *self.result.get() }?;
        // SAFETY: the maker left us this descriptor in the table that it shared with us.
        let namespace = unsafe { OwnedFd::from_raw_fd(namespace) };
        rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| (Stage::NetworkNamespace, errno))
    }
}

extern "C" fn make(argument: *mut libc::c_void) -> libc::c_int {
    let made = new_namespace();
    // SAFETY: `Network::begin` handed us a live cell, and its owner looks at it only after we have ended.
    unsafe { *argument.cast::<Result<i32, Failure>>() = made };
    raw::exit(0)
}

/// A namespace with loopback up: test runners and build servers talk to themselves over it.
fn new_namespace() -> Result<i32, Failure> {
    // SAFETY: the namespace is this process's own; the descriptor table that it shares is not touched.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|errno| (Stage::NetworkNamespace, errno))?;
    let at_loopback = |errno| (Stage::Loopback, errno);
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(at_loopback)?;
    // struct ifreq: 16 bytes of name, then a union of 24 bytes that starts with the flags.
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"lo");
    let flags = u16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or_default();
    request[16..18].copy_from_slice(&flags.to_ne_bytes());
    let fd = socket.as_raw_fd().cast_unsigned() as usize;
    let at = request.as_mut_ptr().expose_provenance();
    // SAFETY: the kernel reads one ifreq (40 bytes).
    unsafe { raw::syscall(libc::SYS_ioctl, [fd, libc::SIOCSIFFLAGS as usize, at, 0, 0, 0]) }.map_err(at_loopback)?;
    // SAFETY: takes no pointer; returns a new descriptor of the socket's namespace.
    let namespace = unsafe { raw::syscall(libc::SYS_ioctl, [fd, SIOCGSKNS, 0, 0, 0, 0]) };
    let namespace = namespace.map_err(|errno| (Stage::NetworkNamespace, errno))?;
    i32::try_from(namespace).map_err(|_| (Stage::NetworkNamespace, Errno::BADF))
}

/// Asks a socket for its network namespace.
const SIOCGSKNS: usize = 0x894C;
