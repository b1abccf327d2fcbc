//! The way out of a program that runs in this process. It has no namespace whose every address leads here: it asks for names and hands the ends of its connections over itself, each with the address that it means.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;

use cofferdam_contract::network_record::NetworkWay;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use url::Host;

use crate::bounds;
use crate::gate;
use crate::refusal::Refusal;
use crate::transparent::Visit;
use crate::world::World;

/// Whoever has one reaches what is allowed, and nothing else.
#[derive(Debug, Clone)]
pub struct Calls(mpsc::Sender<Call>);

/// What became of an attempt; `None` while it goes on.
pub type Reached = watch::Receiver<Option<Result<(), Unreached>>>;

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreached {
    Denied,
    Failed,
}

/// Where calls are answered.
#[derive(Debug)]
pub struct Desk(mpsc::Receiver<Call>);

#[derive(Debug)]
enum Call {
    Name {
        name: String,
        answer: oneshot::Sender<Option<IpAddr>>,
    },
    Connect {
        to: SocketAddr,
        end: UnixStream,
        answer: watch::Sender<Option<Result<(), Unreached>>>,
    },
}

/// Of a name, with its last dot. What is longer is none, and is not written down.
const LONGEST_NAME: usize = 254;
/// Calls that wait for an answer.
const WAITING: usize = 64;

/// A way to call, and where it leads.
pub(crate) fn line() -> (Calls, Desk) {
    let (calls, desk) = mpsc::channel(WAITING);
    (Calls(calls), Desk(desk))
}

impl Calls {
    /// The address that stands for a name. It means the name and nothing else, and only here.
    pub async fn resolve(&self, name: String) -> Option<IpAddr> {
        if name.len() > LONGEST_NAME {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        self.0.send(Call::Name { name, answer }).await.ok()?;
        answered.await.ok().flatten()
    }

    /// One end of a connection that is being made, and what becomes of it.
    pub fn connect(&self, to: SocketAddr) -> io::Result<(UnixStream, Reached)> {
        let (near, end) = UnixStream::pair()?;
        let (answer, reached) = watch::channel(None);
        let call = Call::Connect { to, end, answer };
        self.0
            .try_send(call)
            .map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))?;
        Ok((near, reached))
    }
}

pub(crate) async fn attend(world: Rc<World>, mut desk: Desk) {
    while let Some(call) = desk.0.recv().await {
        match call {
            Call::Name { name, answer } => {
                let _ = answer.send(address_of(&world, &name));
            }
            Call::Connect { to, end, answer } => {
                tokio::task::spawn_local(connect(Rc::clone(&world), to, end, answer));
            }
        }
    }
}

/// One that is spelled out is itself; whether it may be reached is decided when it is.
fn address_of(world: &World, name: &str) -> Option<IpAddr> {
    match Host::parse(name.trim_end_matches('.')) {
        Ok(Host::Domain(name)) => gate::address_of(world, &name).ok().map(IpAddr::from),
        Ok(Host::Ipv4(v4)) => Some(v4.into()),
        Ok(Host::Ipv6(v6)) => Some(v6.into()),
        Err(_) => name.parse().ok(),
    }
}

async fn connect(
    world: Rc<World>,
    to: SocketAddr,
    end: UnixStream,
    answer: watch::Sender<Option<Result<(), Unreached>>>,
) {
    let visit = Visit {
        world: &world,
        way: NetworkWay::Direct,
        target: world.target_of(to.ip()),
        port: to.port(),
    };
    let tell = |reached| {
        let _ = answer.send(Some(reached));
    };
    if visit.admitted().is_err() {
        return tell(Err(Unreached::Denied));
    }
    // There is no queue of the kernel's to wait in.
    let seats = (
        Arc::clone(&world.seats).try_acquire_owned(),
        bounds::of_process().try_acquire_owned(),
    );
    let (Ok(_seat), Ok(_of_process)) = seats else {
        let why = "there are too many connections at once";
        let peer = visit.target.peer(visit.port);
        world.ledger.borrow_mut().failed(visit.way, &peer, why);
        return tell(Err(Unreached::Failed));
    };
    match (visit.dial().await, stream(end)) {
        (Ok(dialled), Ok(client)) => {
            tell(Ok(()));
            visit.carry(client, dialled, Vec::new()).await;
        }
        (Err((Refusal::NotAllowed, _)), _) => tell(Err(Unreached::Denied)),
        (Err((Refusal::NotReached, _)), _) | (Ok(_), Err(_)) => tell(Err(Unreached::Failed)),
    }
}

/// Read, written and shut down as one of TCP is, which is all that is done with it.
fn stream(end: UnixStream) -> io::Result<TcpStream> {
    end.set_nonblocking(true)?;
    TcpStream::from_std(std::net::TcpStream::from(OwnedFd::from(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_than_a_name_is_not_asked_for() {
        let (calls, mut desk) = line();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(async {
            let long = "a".repeat(LONGEST_NAME + 1);
            assert_eq!(calls.resolve(long).await, None);
        });
        assert!(desk.0.try_recv().is_err(), "nobody was asked");
    }
}
