//! Drains a program's output while it runs: kept up to a cap or passed on as it comes, written to the run's journal where it has one, and counted against one limit for
//! both streams. Never blocks: a reader that does not read slows the program down, not the supervisor, whose clock must go on.

mod result;
mod staging;

pub(crate) use result::ResultDrain;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cofferdam_contract::ending::Stream;
use cofferdam_contract::record::CapturedStream;
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_store::journal::{Journal, Room};
use rustix::event::PollFlags;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::pipe::SpliceFlags;

use staging::{Staging, splice};

/// Where a stream goes.
#[derive(Debug)]
pub enum Sink {
    /// Into the record, up to this many bytes; the rest is counted and dropped.
    Keep { at_most: usize },
    /// To a descriptor of the caller's, as it comes.
    Pass { to: OwnedFd },
}

/// What happens when the output limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLimit {
    /// The run is stopped.
    Stop,
    /// The run goes on and its output is counted and dropped.
    Discard,
}

/// What one round of draining came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drained {
    /// More may come.
    Open,
    /// Every writer has closed the stream.
    Ended,
    /// There was more than the limit allows.
    OverLimit,
    /// The caller's descriptor takes no more; [`Drain::failure`] says why, unless its reader has simply gone.
    ReaderGone,
}

/// How much output is left of the limit, for both streams together.
#[derive(Debug)]
pub(crate) struct Budget {
    left: Option<u64>,
    on_limit: OnLimit,
}

/// One stream being drained.
#[derive(Debug)]
pub(crate) struct Drain {
    stream: Stream,
    pipe: Option<OwnedFd>,
    target: Target,
    seen: u64,
    failure: Option<Errno>,
}

#[derive(Debug)]
enum Target {
    Kept {
        bytes: Vec<u8>,
        at_most: usize,
    },
    /// A pipe: pages move without being copied, unless the journal wants to read them too.
    Spliced {
        to: OwnedFd,
        full: bool,
        staging: Option<Staging>,
    },
    /// A file, a terminal or a socket.
    Written {
        to: OwnedFd,
        kind: FileType,
        pending: Vec<u8>,
    },
}

/// An empty pipe takes this much in one write, mostly.
const STAGING_CHUNK: usize = 64 * 1024;

/// One read or splice moves at most this much.
const CHUNK: usize = 128 * 1024;
/// Rounds before the other descriptors get their turn.
const ROUNDS: usize = 8;
/// A terminal that says it has room has room for this much.
const TERMINAL_CHUNK: usize = 2048;

impl Budget {
    pub(crate) fn new(limit: Cap<Bytes>, on_limit: OnLimit) -> Self {
        Self {
            left: limit.at_most().map(Bytes::get),
            on_limit,
        }
    }

    fn is_spent(&self) -> bool {
        self.left == Some(0)
    }

    /// How many of `amount` bytes are still within the limit.
    fn within(&self, amount: usize) -> usize {
        self.left.map_or(amount, |left| {
            usize::try_from(left).unwrap_or(usize::MAX).min(amount)
        })
    }

    fn spend(&mut self, amount: usize) {
        self.left = self.left.map(|left| left.saturating_sub(amount as u64));
    }
}

impl Drain {
    /// `pipe` must be non-blocking.
    pub(crate) fn new(stream: Stream, pipe: OwnedFd, sink: Sink) -> Result<Self, Errno> {
        Ok(Self {
            pipe: Some(pipe),
            ..Self::fed(stream, sink)?
        })
    }

    /// Without a pipe of its own: what there is comes by [`Drain::push`].
    pub(crate) fn fed(stream: Stream, sink: Sink) -> Result<Self, Errno> {
        let target = match sink {
            Sink::Keep { at_most } => Target::Kept {
                bytes: Vec::new(),
                at_most,
            },
            Sink::Pass { to } => match FileType::from_raw_mode(rustix::fs::fstat(&to)?.st_mode) {
                FileType::Fifo => Target::Spliced {
                    to,
                    full: false,
                    staging: None,
                },
                kind => Target::Written {
                    to,
                    kind,
                    pending: Vec::new(),
                },
            },
        };
        Ok(Self {
            stream,
            pipe: None,
            target,
            seen: 0,
            failure: None,
        })
    }

    /// What to wait for: the program's output, or room in the reader when that is what holds us up.
    pub(crate) fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match &self.target {
            Target::Spliced { to, full: true, .. } => Some((to.as_fd(), PollFlags::OUT)),
            Target::Spliced {
                to,
                staging: Some(staging),
                ..
            } if staging.holds() => Some((to.as_fd(), PollFlags::OUT)),
            Target::Written { to, pending, .. } if !pending.is_empty() => {
                Some((to.as_fd(), PollFlags::OUT))
            }
            _ => self.pipe.as_ref().map(|pipe| (pipe.as_fd(), PollFlags::IN)),
        }
    }

    /// As [`Drain::interest`] when nobody is left who could write: a pipe that is empty now has ended, whoever else may hold it.
    pub(crate) fn last_interest(&mut self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let (_, flags) = self.interest()?;
        if flags == PollFlags::IN && self.pipe.as_ref().is_none_or(|pipe| !has_data(pipe)) {
            self.close();
        }
        self.interest()
    }

    /// Moves what can be moved now.
    pub(crate) fn advance(
        &mut self,
        budget: &mut Budget,
        buffer: &mut Vec<u8>,
        mut journal: Option<&mut Journal>,
    ) -> Drained {
        for _ in 0..ROUNDS {
            match self.advance_once(budget, buffer, journal.as_deref_mut()) {
                Ok(Drained::Open) => {}
                Ok(other) => return other,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Drained::Open,
                Err(errno) => return self.lose(errno),
            }
        }
        Drained::Open
    }

    /// The caller's descriptor takes no more.
    pub(crate) fn lose(&mut self, errno: Errno) -> Drained {
        self.close();
        self.failure = Some(errno).filter(|errno| !is_reader_gone(*errno));
        Drained::ReaderGone
    }

    /// Gives up on what has not been read yet.
    pub(crate) fn close(&mut self) {
        self.pipe = None;
        match &mut self.target {
            Target::Spliced { full, staging, .. } => {
                *full = false;
                *staging = None;
            }
            Target::Written { pending, .. } => pending.clear(),
            Target::Kept { .. } => {}
        }
    }

    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// Why the caller did not get all of the output: a full disk, for one. A reader that has gone did not want it.
    pub(crate) fn failure(&self) -> Option<Errno> {
        self.failure
    }

    pub(crate) fn into_captured(self) -> CapturedStream {
        match self.target {
            Target::Kept { bytes, .. } => CapturedStream::new(&bytes, self.seen),
            Target::Spliced { .. } | Target::Written { .. } => CapturedStream::new(b"", self.seen),
        }
    }

    fn advance_once(
        &mut self,
        budget: &mut Budget,
        buffer: &mut Vec<u8>,
        journal: Option<&mut Journal>,
    ) -> Result<Drained, Errno> {
        if let Some(moved) = self.pass_on()? {
            return Ok(moved);
        }
        let Some(pipe) = &self.pipe else {
            return Ok(Drained::Ended);
        };
        if budget.is_spent() && budget.on_limit == OnLimit::Discard {
            let dropped = drop_chunk(pipe)?;
            self.went_by(dropped, journal);
            return Ok(self.progress(dropped));
        }
        let is_read = journal
            .as_ref()
            .is_some_and(|journal| journal.room() == Room::Left);
        let mut at_most = CHUNK;
        if !budget.is_spent()
            && let Target::Spliced { to, full, .. } = &mut self.target
        {
            if !is_read {
                let moved = splice(pipe, to, budget.within(CHUNK));
                // Readable, as poll said, and yet nothing moved: the reader is full.
                *full = moved == Err(Errno::AGAIN) && has_data(pipe);
                let moved = moved?;
                budget.spend(moved);
                self.went_by(moved, journal);
                return Ok(self.progress(moved));
            }
            at_most = budget.within(STAGING_CHUNK);
        }
        buffer.clear();
        buffer.reserve(at_most);
        let room = buffer.spare_capacity_mut();
        let room = room.get_mut(..at_most).unwrap_or_default();
        let (chunk, _) = rustix::io::read(pipe, room)?;
        let read = chunk.len();
        match self.push(chunk, budget, journal)? {
            Drained::OverLimit => Ok(Drained::OverLimit),
            _ => Ok(self.progress(read)),
        }
    }

    /// Takes a piece of output that has been read, or handed over: counts it, writes it down, and keeps it or has it wait for its reader.
    pub(crate) fn push(
        &mut self,
        chunk: &[u8],
        budget: &mut Budget,
        journal: Option<&mut Journal>,
    ) -> Result<Drained, Errno> {
        let read = chunk.len();
        self.seen += read as u64;
        let within = budget.within(read);
        budget.spend(within);
        let chunk = chunk.get(..within).unwrap_or_default();
        if let Some(journal) = journal {
            journal.output(self.stream, chunk);
            if within < read {
                journal.cut(self.stream);
            }
        }
        self.take(chunk)?;
        if within < read && budget.on_limit == OnLimit::Stop {
            return Ok(Drained::OverLimit);
        }
        Ok(Drained::Open)
    }

    /// How much has been taken and not reached its reader.
    pub(crate) fn waiting(&self) -> usize {
        match &self.target {
            Target::Kept { .. } => 0,
            Target::Spliced { staging, .. } => staging
                .as_ref()
                .map_or(0, |staging| staging.waiting + staging.rest.len()),
            Target::Written { pending, .. } => pending.len(),
        }
    }

    /// Gives the reader what has been read already, before any more is.
    fn pass_on(&mut self) -> Result<Option<Drained>, Errno> {
        match &mut self.target {
            Target::Written { to, kind, pending } if !pending.is_empty() => {
                write_pending(to, *kind, pending).map(|()| Some(Drained::Open))
            }
            Target::Spliced {
                to,
                full,
                staging: Some(staging),
            } if staging.holds() => {
                staging.fill()?;
                let moved = splice(&staging.read, to, staging.waiting);
                *full = moved == Err(Errno::AGAIN);
                staging.waiting = staging.waiting.saturating_sub(moved?);
                Ok(Some(Drained::Open))
            }
            Target::Written { .. } | Target::Spliced { .. } | Target::Kept { .. } => Ok(None),
        }
    }

    fn went_by(&mut self, amount: usize, journal: Option<&mut Journal>) {
        self.seen += amount as u64;
        if let Some(journal) = journal {
            journal.passed(self.stream, amount as u64);
        }
    }

    fn progress(&mut self, moved: usize) -> Drained {
        if moved == 0 {
            self.pipe = None;
            return Drained::Ended;
        }
        Drained::Open
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), Errno> {
        match &mut self.target {
            Target::Kept { bytes, at_most } => {
                let room = at_most.saturating_sub(bytes.len()).min(chunk.len());
                bytes.extend_from_slice(chunk.get(..room).unwrap_or_default());
            }
            Target::Written { pending, .. } => pending.extend_from_slice(chunk),
            Target::Spliced { staging, .. } if !chunk.is_empty() => {
                let staging = match staging {
                    Some(staging) => staging,
                    None => staging.insert(Staging::new()?),
                };
                staging.rest.extend_from_slice(chunk);
                staging.fill()?;
            }
            Target::Spliced { .. } => {}
        }
        Ok(())
    }
}

fn is_reader_gone(errno: Errno) -> bool {
    matches!(errno, Errno::PIPE | Errno::CONNRESET)
}

fn write_pending(to: &OwnedFd, kind: FileType, pending: &mut Vec<u8>) -> Result<(), Errno> {
    let written = match kind {
        FileType::Socket => {
            rustix::net::send(to, pending, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?
        }
        FileType::CharacterDevice if !is_ready(to) => return Err(Errno::AGAIN),
        FileType::CharacterDevice => {
            rustix::io::write(to, pending.get(..TERMINAL_CHUNK).unwrap_or(pending))?
        }
        _ => rustix::io::write(to, pending)?,
    };
    pending.drain(..written);
    Ok(())
}

fn is_ready(to: &OwnedFd) -> bool {
    polls(to, PollFlags::OUT)
}

/// Whether there is something to read now.
pub(crate) fn has_data(pipe: impl AsFd) -> bool {
    polls(pipe, PollFlags::IN)
}

fn polls(fd: impl AsFd, flags: PollFlags) -> bool {
    let mut fds = [rustix::event::PollFd::new(&fd, flags)];
    let now = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Drops what is in the pipe without looking at it: /dev/null takes whole pages.
fn drop_chunk(pipe: &OwnedFd) -> Result<usize, Errno> {
    let null = rustix::fs::open(
        c"/dev/null",
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::pipe::splice(pipe, None, null, None, 1 << 20, SpliceFlags::NONBLOCK)
}
