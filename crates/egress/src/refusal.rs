//! How a client is refused: in its own words where it speaks something known, so that a person reads a reason and not a riddle.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::bounds;
use crate::ledger::Peer;
use crate::opening::{self, Tongue};

/// Why there is nothing to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    NotAllowed,
    NotReached,
}

/// A fatal alert: access_denied, or internal_error.
const TLS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];
const TLS_FAILED: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

/// For a client that has said nothing yet, or whose first bytes are in `said`.
pub(crate) async fn refuse(
    mut client: TcpStream,
    said: Vec<u8>,
    why: &str,
    peer: &Peer,
    how: Refusal,
) {
    let mut said = said;
    if said.is_empty() {
        let mut buffer = [0u8; 1024];
        if let Ok(Ok(count)) = timeout(bounds::REFUSAL_TIME, client.read(&mut buffer)).await {
            said.extend(buffer.get(..count).unwrap_or_default());
        }
    }
    let answer = match (opening::tongue(&said), how) {
        (Tongue::Tls, Refusal::NotAllowed) => TLS_DENIED.to_vec(),
        (Tongue::Tls, Refusal::NotReached) => TLS_FAILED.to_vec(),
        (Tongue::Http, how) => http(how, why, peer),
        (Tongue::Other, _) => Vec::new(),
    };
    say(client, &answer).await;
}

/// An answer of a proxy, or of whoever stands in for the server.
pub(crate) fn http(how: Refusal, why: &str, peer: &Peer) -> Vec<u8> {
    let (status, verb) = match how {
        Refusal::NotAllowed => ("403 Forbidden", "may not be reached"),
        Refusal::NotReached => ("502 Bad Gateway", "cannot be reached"),
    };
    let body = format!("cofferdam: {}:{} {verb}: {why}\n", peer.host, peer.port);
    response(status, &body)
}

pub(crate) fn response(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").into_bytes()
}

/// Says it and is done. What the client still sends is read for a moment: closing on it would throw the answer away. Who gets no answer is reset.
pub(crate) async fn say(mut client: TcpStream, answer: &[u8]) {
    if answer.is_empty() {
        let _ = rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO));
        return;
    }
    let farewell = async {
        client.write_all(answer).await?;
        client.shutdown().await?;
        let mut buffer = [0u8; 1024];
        while client.read(&mut buffer).await? > 0 {}
        std::io::Result::Ok(())
    };
    let _ = timeout(bounds::REFUSAL_TIME, farewell).await;
}
