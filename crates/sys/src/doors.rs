//! The ways out of a sandbox: sockets that listen inside its network namespace and are handed to the supervisor, which answers at them from outside. Every address leads to the sandbox itself, so
//! that whatever a program connects to ends at one of these sockets, or is refused by the kernel at once. There is no other way: the namespace has loopback and nothing else.
//!
//! Runs in the program's process, before it gives up its capabilities, and allocates nothing; or in a thread of the supervisor's, for a container.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::LinkNameSpaceType;

use crate::protocol;

/// One socket that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Door {
    pub transport: Transport,
    /// The one address at which it listens; every address when absent.
    pub address: Option<Ipv4Addr>,
    pub port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Stream,
    Datagram,
}

/// Connections that wait to be taken.
const BACKLOG: i32 = 128;

/// Makes every address one of the sandbox's own, opens the doors and sends each to the supervisor under its index.
pub(crate) fn open(doors: &[Door], control: BorrowedFd<'_>) -> Result<(), Errno> {
    if doors.is_empty() {
        return Ok(());
    }
    own_every_address()?;
    for (door, index) in doors.iter().zip(0..) {
        let socket = listen(door)?;
        protocol::send(control, &protocol::door(index), &[socket.as_fd()])?;
    }
    Ok(())
}

/// The same in a network namespace that somebody else has made, from outside, in the order of the doors. The caller must have all capabilities over it.
pub fn open_in(namespace: OwnedFd, doors: Vec<Door>) -> Result<Vec<OwnedFd>, Errno> {
    // A thread of its own, which ends there.
    let visitor = std::thread::spawn(move || {
        let kind = Some(LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(namespace.as_fd(), kind)?;
        own_every_address()?;
        doors.iter().map(listen).collect()
    });
    visitor.join().unwrap_or(Err(Errno::IO))
}

fn own_every_address() -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC;
    let netlink = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    add_route(netlink.as_fd(), libc::AF_INET)?;
    match add_route(netlink.as_fd(), libc::AF_INET6) {
        // Without IPv6 nothing leads anywhere by it.
        Err(Errno::AFNOSUPPORT | Errno::OPNOTSUPP | Errno::NODEV | Errno::ACCESS | Errno::PERM) => {
            Ok(())
        }
        other => other,
    }
}

/// `ip route add local default dev lo table local`, and waits for the kernel's word.
fn add_route(netlink: BorrowedFd<'_>, family: i32) -> Result<(), Errno> {
    const NEW_ROUTE: u16 = 24;
    const REQUEST_ACK_EXCL_CREATE: u16 = 0x1 | 0x4 | 0x200 | 0x400;
    const TABLE_LOCAL: u8 = 255;
    const BY_BOOT: u8 = 3;
    const SCOPE_HOST: u8 = 254;
    const TYPE_LOCAL: u8 = 2;
    const OUTPUT_INTERFACE: u16 = 4;
    /// Loopback is the first interface of every namespace.
    const LOOPBACK: u32 = 1;
    let family = u8::try_from(family).map_err(|_| Errno::INVAL)?;
    // nlmsghdr (16 bytes), rtmsg (12), one attribute (8).
    let mut message = [0u8; 36];
    message[..4].copy_from_slice(&36u32.to_ne_bytes());
    message[4..6].copy_from_slice(&NEW_ROUTE.to_ne_bytes());
    message[6..8].copy_from_slice(&REQUEST_ACK_EXCL_CREATE.to_ne_bytes());
    message[16] = family;
    message[20..24].copy_from_slice(&[TABLE_LOCAL, BY_BOOT, SCOPE_HOST, TYPE_LOCAL]);
    message[28..30].copy_from_slice(&8u16.to_ne_bytes());
    message[30..32].copy_from_slice(&OUTPUT_INTERFACE.to_ne_bytes());
    message[32..36].copy_from_slice(&LOOPBACK.to_ne_bytes());
    rustix::net::send(netlink, &message, SendFlags::empty())?;
    let mut answer = [0u8; 128];
    let (_, length) = rustix::net::recv(netlink, &mut answer, RecvFlags::empty())?;
    // nlmsghdr, then the error as a negative number; zero is agreement.
    match answer.get(16..20) {
        Some(&[a, b, c, d]) if length >= 20 => match i32::from_ne_bytes([a, b, c, d]) {
            0 => Ok(()),
            error => Err(Errno::from_raw_os_error(error.saturating_neg())),
        },
        _ => Err(Errno::BADMSG),
    }
}

fn listen(door: &Door) -> Result<OwnedFd, Errno> {
    let kind = match door.transport {
        Transport::Stream => SocketType::STREAM,
        Transport::Datagram => SocketType::DGRAM,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = match door.address {
        Some(address) => {
            let socket = rustix::net::socket_with(AddressFamily::INET, kind, flags, None)?;
            rustix::net::bind(&socket, &SocketAddrV4::new(address, door.port))?;
            socket
        }
        None => match rustix::net::socket_with(AddressFamily::INET6, kind, flags, None) {
            // Hears IPv4 as well.
            Ok(socket) => {
                rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
                let every = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, door.port, 0, 0);
                rustix::net::bind(&socket, &every)?;
                socket
            }
            Err(Errno::AFNOSUPPORT) => {
                let socket = rustix::net::socket_with(AddressFamily::INET, kind, flags, None)?;
                let every = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, door.port);
                rustix::net::bind(&socket, &every)?;
                socket
            }
            Err(errno) => return Err(errno),
        },
    };
    if door.transport == Transport::Stream {
        rustix::net::listen(&socket, BACKLOG)?;
    }
    Ok(socket)
}
