//! The network of a run: which ways out its sandbox has, what the program is told of them, and whoever answers there. A run without network has none of it.

use std::os::fd::OwnedFd;

use cofferdam_contract::network::{DNS_PORT, Network, PROXY_PORT};
use cofferdam_contract::network_record::NetworkRecord;
use cofferdam_contract::record::Denial;
use cofferdam_contract::request::Request;
use cofferdam_egress::{Calls, Egress, RESOLVER};
use cofferdam_sys::doors::{Door, Transport};
use cofferdam_sys::protocol::Stage;
use rustix::io::Errno;

use crate::settle::Report;

/// The sockets that listen inside for what is allowed, in the order in which they are opened.
pub(crate) fn doors(network: &Network) -> Vec<Door> {
    let Network::Allowed(allowance) = network else {
        return Vec::new();
    };
    let names = [Transport::Datagram, Transport::Stream].map(|transport| Door {
        transport,
        address: None,
        port: DNS_PORT,
    });
    let proxy = Door {
        transport: Transport::Stream,
        address: Some(RESOLVER),
        port: PROXY_PORT,
    };
    let direct = allowance.ports().into_iter().map(|port| Door {
        transport: Transport::Stream,
        address: None,
        port,
    });
    names.into_iter().chain([proxy]).chain(direct).collect()
}

/// What a file of `/etc` says where there is a way out, if that makes a difference.
pub(crate) fn etc_file(path: &str, doors: &[Door]) -> Option<Vec<u8>> {
    let is_told = path == "/etc/resolv.conf" && !doors.is_empty();
    let text = || format!("nameserver {RESOLVER}\noptions attempts:2 timeout:5\n");
    is_told.then(|| text().into_bytes())
}

/// Tells the program of the proxy, in every spelling that is in use; what the caller set itself stays.
pub(crate) fn tell_program(request: &mut Request) {
    if request.network == Network::Denied {
        return;
    }
    let proxy = format!("http://{RESOLVER}:{PROXY_PORT}");
    // It speaks SOCKS too, but many clients refuse to start when they read of that and cannot speak it.
    let near = "localhost,127.0.0.1,::1".to_owned();
    for (name, value) in [
        ("HTTP_PROXY", &proxy),
        ("HTTPS_PROXY", &proxy),
        ("ALL_PROXY", &proxy),
        ("NO_PROXY", &near),
    ] {
        for name in [name.to_owned(), name.to_ascii_lowercase()] {
            let is_set = request.env.iter().any(|(present, _)| *present == *name);
            if !is_set {
                request.env.push((name.into(), value.into()));
            }
        }
    }
}

/// Takes the sockets as they come and opens the ways once all are there.
#[derive(Debug)]
pub(crate) struct Outlet {
    network: Network,
    doors: Vec<Door>,
    taken: Vec<cofferdam_egress::Door>,
    egress: Option<Egress>,
}

impl Outlet {
    pub(crate) fn new(network: &Network) -> Self {
        Self {
            network: network.clone(),
            doors: doors(network),
            taken: Vec::new(),
            egress: None,
        }
    }

    /// For a program in this process, which calls. `None` without network.
    pub(crate) fn for_calls(network: &Network) -> Result<Option<(Self, Calls)>, Errno> {
        let Network::Allowed(allowance) = network else {
            return Ok(None);
        };
        let (egress, calls) = Egress::for_calls(allowance.clone())
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let outlet = Self {
            network: network.clone(),
            doors: Vec::new(),
            taken: Vec::new(),
            egress: Some(egress),
        };
        Ok(Some((outlet, calls)))
    }

    /// One of the sockets, by its place among the doors. A program that was promised a way and has none must not run.
    pub(crate) fn take(&mut self, index: usize, socket: OwnedFd) -> Result<(), Report> {
        self.try_take(index, socket)
            .map_err(|errno| Report::SetupFailed {
                stage: Stage::Doors,
                errno: errno.raw_os_error(),
            })
    }

    pub(crate) fn try_take(&mut self, index: usize, socket: OwnedFd) -> Result<(), Errno> {
        let door = self.doors.get(index).ok_or(Errno::BADMSG)?;
        self.taken.push(match (door.transport, door.port) {
            (Transport::Datagram, _) => cofferdam_egress::Door::NamesByDatagram(socket),
            (Transport::Stream, DNS_PORT) => cofferdam_egress::Door::NamesByStream(socket),
            (Transport::Stream, PROXY_PORT) => cofferdam_egress::Door::Proxy(socket),
            (Transport::Stream, _) => cofferdam_egress::Door::Direct(socket),
        });
        let (Network::Allowed(allowance), true) =
            (&self.network, self.taken.len() == self.doors.len())
        else {
            return Ok(());
        };
        let opened = Egress::open(std::mem::take(&mut self.taken), allowance.clone());
        self.egress =
            Some(opened.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?);
        Ok(())
    }

    /// Closes the ways. `None` for a run that had none.
    pub(crate) fn close(self) -> (Option<NetworkRecord>, Vec<Denial>) {
        match (self.network, self.egress) {
            (Network::Denied, _) => (None, Vec::new()),
            (Network::Allowed(_), None) => (Some(NetworkRecord::default()), Vec::new()),
            (Network::Allowed(_), Some(egress)) => {
                let account = egress.close();
                (Some(account.record), account.denials)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_network_has_no_way_out_and_hears_of_none() {
        assert!(doors(&Network::Denied).is_empty());
        let mut request = Request::command(["true"]);
        tell_program(&mut request);
        assert!(request.env.is_empty());
    }

    #[test]
    fn every_allowed_port_has_a_door_and_the_callers_variables_stay() {
        let network = Network::read("allow=a.example:8443,b.example").unwrap();
        let ports: Vec<u16> = doors(&network).iter().map(|door| door.port).collect();
        assert_eq!(ports, [53, 53, 1023, 80, 443, 8443]);
        let mut request = Request::command(["true"]);
        request.network = network;
        request.env.push(("https_proxy".into(), "mine".into()));
        tell_program(&mut request);
        let value = |name: &str| {
            let mut of_name = request.env.iter().filter(|(present, _)| present == name);
            let value = of_name.next().unwrap().1.to_str().unwrap().to_owned();
            assert!(of_name.next().is_none());
            value
        };
        assert_eq!(value("https_proxy"), "mine");
        assert_eq!(value("HTTPS_PROXY"), "http://198.18.0.1:1023");
        assert_eq!(value("no_proxy"), "localhost,127.0.0.1,::1");
    }
}
