//! Feeds a program's standard input through a pipe. A file is never handed over itself: from inside it could be opened again, for writing.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::fs::FileType;
use rustix::io::{Errno, ReadWriteFlags};

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
    source: Option<Source>,
    pending: Vec<u8>,
    written: usize,
    /// How much is read next.
    chunk: usize,
}

/// Most inputs are empty or a few lines, and a page that nothing is read into need not be touched.
const FIRST_CHUNK: usize = 4 * 1024;
const CHUNK: usize = 64 * 1024;

impl Feed {
    /// `pipe` must be non-blocking. `before` is written before anything of the input is.
    pub(crate) fn new(pipe: OwnedFd, before: Vec<u8>, input: Input) -> Self {
        let (source, pending) = match input {
            Input::Empty => (None, before),
            Input::Bytes(bytes) if before.is_empty() => (None, bytes),
            Input::Bytes(bytes) => (None, [before, bytes].concat()),
            Input::From(fd) => (Some(Source::new(fd)), before),
        };
        let mut feed = Self {
            pipe: Some(pipe),
            source,
            pending,
            written: 0,
            chunk: FIRST_CHUNK,
        };
        feed.close_when_done();
        feed
    }

    pub(crate) fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let pipe = self.pipe.as_ref()?;
        match &self.source {
            Some(source) if self.pending.is_empty() => Some((source.fd.as_fd(), PollFlags::IN)),
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
            self.written = 0;
            self.pending.resize(self.chunk, 0);
            self.chunk = CHUNK;
            let length = source.read(&mut self.pending);
            self.pending.truncate(*length.as_ref().unwrap_or(&0));
            if length? == 0 {
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
/// Where the input comes from.
#[derive(Debug)]
struct Source {
    fd: OwnedFd,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Somebody else may read from it, too, and take away what was announced to us.
    Stream,
    Other,
}

impl Source {
    fn new(fd: OwnedFd) -> Self {
        let kind = rustix::fs::fstat(&fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
        let kind = match kind {
            Ok(FileType::Fifo | FileType::Socket) => Kind::Stream,
            _ => Kind::Other,
        };
        Self { fd, kind }
    }

    /// What is there: waiting for more would be waiting with the clock of the run stopped.
    fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        const CURRENT_POSITION: u64 = u64::MAX;
        if self.kind == Kind::Stream {
            let mut parts = [IoSliceMut::new(buffer)];
            let flags = ReadWriteFlags::NOWAIT;
            match rustix::io::preadv2(&self.fd, &mut parts, CURRENT_POSITION, flags) {
                // A kernel that cannot tell.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::SPIPE) => {}
                other => return other,
            }
        }
        rustix::io::read(&self.fd, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_reader_took_away_is_not_waited_for() {
        let (pipe, writer) = rustix::pipe::pipe().unwrap();
        let source = Source::new(pipe);
        let mut buffer = [0; 8];
        assert_eq!(source.read(&mut buffer), Err(Errno::AGAIN));
        rustix::io::write(&writer, b"abc").unwrap();
        assert_eq!(source.read(&mut buffer), Ok(3));
        drop(writer);
        assert_eq!(source.read(&mut buffer), Ok(0));
        let file = tempfile::tempfile().unwrap();
        rustix::io::write(&file, b"xyz").unwrap();
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(1)).unwrap();
        let source = Source::new(file.into());
        assert_eq!(source.read(&mut buffer), Ok(2));
        assert_eq!(source.read(&mut buffer), Ok(0));
    }
}
