//! Connects to whom a program may reach: looks its name up, checks the addresses, and connects to one that passed and to no other, so that nothing can be put in its place between.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use cofferdam_contract::network::Upstream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::bounds;
use crate::world::{Target, World};

/// A connection, and whom it leads to.
#[derive(Debug)]
pub(crate) struct Dialled {
    pub(crate) stream: TcpStream,
    pub(crate) address: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Undialled {
    /// The name leads where nobody may go.
    Denied(String),
    Failed(String),
}

/// The target has been admitted.
pub(crate) async fn dial(world: &World, target: &Target, port: u16) -> Result<Dialled, Undialled> {
    if let Some(upstream) = &world.allowance.upstream {
        return through(upstream, world, target, port).await;
    }
    let addresses = match target {
        Target::Address(address) => vec![*address],
        Target::Name(name) => reachable(world, name, port).await?,
    };
    connect(&addresses, port, bounds::CONNECT_TIME).await
}

/// The addresses of a name that may be connected to. One that may not does not spoil the others, but a name that has none else is denied.
async fn reachable(world: &World, name: &str, port: u16) -> Result<Vec<IpAddr>, Undialled> {
    let found = world
        .resolver
        .look_up(name, port, bounds::LOOK_UP_TIME)
        .await
        .map_err(Undialled::Failed)?;
    let mut refused = None;
    let mut usable = Vec::new();
    for address in found {
        match world.allowance.check_address(address) {
            Ok(()) => usable.push(address),
            Err(why) => refused = Some(format!("its name leads to {address}, {why}")),
        }
    }
    match refused {
        Some(why) if usable.is_empty() => Err(Undialled::Denied(why)),
        _ => Ok(usable),
    }
}

/// One after the other. Each gets its share of the time that is left: one that does not answer must not keep the others from being tried.
async fn connect(addresses: &[IpAddr], port: u16, within: Duration) -> Result<Dialled, Undialled> {
    const MOST_TRIED: u32 = 4;
    let until = Instant::now() + within;
    let mut failure = "there is no address".to_owned();
    let to_try = u32::try_from(addresses.len()).map_or(MOST_TRIED, |count| count.min(MOST_TRIED));
    for (address, remaining) in addresses.iter().zip((1..=to_try).rev()) {
        let address = SocketAddr::new(*address, port);
        let now = Instant::now();
        let share = until.saturating_duration_since(now) / remaining;
        match timeout_at(now + share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                return Ok(Dialled {
                    stream,
                    address: address.to_string(),
                });
            }
            Ok(Err(error)) => failure = format!("{address}: {}", words(&error)),
            Err(_) => failure = format!("{address}: nobody answered in time"),
        }
    }
    Err(Undialled::Failed(failure))
}

fn words(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => rustix::io::Errno::from_raw_os_error(number).to_string(),
        None => error.kind().to_string(),
    }
}

/// By `CONNECT` through the operator's proxy, which looks names up itself: an address that is spelled out has been checked, one that a name leads to is the proxy's to judge.
async fn through(
    upstream: &Upstream,
    world: &World,
    target: &Target,
    port: u16,
) -> Result<Dialled, Undialled> {
    let failed = |why: String| Undialled::Failed(format!("{upstream}: {why}"));
    let found = match upstream.host.parse::<IpAddr>() {
        Ok(address) => vec![address],
        Err(_) => {
            let asked = world
                .resolver
                .look_up(&upstream.host, upstream.port, bounds::LOOK_UP_TIME);
            asked.await.map_err(failed)?
        }
    };
    let dialled = connect(&found, upstream.port, bounds::CONNECT_TIME).await;
    let mut dialled = dialled.map_err(|undialled| match undialled {
        Undialled::Failed(why) => failed(why),
        denied @ Undialled::Denied(_) => denied,
    })?;
    let peer = target.peer(port);
    let whom = format!("{}:{}", peer.host, peer.port);
    let request = format!("CONNECT {whom} HTTP/1.1\r\nHost: {whom}\r\n\r\n");
    let until = Instant::now() + bounds::CONNECT_TIME;
    let answer = timeout_at(until, ask(&mut dialled.stream, request.as_bytes())).await;
    match answer {
        Ok(Ok(200..=299)) => Ok(Dialled {
            address: format!("{} by {upstream}", peer.host),
            ..dialled
        }),
        Ok(Ok(status)) => Err(failed(format!("it answered {status}"))),
        Ok(Err(error)) => Err(failed(words(&error))),
        Err(_) => Err(failed("it did not answer in time".to_owned())),
    }
}

/// Byte by byte, since what follows the head is the server's.
async fn ask(stream: &mut TcpStream, request: &[u8]) -> std::io::Result<u16> {
    stream.write_all(request).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < bounds::HEAD_BYTES {
        head.push(stream.read_u8().await?);
    }
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let bad = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    response.parse(&head).map_err(|_| bad())?;
    response.code.ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn an_address_that_does_not_answer_does_not_keep_the_next_from_being_tried() {
        let first = Ipv4Addr::new(127, 0, 0, 1);
        let second = Ipv4Addr::new(127, 0, 0, 2);
        // Whom nobody takes in: when its queue is full, the kernel answers nobody else.
        let full = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&full, &SocketAddr::from((first, 0))).unwrap();
        listen(&full, 0).unwrap();
        let full = std::net::TcpListener::from(full);
        let port = full.local_addr().unwrap().port();
        let _queued = std::net::TcpStream::connect((first, port)).unwrap();
        // The same number at another address is nobody else's as a rule; where it is, that one answers as well.
        let _answers = tokio::net::TcpListener::bind((second, port)).await;
        let within = Duration::from_secs(8);
        let dialled = connect(&[first.into(), second.into()], port, within).await;
        assert_eq!(dialled.unwrap().address, format!("{second}:{port}"));
    }
}
