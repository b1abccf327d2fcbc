//! The result channel of a program: drained like its output, with a limit of its own.

use std::os::fd::{BorrowedFd, OwnedFd};

use cofferdam_contract::ending::Stream;
use cofferdam_contract::record::CapturedStream;
use rustix::event::PollFlags;
use rustix::io::Errno;

use super::{Budget, Drain, OnLimit, Sink};

/// What a program says over its result channel: kept up to a cap of its own, and never passed on or recorded as output.
#[derive(Debug)]
pub(crate) struct ResultDrain {
    drain: Drain,
    budget: Budget,
}

impl ResultDrain {
    /// `pipe` must be non-blocking.
    pub(crate) fn new(pipe: OwnedFd, at_most: usize) -> Result<Self, Errno> {
        let limit = u64::try_from(at_most).unwrap_or(u64::MAX);
        Ok(Self {
            drain: Drain::new(Stream::Stdout, pipe, Sink::Keep { at_most })?,
            budget: Budget {
                left: Some(limit),
                on_limit: OnLimit::Discard,
            },
        })
    }

    pub(crate) fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.drain.interest()
    }

    pub(crate) fn last_interest(&mut self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.drain.last_interest()
    }

    pub(crate) fn advance(&mut self, buffer: &mut Vec<u8>) {
        let _ = self.drain.advance(&mut self.budget, buffer, None);
    }

    pub(crate) fn into_captured(self) -> CapturedStream {
        self.drain.into_captured()
    }
}
