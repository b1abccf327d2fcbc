//! Feeds a program's standard input through a pipe. A file is never handed over itself: from inside it could be opened again, for writing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;

/// What the program reads.
#[derive(Debug)]
pub enum Input {
    /// Nothing: end of file at once.
    Empty,
    Bytes(Vec<u8>),
    /// Whatever this descriptor gives, as it gives it.
    From(OwnedFd),
}

/// The supervisor's end of the program's standard input.
#[derive(Debug)]
pub(crate) struct Feed {
    pipe: Option<OwnedFd>,
    source: Option<OwnedFd>,
    pending: Vec<u8>,
    written: usize,
}

const CHUNK: usize = 64 * 1024;

impl Feed {
    /// `pipe` must be non-blocking. `before` is written before anything of the input is.
    pub(crate) fn new(pipe: OwnedFd, before: Vec<u8>, input: Input) -> Self {
        let (source, pending) = match input {
            Input::Empty => (None, before),
            Input::Bytes(bytes) if before.is_empty() => (None, bytes),
            Input::Bytes(bytes) => (None, [before, bytes].concat()),
            Input::From(source) => (Some(source), before),
        };
        let mut feed = Self {
            pipe: Some(pipe),
            source,
            pending,
            written: 0,
        };
        feed.close_when_done();
        feed
    }

    pub(crate) fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let pipe = self.pipe.as_ref()?;
        match &self.source {
            Some(source) if self.pending.is_empty() => Some((source.as_fd(), PollFlags::IN)),
            _ => Some((pipe.as_fd(), PollFlags::OUT)),
        }
    }

    /// Moves one chunk. A program that has closed its input simply gets no more.
    pub(crate) fn advance(&mut self) {
        match self.move_chunk() {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR) => self.close_when_done(),
            Err(_) => self.close(),
        }
    }

    pub(crate) fn close(&mut self) {
        self.pipe = None;
        self.source = None;
    }

    fn move_chunk(&mut self) -> Result<(), Errno> {
        let Some(pipe) = &self.pipe else {
            return Ok(());
        };
        if self.pending.is_empty()
            && let Some(source) = &self.source
        {
            self.pending.reserve(CHUNK);
            self.written = 0;
            let room = rustix::buffer::spare_capacity(&mut self.pending);
            if rustix::io::read(source, room)? == 0 {
                self.source = None;
            }
        }
        while let Some(rest @ [_, ..]) = self.pending.get(self.written..) {
            self.written += rustix::io::write(pipe, rest)?;
        }
        self.pending.clear();
        self.written = 0;
        Ok(())
    }

    fn close_when_done(&mut self) {
        if self.source.is_none() && self.pending.is_empty() {
            self.pipe = None;
        }
    }
}
