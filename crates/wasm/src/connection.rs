//! One connection of a component: the end that it reads from and the one that it writes to. Never waits where the program did not ask for it.

use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf as _, Bytes};
use tokio::net::UnixStream;
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError};

/// As much as is read, or taken to be written, at once.
const PIECE: usize = 64 << 10;

/// Both directions. What is written waits here where the other end takes its time.
#[derive(Debug, Clone)]
pub(crate) struct Line(Arc<Both>);

#[derive(Debug)]
struct Both {
    stream: UnixStream,
    sending: Mutex<Outgoing>,
}

#[derive(Debug, Default)]
struct Outgoing {
    waiting: Bytes,
    is_over: bool,
    is_shut: bool,
}

impl Line {
    pub(crate) fn new(end: std::os::unix::net::UnixStream) -> io::Result<Self> {
        end.set_nonblocking(true)?;
        let both = Both {
            stream: UnixStream::from_std(end)?,
            sending: Mutex::default(),
        };
        Ok(Self(Arc::new(both)))
    }

    /// What was taken to be written goes out first.
    pub(crate) fn shut_down(&self, how: Shutdown) {
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            let _ = rustix::net::shutdown(&self.0.stream, rustix::net::Shutdown::Read);
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            self.outgoing().is_over = true;
            let _ = self.push();
        }
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        let sending = self.0.sending.lock();
        sending.unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes as much of what waits as the other end takes now.
    fn push(&self) -> io::Result<()> {
        let mut out = self.outgoing();
        while !out.waiting.is_empty() {
            match self.0.stream.try_write(&out.waiting) {
                Ok(written) => out.waiting.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    out.waiting.clear();
                    out.is_over = true;
                    return Err(error);
                }
            }
        }
        if out.is_over && !out.is_shut {
            out.is_shut = true;
            let _ = rustix::net::shutdown(&self.0.stream, rustix::net::Shutdown::Write);
        }
        Ok(())
    }

    /// Until nothing waits any more.
    async fn drained(&self) {
        while !self.outgoing().waiting.is_empty() {
            if self.0.stream.writable().await.is_err() || self.push().is_err() {
                return;
            }
        }
    }
}

pub(crate) struct Receiving(Line);

impl Receiving {
    pub(crate) fn new(line: &Line) -> Self {
        Self(line.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Receiving {
    async fn ready(&mut self) {
        let _ = self.0.0.stream.readable().await;
    }
}

impl InputStream for Receiving {
    fn read(&mut self, size: usize) -> Result<Bytes, StreamError> {
        if size == 0 {
            return Ok(Bytes::new());
        }
        let mut piece = vec![0; size.min(PIECE)];
        match self.0.0.stream.try_read(&mut piece) {
            Ok(0) => Err(StreamError::Closed),
            Ok(count) => {
                piece.truncate(count);
                Ok(piece.into())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Bytes::new()),
            Err(_) => Err(StreamError::Closed),
        }
    }
}

pub(crate) struct Sending(Line);

impl Sending {
    pub(crate) fn new(line: &Line) -> Self {
        Self(line.clone())
    }

    fn push(&self) -> Result<(), StreamError> {
        self.0.push().map_err(|_| StreamError::Closed)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Sending {
    async fn ready(&mut self) {
        self.0.drained().await;
    }
}

impl OutputStream for Sending {
    fn write(&mut self, bytes: Bytes) -> Result<(), StreamError> {
        let mut out = self.0.outgoing();
        if out.is_over {
            return Err(StreamError::Closed);
        }
        // It was told how much there is room for.
        if !out.waiting.is_empty() || bytes.len() > PIECE {
            return Err(StreamError::trap("more was written than there is room for"));
        }
        out.waiting = bytes;
        drop(out);
        self.push()
    }

    fn flush(&mut self) -> Result<(), StreamError> {
        if self.0.outgoing().is_over {
            return Err(StreamError::Closed);
        }
        self.push()
    }

    fn check_write(&mut self) -> Result<usize, StreamError> {
        self.push()?;
        let out = self.0.outgoing();
        if out.is_over {
            return Err(StreamError::Closed);
        }
        match out.waiting.is_empty() {
            true => Ok(PIECE),
            false => Ok(0),
        }
    }
}
