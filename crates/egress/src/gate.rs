//! Opens the ways out of one sandbox and keeps them until it is gone. One thread, whatever the program does: nothing here blocks but look-ups, which have a few threads of their own.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use cofferdam_contract::network::Allowance;
use cofferdam_contract::network_record::{NetworkEvent, NetworkOutcome, NetworkRecord, NetworkWay};
use cofferdam_contract::record::Denial;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::LocalSet;
use tokio::time::timeout;

use crate::bounds;
use crate::calls::{self, Calls, Desk};
use crate::dns::{self, Answer, Kind};
use crate::ledger::Ledger;
use crate::resolver::Resolver;
use crate::world::{NOT_LISTED, World};
use crate::{proxy, transparent};

/// A socket that listens inside, and what for.
#[derive(Debug)]
pub enum Door {
    /// Of whoever just connects.
    Direct(OwnedFd),
    /// HTTP and SOCKS.
    Proxy(OwnedFd),
    /// Questions for names, by UDP and by TCP.
    NamesByDatagram(OwnedFd),
    NamesByStream(OwnedFd),
    /// Of a program in this process.
    Calls(Desk),
}

/// The ways out of one sandbox. Dropping it closes them.
#[derive(Debug)]
pub struct Egress {
    end: Option<oneshot::Sender<()>>,
    account: mpsc::Receiver<Account>,
    thread: Option<JoinHandle<()>>,
}

/// What went through and what was turned away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub record: NetworkRecord,
    pub denials: Vec<Denial>,
}

/// How long closing may take; whatever is still looked up then is not waited for.
const LAST_WORD: Duration = Duration::from_secs(2);

impl Egress {
    pub fn open(doors: Vec<Door>, allowance: Allowance) -> io::Result<Self> {
        let (end, ended) = oneshot::channel();
        let (told, account) = mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(bounds::LOOK_UPS)
            .thread_name("cofferdam-names")
            .build()?;
        let thread = std::thread::Builder::new()
            .name("cofferdam-egress".to_owned())
            .spawn(move || {
                let world = Rc::new(World::new(allowance, Resolver::Host));
                let ledger = Rc::clone(&world.ledger);
                let set = LocalSet::new();
                set.block_on(&runtime, keep(&world, doors, ended));
                // Every connection ends here, before anything is told.
                drop(set);
                drop(world);
                runtime.shutdown_background();
                let _ = told.send(settle(ledger));
            })?;
        Ok(Self {
            end: Some(end),
            account,
            thread: Some(thread),
        })
    }

    /// The way out of a program that runs in this process.
    pub fn for_calls(allowance: Allowance) -> io::Result<(Self, Calls)> {
        let (calls, desk) = calls::line();
        Ok((Self::open(vec![Door::Calls(desk)], allowance)?, calls))
    }

    /// Closes the ways and tells what went through them.
    pub fn close(mut self) -> Account {
        self.end = None;
        match self.account.recv_timeout(LAST_WORD) {
            Ok(account) => {
                let _ = self.thread.take().map(JoinHandle::join);
                account
            }
            Err(_) => Account::lost(),
        }
    }
}

impl Account {
    /// Nobody can tell any more; that much is told.
    fn lost() -> Self {
        let event = NetworkEvent {
            at_ms: 0,
            outcome: NetworkOutcome::Failed,
            way: NetworkWay::Direct,
            host: "unknown".to_owned(),
            port: None,
            address: None,
            sent_bytes: 0,
            received_bytes: 0,
            why: Some("what went through was lost".to_owned()),
        };
        Self {
            record: NetworkRecord {
                events: vec![event],
                ..NetworkRecord::default()
            },
            denials: Vec::new(),
        }
    }
}

fn settle(ledger: Rc<RefCell<Ledger>>) -> Account {
    let ledger = match Rc::try_unwrap(ledger) {
        Ok(ledger) => ledger.into_inner(),
        // Somebody still writes into it, which nobody can after the set is gone.
        Err(_) => return Account::lost(),
    };
    let (record, denials) = ledger.into_parts();
    Account { record, denials }
}

async fn keep(world: &Rc<World>, doors: Vec<Door>, ended: oneshot::Receiver<()>) {
    for door in doors {
        // A socket that cannot be used leaves its programs without an answer; what else is there goes on.
        let _ = attend(world, door);
    }
    // Also when the other end is dropped.
    let _ = ended.await;
}

fn attend(world: &Rc<World>, door: Door) -> io::Result<()> {
    let listener = |fd: OwnedFd| -> io::Result<TcpListener> {
        let listener = std::net::TcpListener::from(fd);
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    };
    let world = Rc::clone(world);
    match door {
        Door::Direct(fd) => {
            let listener = listener(fd)?;
            tokio::task::spawn_local(accept(world, listener, Service::Direct));
        }
        Door::Proxy(fd) => {
            let listener = listener(fd)?;
            tokio::task::spawn_local(accept(world, listener, Service::Proxy));
        }
        Door::NamesByStream(fd) => {
            let listener = listener(fd)?;
            tokio::task::spawn_local(accept(world, listener, Service::Names));
        }
        Door::NamesByDatagram(fd) => {
            let socket = std::net::UdpSocket::from(fd);
            socket.set_nonblocking(true)?;
            let socket = UdpSocket::from_std(socket)?;
            tokio::task::spawn_local(answer_datagrams(world, socket));
        }
        Door::Calls(desk) => {
            tokio::task::spawn_local(calls::attend(world, desk));
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
enum Service {
    Direct,
    Proxy,
    Names,
}

/// Takes connections one by one, as many at once as there are seats; the others wait in the kernel's queue.
async fn accept(world: Rc<World>, listener: TcpListener, service: Service) {
    loop {
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(_) => {
                // No descriptors left, most likely. Others will give some back.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (Ok(seat), Ok(of_process)) = (
            std::sync::Arc::clone(&world.seats).acquire_owned().await,
            Semaphore::acquire_owned(std::sync::Arc::clone(&world.seats_of_process)).await,
        ) else {
            return;
        };
        let world = Rc::clone(&world);
        tokio::task::spawn_local(async move {
            let _seats = (seat, of_process);
            match service {
                Service::Direct => transparent::serve(&world, client).await,
                Service::Proxy => proxy::serve(&world, client).await,
                Service::Names => answer_stream(&world, client).await,
            }
        });
    }
}

async fn answer_datagrams(world: Rc<World>, socket: UdpSocket) {
    let mut buffer = [0u8; 1500];
    let mut in_one_go = 0;
    loop {
        let Ok((count, from)) = socket.recv_from(&mut buffer).await else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        if let Some(answer) = answer(&world, buffer.get(..count).unwrap_or_default()) {
            let _ = socket.try_send_to(&answer, from);
        }
        in_one_go += 1;
        if in_one_go == bounds::QUERIES_IN_ONE_GO {
            in_one_go = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Each message comes with its length.
async fn answer_stream(world: &World, mut client: TcpStream) {
    let asked = async {
        loop {
            let length = usize::from(client.read_u16().await?);
            let mut message = vec![0u8; length];
            client.read_exact(&mut message).await?;
            let Some(answer) = answer(world, &message) else {
                return io::Result::Ok(());
            };
            let length = u16::try_from(answer.len()).unwrap_or(u16::MAX);
            client.write_u16(length).await?;
            client.write_all(&answer).await?;
        }
    };
    let _ = timeout(bounds::HEAD_TIME, asked).await;
}

/// Only what may be reached has an address, and it is one that means the name.
fn answer(world: &World, message: &[u8]) -> Option<Vec<u8>> {
    let query = dns::read(message)?;
    let name = query.name.as_str();
    if name.parse::<IpAddr>().is_ok() || name.is_empty() {
        return Some(dns::write(&query, Answer::NoSuchName));
    }
    let answer = match (query.kind, address_of(world, name)) {
        (_, Err(Nameless::NotListed)) => Answer::NoSuchName,
        (_, Err(Nameless::TooMany)) => Answer::Failed,
        (Kind::A, Ok(address)) => Answer::Address(address),
        (Kind::Other, Ok(_)) => Answer::Nothing,
    };
    Some(dns::write(&query, answer))
}

/// Why a name has no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nameless {
    NotListed,
    TooMany,
}

/// The address that stands for a name; written down either way.
pub(crate) fn address_of(world: &World, name: &str) -> Result<Ipv4Addr, Nameless> {
    let refused = |nameless, why| {
        world.ledger.borrow_mut().name(name, Some(why));
        Err(nameless)
    };
    if !world.allowance.permits_name(name) {
        return refused(Nameless::NotListed, NOT_LISTED);
    }
    match world.names.borrow_mut().address_of(name) {
        None => refused(Nameless::TooMany, "too many names have been asked for"),
        Some(address) => {
            world.ledger.borrow_mut().name(name, None);
            Ok(address)
        }
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
