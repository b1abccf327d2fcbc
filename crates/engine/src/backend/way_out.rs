//! The network of a program that runs in somebody else's walls: the same sockets, the same gate and the same account as in our own, made in a network namespace that was there before.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use cofferdam_contract::network::{Network, PROXY_PORT};
use cofferdam_contract::network_record::NetworkRecord;
use cofferdam_contract::record::Denial;
use cofferdam_contract::request::Request;
use cofferdam_egress::{Calls, RESOLVER};
use cofferdam_sys::{doors, usher};
use rustix::io::Errno;

use crate::outlet::{self, Outlet};

/// The ways out of one sandbox. Dropping it closes them.
#[derive(Debug)]
pub struct WayOut(Outlet);

/// Where names are asked for inside.
pub const NAME_SERVER: std::net::Ipv4Addr = RESOLVER;

impl WayOut {
    /// Opens everything that `network` allows, in the namespace. Nobody may be in it who runs already, but the [usher](usher_program).
    pub fn open(network: &Network, namespace: OwnedFd) -> Result<Self, Errno> {
        let mut outlet = Outlet::new(network);
        let mut doors: Vec<_> = outlet::doors(network).into_iter().enumerate().collect();
        // The usher knocks there: what it finds open, everybody finds open.
        doors.sort_by_key(|(_, door)| door.port == PROXY_PORT);
        let wanted = doors.iter().map(|(_, door)| *door).collect();
        let sockets = doors::open_in(namespace, wanted)?;
        for ((index, _), socket) in doors.into_iter().zip(sockets) {
            outlet.try_take(index, socket)?;
        }
        Ok(Self(outlet))
    }

    /// For a program that runs in this process: it asks for names, and hands its ends over. `None` where no network is allowed.
    pub fn for_calls(network: &Network) -> Result<Option<(Self, Calls)>, Errno> {
        let opened = Outlet::for_calls(network)?;
        Ok(opened.map(|(outlet, calls)| (Self(outlet), calls)))
    }

    /// Closes the ways and tells what went through them.
    pub fn close(self) -> (Option<NetworkRecord>, Vec<Denial>) {
        self.0.close()
    }
}

/// An executable that waits until the ways are open, and then becomes the program. Its arguments are the paths to try, an empty one, and the program's own.
pub fn usher_program() -> Vec<u8> {
    usher::executable(SocketAddrV4::new(RESOLVER, PROXY_PORT))
}

/// Tells the program of the proxy; nothing without network.
pub fn tell_program(request: &mut Request) {
    outlet::tell_program(request);
}
