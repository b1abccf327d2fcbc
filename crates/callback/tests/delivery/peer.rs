//! An HTTP peer that does what a script says, with every request that it got written down.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// Whether the script had it accepted.
    pub(crate) accepted: bool,
}

impl Seen {
    pub(crate) fn key(&self) -> &str {
        self.headers
            .get("idempotency-key")
            .map_or("", String::as_str)
    }
}

/// What the peer does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Status(u16),
    /// Written as it is; then the connection is closed.
    Raw(Vec<u8>),
    /// Written as it is; then nothing more comes, and the connection stays.
    Stall(Vec<u8>),
    /// One byte every 20 ms, for ever.
    Drip,
    /// Says nothing until the other side goes.
    Never,
    /// Sends headers for as long as somebody reads them.
    EndlessHeaders,
}

type Script = dyn Fn(usize, &Seen) -> Reply + Send + Sync;

#[derive(Debug, Default)]
struct Book {
    seen: Mutex<Vec<Seen>>,
    more: Condvar,
}

#[derive(Debug)]
pub(crate) struct Peer {
    address: SocketAddr,
    book: Arc<Book>,
    gone: Arc<AtomicBool>,
}

/// An address where nobody listens yet. It is held meanwhile: a port that was let go may be anybody's.
#[derive(Debug)]
pub(crate) struct Reserved {
    socket: OwnedFd,
    address: SocketAddr,
}

impl Reserved {
    pub(crate) fn new() -> io::Result<Self> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok(Self { socket, address })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on somebody listens.
    pub(crate) fn open(
        self,
        script: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static,
    ) -> io::Result<Peer> {
        rustix::net::listen(&self.socket, 128)?;
        Peer::on(TcpListener::from(self.socket), script)
    }
}

impl Peer {
    pub(crate) fn new(script: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let peer = listener.and_then(|listener| Self::on(listener, script));
        peer.unwrap_or_else(|error| no_peer(&error))
    }

    fn on(
        listener: TcpListener,
        script: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let peer = Self {
            address: listener.local_addr()?,
            book: Arc::default(),
            gone: Arc::default(),
        };
        let (book, gone) = (Arc::clone(&peer.book), Arc::clone(&peer.gone));
        let script: Arc<Script> = Arc::new(script);
        thread::spawn(move || {
            for connection in listener.incoming() {
                if gone.load(Ordering::Acquire) {
                    return;
                }
                let (book, script) = (Arc::clone(&book), Arc::clone(&script));
                let Ok(connection) = connection else { continue };
                // What becomes of a connection is the client's affair.
                thread::spawn(move || drop(serve(&connection, &book, &*script)));
            }
        });
        Ok(peer)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        lock(&self.book.seen).clone()
    }

    /// Waits until it has seen so many requests.
    pub(crate) fn wait_for(&self, requests: usize) -> Vec<Seen> {
        let seen = lock(&self.book.seen);
        let limit = Duration::from_secs(60);
        let waited = self
            .book
            .more
            .wait_timeout_while(seen, limit, |seen| seen.len() < requests);
        let (seen, _) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(
            seen.len() >= requests,
            "only {} of {requests} came",
            seen.len()
        );
        seen.clone()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.address));
    }
}

#[allow(clippy::panic, reason = "a helper of tests")]
fn no_peer(error: &io::Error) -> Peer {
    panic!("no peer: {error}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(connection: &TcpStream, book: &Book, script: &Script) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut reader = BufReader::new(connection);
    while let Some(mut request) = read_request(&mut reader)? {
        // The script runs under the lock, so that what it sees and what is written down have one order.
        let mut seen = lock(&book.seen);
        let reply = script(seen.len(), &request);
        request.accepted = matches!(reply, Reply::Status(200..=299 | 409));
        seen.push(request);
        drop(seen);
        book.more.notify_all();
        match reply {
            Reply::Status(status) => {
                let head = format!("HTTP/1.1 {status} Said\r\nContent-Length: 2\r\n\r\n{{}}");
                (&mut &*connection).write_all(head.as_bytes())?;
            }
            other => return misbehave(connection, &other),
        }
    }
    Ok(())
}

fn misbehave(mut connection: &TcpStream, reply: &Reply) -> io::Result<()> {
    match reply {
        Reply::Raw(bytes) => connection.write_all(bytes),
        Reply::Stall(bytes) => {
            connection.write_all(bytes)?;
            connection.read(&mut [0]).map(drop)
        }
        Reply::Drip => loop {
            connection.write_all(b"H")?;
            thread::sleep(Duration::from_millis(20));
        },
        Reply::EndlessHeaders => {
            connection.write_all(b"HTTP/1.1 200 OK\r\n")?;
            loop {
                connection.write_all(
                    &b"X-Filler: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(100),
                )?;
            }
        }
        Reply::Never | Reply::Status(_) => connection.read(&mut [0]).map(drop),
    }
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Seen>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        match header.trim_end().split_once(": ") {
            Some((name, value)) => {
                let twice = headers.insert(name.to_ascii_lowercase(), value.to_owned());
                assert_eq!(twice, None, "the header {name} came twice");
            }
            None => break,
        }
    }
    let length = headers
        .get("content-length")
        .and_then(|text| text.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    Ok(Some(Seen {
        line: line.trim_end().to_owned(),
        headers,
        body,
        accepted: false,
    }))
}
