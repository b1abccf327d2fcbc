//! The standard streams of a program in this process: what it writes goes to the run's books as it comes, what it reads comes from the caller's bytes or descriptor. A stream that
//! has to wait waits beside the clock, never before it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use cofferdam_contract::ending::{StopCause, Stream};
use cofferdam_contract::units::Cap;
use cofferdam_engine::backend::{Handed, Ledger};
use cofferdam_engine::pipeline::Input;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use wasmtime_wasi::cli::{IsTerminal, StdinStream, StdoutStream};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};
use wasmtime_wasi::{WasiCtxBuilder, async_trait};

/// What a run and the calls of its program share: the books, and who ended it.
#[derive(Debug)]
pub(crate) struct Shared {
    ledger: Mutex<Ledger>,
    cause: Mutex<Option<StopCause>>,
    output: Cap<cofferdam_contract::units::Bytes>,
}

/// What a stopped program is unwound with; the cause lies in [`Shared`].
#[derive(Debug, thiserror::Error)]
#[error("stopped")]
pub(crate) struct Stopped;

impl Shared {
    pub(crate) fn new(ledger: Ledger, output: Cap<cofferdam_contract::units::Bytes>) -> Arc<Self> {
        Arc::new(Self {
            ledger: Mutex::new(ledger),
            cause: Mutex::new(None),
            output,
        })
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the run for `cause`, unless something has ended it already.
    pub(crate) fn stop(&self, cause: StopCause) -> Stopped {
        let mut slot = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert(cause);
        Stopped
    }

    pub(crate) fn cause(&self) -> Option<StopCause> {
        let slot = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
        slot.clone()
    }

    pub(crate) fn into_ledger(self) -> Ledger {
        self.ledger
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives the program its streams.
pub(crate) fn connect(wasi: &mut WasiCtxBuilder, input: Input, shared: &Arc<Shared>) {
    match input {
        Input::Empty => {}
        Input::Bytes(bytes) => {
            wasi.stdin(MemoryInputPipe::new(bytes));
        }
        Input::From(from) => {
            wasi.stdin(Source(Arc::new(from)));
        }
    }
    let outlet = |stream| Outlet {
        shared: Arc::clone(shared),
        stream,
    };
    wasi.stdout(outlet(Stream::Stdout));
    wasi.stderr(outlet(Stream::Stderr));
}

/// Becomes ready when the descriptor does; at once where that cannot be waited for, as with a file.
#[allow(
    deprecated,
    reason = "its replacement is unsafe for types that could lend a descriptor that is not theirs; this one owns it"
)]
pub(crate) async fn ready(descriptor: BorrowedFd<'_>, interest: Interest) {
    let Ok(copy) = descriptor.try_clone_to_owned() else {
        return;
    };
    let Ok(waiting) = AsyncFd::with_interest(copy, interest) else {
        return;
    };
    let _ = waiting.ready(interest).await;
}

/// One of the program's outputs.
#[derive(Debug, Clone)]
struct Outlet {
    shared: Arc<Shared>,
    stream: Stream,
}

/// What may be written at once.
const PERMIT: usize = 64 << 10;

impl Outlet {
    fn judge(&self, handed: Handed) -> StreamResult<usize> {
        let cause = match handed {
            Handed::On => return Ok(PERMIT),
            Handed::Waiting => return Ok(0),
            Handed::OverLimit => match self.shared.output {
                Cap::AtMost(limit) => StopCause::Output {
                    limit,
                    stream: self.stream,
                },
                Cap::Unlimited => return Ok(PERMIT),
            },
            // As a shell does to the left side of a pipe whose right side has ended.
            Handed::ReaderGone => StopCause::Canceled,
        };
        Err(StreamError::Trap(self.shared.stop(cause).into()))
    }
}

impl IsTerminal for Outlet {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Outlet {
    /// Of use to preview 3 only, which is not linked.
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Outlet {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let handed = self.shared.ledger().write(self.stream, &bytes);
        self.judge(handed).map(|_| ())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        let handed = self.shared.ledger().pass_on(self.stream);
        self.judge(handed)
    }
}

#[async_trait]
impl Pollable for Outlet {
    async fn ready(&mut self) {
        loop {
            let reader = {
                let mut ledger = self.shared.ledger();
                if ledger.pass_on(self.stream) != Handed::Waiting {
                    return;
                }
                let reader = ledger.waits_for(self.stream);
                reader.and_then(|reader| reader.try_clone_to_owned().ok())
            };
            match reader {
                Some(reader) => ready(reader.as_fd(), Interest::WRITABLE).await,
                None => return,
            }
        }
    }
}

/// The program's input, where it is a descriptor of the caller's.
#[derive(Debug, Clone)]
struct Source(Arc<OwnedFd>);

impl IsTerminal for Source {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdinStream for Source {
    /// Of use to preview 3 only, which is not linked.
    fn async_stream(&self) -> Box<dyn AsyncRead + Send + Sync> {
        Box::new(tokio::io::empty())
    }

    fn p2_stream(&self) -> Box<dyn InputStream> {
        Box::new(self.clone())
    }
}

impl InputStream for Source {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        // It may be somebody else's as well, and is left as it is: looked at before it is read.
        if size == 0 || !has_data(&self.0) {
            return Ok(Bytes::new());
        }
        let mut buffer = BytesMut::zeroed(size.min(PERMIT));
        match rustix::io::read(&*self.0, &mut *buffer) {
            Ok(0) => Err(StreamError::Closed),
            Ok(read) => {
                buffer.truncate(read);
                Ok(buffer.freeze())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Bytes::new()),
            Err(errno) => {
                let error = std::io::Error::from_raw_os_error(errno.raw_os_error());
                Err(StreamError::LastOperationFailed(error.into()))
            }
        }
    }
}

#[async_trait]
impl Pollable for Source {
    async fn ready(&mut self) {
        if !has_data(&self.0) {
            ready(self.0.as_fd(), Interest::READABLE).await;
        }
    }
}

/// Whether there is something to read now, or an end to be seen.
pub(crate) fn has_data(from: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(from, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}
