//! What a component reaches of a network, laid over the calls of preview 2: names are answered and connections are made by whoever holds what is allowed, as for every other backend. The sockets of the engine
//! itself are never bound and never connected: they are the names of ours.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use cofferdam_engine::backend::{Calls, Reached, Unreached};
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi::p2::bindings::sockets::ip_name_lookup::{Host as _, ResolveAddressStream};
use wasmtime_wasi::p2::bindings::sockets::network::{
    ErrorCode, IpAddressFamily, IpSocketAddress, Network,
};
use wasmtime_wasi::p2::bindings::sockets::tcp::{HostTcpSocket, ShutdownType};
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, DynPollable, Pollable, SocketResult, TcpSocket, subscribe,
};
use wasmtime_wasi::sockets::{WasiSocketsCtxView, WasiSocketsView as _};

use crate::connection::{Line, Receiving, Sending};
use crate::guest::Guest;

/// As the engine's own bindings are called; a test sees it when they change.
const TCP: &str = "wasi:sockets/tcp@0.2.12";
const NAMES: &str = "wasi:sockets/ip-name-lookup@0.2.12";

/// Where a program seems to be: in the range whose addresses mean names, before the first of them.
const HERE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const FIRST_PORT: u16 = 49152;

/// The way out of one program, and its connections by their sockets.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// `None` where there is no way out.
    pub(crate) calls: Option<Calls>,
    connections: HashMap<u32, Connection>,
}

#[derive(Debug)]
struct Connection {
    /// As the program sees it.
    peer: SocketAddr,
    state: State,
}

#[derive(Debug)]
enum State {
    Trying {
        end: std::os::unix::net::UnixStream,
        reached: Reached,
    },
    Connected(Line),
    Failed,
}

/// Ready when it is known what becomes of a connection.
struct Attempt(Reached);

#[wasmtime_wasi::async_trait]
impl Pollable for Attempt {
    async fn ready(&mut self) {
        let _ = self.0.wait_for(Option::is_some).await;
    }
}

type Asked<'a> = StoreContextMut<'a, Guest>;

pub(crate) fn lay_over(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut names = linker.instance(NAMES)?;
    names.func_wrap_async(
        "resolve-addresses",
        |mut store: Asked<'_>, (network, name): (Resource<Network>, String)| {
            Box::new(async move { Ok((told(resolve(&mut store, network, name).await)?,)) })
        },
    )?;
    let mut tcp = linker.instance(TCP)?;
    tcp.resource(
        "tcp-socket",
        ResourceType::host::<TcpSocket>(),
        |mut store, rep| {
            store.data_mut().reach.connections.remove(&rep);
            HostTcpSocket::drop(&mut sockets(&mut store), Resource::new_own(rep))
        },
    )?;
    tcp.func_wrap(
        "[method]tcp-socket.start-connect",
        |mut store: Asked<'_>,
         (socket, network, to): (Resource<TcpSocket>, Resource<Network>, IpSocketAddress)| {
            Ok((told(start(&mut store, &socket, &network, to))?,))
        },
    )?;
    tcp.func_wrap(
        "[method]tcp-socket.finish-connect",
        |mut store: Asked<'_>, (socket,): (Resource<TcpSocket>,)| {
            Ok((told(finish(&mut store, &socket))?,))
        },
    )?;
    tcp.func_wrap(
        "[method]tcp-socket.subscribe",
        |mut store: Asked<'_>, (socket,): (Resource<TcpSocket>,)| {
            Ok((wait_for(&mut store, socket)?,))
        },
    )?;
    tcp.func_wrap(
        "[method]tcp-socket.local-address",
        |mut store: Asked<'_>, (socket,): (Resource<TcpSocket>,)| {
            let port = u16::try_from(socket.rep() % u32::from(u16::MAX - FIRST_PORT));
            let port = FIRST_PORT + port.unwrap_or_default();
            let here = SocketAddrV4::new(HERE, port).into();
            let connected = told(connected(&mut store, &socket).map(|_| address(here)))?;
            Ok((connected,))
        },
    )?;
    tcp.func_wrap(
        "[method]tcp-socket.remote-address",
        |mut store: Asked<'_>, (socket,): (Resource<TcpSocket>,)| {
            let connected = connected(&mut store, &socket);
            Ok((told(connected.map(|(peer, _)| address(peer)))?,))
        },
    )?;
    tcp.func_wrap(
        "[method]tcp-socket.shutdown",
        |mut store: Asked<'_>, (socket, how): (Resource<TcpSocket>, ShutdownType)| {
            let connected = connected(&mut store, &socket);
            Ok((told(connected.map(|(_, line)| line.shut_down(how.into())))?,))
        },
    )
}

fn sockets<'a>(store: &'a mut Asked<'_>) -> WasiSocketsCtxView<'a> {
    store.data_mut().sockets()
}

/// An error code for the program, or the end of it.
fn told<T>(done: SocketResult<T>) -> wasmtime::Result<Result<T, ErrorCode>> {
    match done {
        Ok(value) => Ok(Ok(value)),
        Err(error) => error.downcast().map(Err),
    }
}

/// The engine gives back an address that is spelled out, without asking anybody.
async fn resolve(
    store: &mut Asked<'_>,
    network: Resource<Network>,
    name: String,
) -> SocketResult<Resource<ResolveAddressStream>> {
    let Some(calls) = store.data().reach.calls.clone() else {
        return Err(ErrorCode::PermanentResolverFailure.into());
    };
    let Some(found) = calls.resolve(name).await else {
        return Err(ErrorCode::NameUnresolvable.into());
    };
    sockets(store).resolve_addresses(network, found.to_string())
}

fn start(
    store: &mut Asked<'_>,
    socket: &Resource<TcpSocket>,
    network: &Resource<Network>,
    to: IpSocketAddress,
) -> SocketResult<()> {
    let guest = store.data_mut();
    guest.ctx().table.get(network)?;
    let family = guest
        .sockets()
        .address_family(Resource::new_borrow(socket.rep()))
        .map_err(wasmtime_wasi::p2::SocketError::trap)?;
    let peer = SocketAddr::from(to);
    let fits = match (family, peer.ip()) {
        (IpAddressFamily::Ipv4, IpAddr::V4(_)) => true,
        (IpAddressFamily::Ipv6, IpAddr::V6(v6)) => v6.to_ipv4_mapped().is_none(),
        _ => false,
    };
    if !fits || peer.port() == 0 || peer.ip().is_unspecified() || peer.ip().is_multicast() {
        return Err(ErrorCode::InvalidArgument.into());
    }
    let reach = &mut guest.reach;
    match reach.connections.get(&socket.rep()).map(|one| &one.state) {
        None => {}
        Some(State::Trying { .. }) => return Err(ErrorCode::ConcurrencyConflict.into()),
        Some(State::Connected(_) | State::Failed) => return Err(ErrorCode::InvalidState.into()),
    }
    let Some(calls) = &reach.calls else {
        return Err(ErrorCode::AccessDenied.into());
    };
    // More at once than are listened to, or no descriptor left.
    let (end, reached) = calls.connect(peer).map_err(|_| ErrorCode::NewSocketLimit)?;
    let state = State::Trying { end, reached };
    let connection = Connection { peer, state };
    reach.connections.insert(socket.rep(), connection);
    Ok(())
}

fn finish(
    store: &mut Asked<'_>,
    socket: &Resource<TcpSocket>,
) -> SocketResult<(Resource<DynInputStream>, Resource<DynOutputStream>)> {
    let guest = store.data_mut();
    let Some(connection) = guest.reach.connections.get_mut(&socket.rep()) else {
        return Err(ErrorCode::NotInProgress.into());
    };
    let State::Trying { reached, .. } = &connection.state else {
        return Err(ErrorCode::NotInProgress.into());
    };
    // Whoever went away without an answer has ended the run.
    let became = *reached.borrow();
    let became = match (became, reached.has_changed()) {
        (Some(became), _) => became,
        (None, Ok(_)) => return Err(ErrorCode::WouldBlock.into()),
        (None, Err(_)) => Err(Unreached::Failed),
    };
    let State::Trying { end, .. } = std::mem::replace(&mut connection.state, State::Failed) else {
        return Err(ErrorCode::NotInProgress.into());
    };
    match became {
        Ok(()) => {}
        Err(Unreached::Denied) => return Err(ErrorCode::AccessDenied.into()),
        Err(Unreached::Failed) => return Err(ErrorCode::RemoteUnreachable.into()),
    }
    let line = Line::new(end).map_err(|_| ErrorCode::OutOfMemory)?;
    let input: DynInputStream = Box::new(Receiving::new(&line));
    let output: DynOutputStream = Box::new(Sending::new(&line));
    connection.state = State::Connected(line);
    let table = guest.wasi.ctx().table;
    let input = table.push_child(input, socket)?;
    let output = table.push_child(output, socket)?;
    Ok((input, output))
}

fn wait_for(
    store: &mut Asked<'_>,
    socket: Resource<TcpSocket>,
) -> wasmtime::Result<Resource<DynPollable>> {
    let connection = store.data().reach.connections.get(&socket.rep());
    let Some(State::Trying { reached, .. }) = connection.map(|one| &one.state) else {
        return sockets(store).subscribe(socket);
    };
    let attempt = Attempt(reached.clone());
    let table = store.data_mut().wasi.ctx().table;
    let attempt = table.push(attempt)?;
    subscribe(table, attempt)
}

fn connected(
    store: &mut Asked<'_>,
    socket: &Resource<TcpSocket>,
) -> SocketResult<(SocketAddr, Line)> {
    let connection = store.data().reach.connections.get(&socket.rep());
    match connection {
        Some(Connection {
            peer,
            state: State::Connected(line),
        }) => Ok((*peer, line.clone())),
        _ => Err(ErrorCode::InvalidState.into()),
    }
}

fn address(address: SocketAddr) -> IpSocketAddress {
    address.into()
}
