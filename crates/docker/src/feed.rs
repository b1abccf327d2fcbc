//! Brings a program's input to the daemon. Reads no more of the caller's descriptor than the program takes, plus a little, and leaves it alone once the run is over.

use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::thread::JoinHandle;

use cofferdam_engine::pipeline::Input;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

const CHUNK: usize = 64 * 1024;

/// Where input comes from. Dropping it ends the reading.
#[derive(Debug)]
pub(crate) enum Feed {
    Bytes(Vec<u8>),
    Reader {
        chunks: mpsc::Receiver<Vec<u8>>,
        /// Closed to end the thread.
        stop: Option<OwnedFd>,
        thread: Option<JoinHandle<()>>,
    },
}

impl Feed {
    pub(crate) fn new(input: Input) -> Result<Option<Self>, Errno> {
        match input {
            Input::Empty => Ok(None),
            Input::Bytes(bytes) => Ok(Some(Self::Bytes(bytes))),
            Input::From(source) => {
                let (wake, stop) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
                let (to, chunks) = mpsc::channel(1);
                let thread = std::thread::spawn(move || read(&source, &wake, &to));
                Ok(Some(Self::Reader {
                    chunks,
                    stop: Some(stop),
                    thread: Some(thread),
                }))
            }
        }
    }

    /// Writes everything and closes the program's input. A program that has closed it itself simply gets no more.
    pub(crate) async fn pump(&mut self, mut to: Pin<Box<dyn AsyncWrite + Send>>) {
        match self {
            Self::Bytes(bytes) => {
                let _ = to.write_all(bytes).await;
            }
            Self::Reader { chunks, .. } => {
                while let Some(chunk) = chunks.recv().await {
                    if to.write_all(&chunk).await.is_err() || to.flush().await.is_err() {
                        break;
                    }
                }
            }
        }
        let _ = to.shutdown().await;
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if let Self::Reader {
            chunks,
            stop,
            thread,
        } = self
        {
            chunks.close();
            *stop = None;
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
    }
}

/// Until the end of the source, the end of the run, or nobody wants more.
fn read(source: &OwnedFd, wake: &OwnedFd, to: &mpsc::Sender<Vec<u8>>) {
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN),
        ];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        let [_, ended] = &fds;
        if !ended.revents().is_empty() {
            return;
        }
        let mut chunk = Vec::with_capacity(CHUNK);
        match rustix::io::read(source, rustix::buffer::spare_capacity(&mut chunk)) {
            Ok(0) => return,
            Ok(_) => {}
            Err(Errno::INTR | Errno::AGAIN) => continue,
            Err(_) => return,
        }
        if to.blocking_send(chunk).is_err() {
            return;
        }
    }
}
