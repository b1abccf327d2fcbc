//! The first question to a daemon: who it is and which API it speaks. Asked by hand, since the answer is in the head of a message whose body is all that the client
//! library shows, and since the question that the library would ask takes the daemon fifteen milliseconds.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use crate::daemon::{Flavour, Maker};
use crate::settings::Endpoint;

const QUESTION: &[u8] = b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n";
/// No daemon has more to say.
const LONGEST: u64 = 64 * 1024;
/// Of a daemon that does not say: one that every daemon of the last years has.
const OLDEST: usize = 41;

pub(crate) async fn ask(endpoint: &Endpoint) -> io::Result<Flavour> {
    let head = match endpoint {
        Endpoint::Unix(path) => exchange(UnixStream::connect(path).await?).await?,
        Endpoint::Tcp(place) => exchange(TcpStream::connect(place).await?).await?,
    };
    read(&head).ok_or_else(|| {
        let why = "what answers there is no container daemon";
        io::Error::new(io::ErrorKind::InvalidData, why)
    })
}

async fn exchange(mut peer: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<String> {
    peer.write_all(QUESTION).await?;
    let mut answer = Vec::new();
    peer.take(LONGEST).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn read(answer: &str) -> Option<Flavour> {
    let mut lines = answer.lines();
    if !lines.next()?.split(' ').nth(1)?.starts_with('2') {
        return None;
    }
    let mut told = Flavour {
        maker: Maker::Docker,
        minor: OLDEST,
    };
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        match name.to_ascii_lowercase().as_str() {
            "api-version" => told.minor = value.trim().strip_prefix("1.")?.parse().ok()?,
            "libpod-api-version" => told.maker = Maker::Podman,
            _ => {}
        }
    }
    Some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_says_who_it_is() {
        let docker = "HTTP/1.0 200 OK\r\nApi-Version: 1.41\r\nServer: Docker/20.10\r\n\r\nOK";
        let expected = Flavour {
            maker: Maker::Docker,
            minor: 41,
        };
        assert_eq!(read(docker), Some(expected));
        let podman = "HTTP/1.1 200 OK\r\nApi-Version: 1.40\r\nLibpod-Api-Version: 4.3.1\r\n\r\nOK";
        let expected = Flavour {
            maker: Maker::Podman,
            minor: 40,
        };
        assert_eq!(read(podman), Some(expected));
    }

    #[test]
    fn what_is_no_daemon_is_not_taken_for_one() {
        for answer in [
            "",
            "SSH-2.0-OpenSSH",
            "HTTP/1.1 404 Not Found\r\n\r\n",
            "HTTP/1.1 200 OK\r\nApi-Version: 2.0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
        ] {
            assert_eq!(read(answer), None, "{answer}");
        }
    }
}
