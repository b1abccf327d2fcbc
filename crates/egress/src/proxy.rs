//! The proxy that the variables inside point to: HTTP and SOCKS5 at one port, told apart by the first byte.

use cofferdam_contract::network_record::NetworkWay;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use url::Host;

use crate::bounds;
use crate::head::{self, Errand, Head};
use crate::refusal::{self, Refusal};
use crate::socks::{self, Offer, Reply, Said};
use crate::transparent::Visit;
use crate::world::World;

pub(crate) async fn serve(world: &World, client: TcpStream) {
    let _ = client.set_nodelay(true);
    let mut caller = Caller {
        client,
        said: Vec::new(),
        until: Instant::now() + bounds::HEAD_TIME,
    };
    match caller.read_more().await {
        Ok(()) if caller.said.first() == Some(&socks::VERSION) => socks5(world, caller).await,
        Ok(()) => http(world, caller).await,
        Err(Silent) => {}
    }
}

/// Somebody who is saying what they want, within time and length.
struct Caller {
    client: TcpStream,
    /// Read and not yet dealt with.
    said: Vec<u8>,
    until: Instant,
}

/// Nothing more comes, or too much, or too late.
struct Silent;

impl Caller {
    async fn read_more(&mut self) -> Result<(), Silent> {
        if self.said.len() >= bounds::HEAD_BYTES {
            return Err(Silent);
        }
        let mut buffer = [0u8; 4096];
        match timeout_at(self.until, self.client.read(&mut buffer)).await {
            Ok(Ok(count)) if count > 0 => {
                self.said.extend(buffer.get(..count).unwrap_or_default());
                Ok(())
            }
            _ => Err(Silent),
        }
    }

    /// Forgets what has been dealt with.
    fn done(&mut self, bytes: usize) {
        self.said.drain(..bytes.min(self.said.len()));
    }
}

async fn http(world: &World, mut caller: Caller) {
    let request = loop {
        match head::read(&caller.said) {
            Head::Whole(request) => break request,
            Head::Malformed => return bad(caller, "this is no HTTP request").await,
            Head::Partial => {
                if caller.read_more().await.is_err() {
                    return bad(caller, "the request took too long, or is too long").await;
                }
            }
        }
    };
    caller.done(request.length);
    match request.errand() {
        Err(why) => bad(caller, why).await,
        Ok(Errand::Connect { host, port }) => {
            const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
            let visit = visit(world, NetworkWay::HttpProxy, host, port);
            tunnel(visit, caller, ESTABLISHED, |how, why, visit| {
                refusal::http(how, why, &visit.target.peer(visit.port))
            })
            .await;
        }
        Ok(Errand::Forward { host, port, head }) => {
            let visit = visit(world, NetworkWay::HttpProxy, host, port);
            caller.said.splice(0..0, head);
            tunnel(visit, caller, &[], |how, why, visit| {
                refusal::http(how, why, &visit.target.peer(visit.port))
            })
            .await;
        }
    }
}

async fn socks5(world: &World, mut caller: Caller) {
    let offer = loop {
        match socks::greeting(&caller.said) {
            Said::Whole(offer, length) => {
                caller.done(length);
                break offer;
            }
            Said::Malformed => return,
            Said::Partial if caller.read_more().await.is_err() => return,
            Said::Partial => {}
        }
    };
    if offer == Offer::OnlyOthers {
        return refusal::say(caller.client, &socks::NO_OFFER_TAKEN).await;
    }
    if caller.client.write_all(&socks::NO_PROOF).await.is_err() {
        return;
    }
    let request = loop {
        match socks::request(&caller.said) {
            Said::Whole(request, length) => {
                caller.done(length);
                break request;
            }
            Said::Malformed => {
                return refusal::say(caller.client, &socks::reply(Reply::Unsupported)).await;
            }
            Said::Partial if caller.read_more().await.is_err() => return,
            Said::Partial => {}
        }
    };
    let socks::Request::Connect { host, port } = request else {
        return refusal::say(caller.client, &socks::reply(Reply::Unsupported)).await;
    };
    let visit = visit(world, NetworkWay::Socks, host, port);
    let connected = socks::reply(Reply::Connected);
    tunnel(visit, caller, &connected, |how, _, _| {
        let reply = match how {
            Refusal::NotAllowed => Reply::NotAllowed,
            Refusal::NotReached => Reply::Unreachable,
        };
        socks::reply(reply).to_vec()
    })
    .await;
}

fn visit(world: &World, way: NetworkWay, host: Host, port: u16) -> Visit<'_> {
    Visit {
        world,
        way,
        target: world.target_named(host),
        port,
    }
}

/// Connects, says so, and carries everything; or says why not.
async fn tunnel(
    visit: Visit<'_>,
    mut caller: Caller,
    established: &[u8],
    refused: impl Fn(Refusal, &str, &Visit<'_>) -> Vec<u8>,
) {
    let dialled = match visit.admitted() {
        Ok(()) => visit.dial().await,
        Err(why) => Err((Refusal::NotAllowed, why)),
    };
    match dialled {
        Ok(dialled) => {
            if caller.client.write_all(established).await.is_ok() {
                visit.carry(caller.client, dialled, caller.said).await;
            }
        }
        Err((how, why)) => refusal::say(caller.client, &refused(how, &why, &visit)).await,
    }
}

async fn bad(caller: Caller, why: &str) {
    let body = format!("cofferdam: {why}\n");
    refusal::say(caller.client, &refusal::response("400 Bad Request", &body)).await;
}
