//! What a supervisor waits for.

use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::Supervisor;
use crate::capture::ResultDrain;
use crate::fixed::Answers;

/// What a descriptor in the poll set stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Control,
    Guest,
    Stdout,
    Stderr,
    Result,
    Stdin,
    Listener,
    Random,
    Cancel,
}

impl Supervisor<'_> {
    /// Sleeps until something happens, or until it is time to look.
    pub(super) fn wait(&self) -> Result<Vec<(Source, PollFlags)>, Errno> {
        let cancel = self.run.cancel.filter(|_| self.cause.is_none());
        let interests = [
            (
                Source::Control,
                Some((self.run.sandbox.control(), PollFlags::IN)),
            ),
            (
                Source::Guest,
                self.run
                    .sandbox
                    .guest_pidfd()
                    .map(|pidfd| (pidfd, PollFlags::IN)),
            ),
            (Source::Stdout, self.run.stdout.interest()),
            (Source::Stderr, self.run.stderr.interest()),
            (
                Source::Result,
                self.run.result.as_ref().and_then(ResultDrain::interest),
            ),
            (Source::Stdin, self.run.feed.interest()),
            (
                Source::Listener,
                self.listener
                    .as_ref()
                    .map(|listener| (listener.as_fd(), PollFlags::IN)),
            ),
            (
                Source::Random,
                self.run
                    .fixed
                    .as_ref()
                    .and_then(Answers::device)
                    .map(|device| (device, PollFlags::OUT)),
            ),
            (Source::Cancel, cancel.map(|cancel| (cancel, PollFlags::IN))),
        ];
        let (sources, mut fds): (Vec<Source>, Vec<PollFd<'_>>) = interests
            .into_iter()
            .filter_map(|(source, interest)| {
                let (fd, flags) = interest?;
                Some((source, PollFd::from_borrowed_fd(fd, flags)))
            })
            .unzip();
        match rustix::event::poll(&mut fds, self.timeout().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        Ok(sources
            .into_iter()
            .zip(&fds)
            .map(|(source, fd)| (source, fd.revents()))
            .filter(|(_, happened)| !happened.is_empty())
            .collect())
    }

    fn timeout(&self) -> Option<Timespec> {
        if self.cause.is_some() || self.started.is_none() {
            return None;
        }
        let look = self.run.watch.next_look();
        let next = self.deadline.map_or(look, |deadline| deadline.min(look));
        let left = next.saturating_duration_since(Instant::now());
        Timespec::try_from(left).ok()
    }
}
