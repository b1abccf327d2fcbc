//! The books of a program that runs in this process: output that is handed over as bytes and goes through the same budget, journal and sinks as any other, a look at how
//! directories grow, and the record.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use cofferdam_contract::ending::{DiskPlace, Ending, StopCause, Stream};
use cofferdam_contract::enforcement::Enforcement;
use cofferdam_contract::network_record::NetworkRecord;
use cofferdam_contract::record::{Denial, RunRecord};
use cofferdam_contract::request::Request;
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_contract::usage::Usage;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::books::{self, Books, Entry};
use crate::capture::{Budget, Drain, Drained, OnLimit, Sink};
use crate::disk::{Growth, Moment};
use crate::error::EngineError;
use crate::pipeline::{self, Birth, Recording};
use crate::recording::Recorder;

/// Where a run's output goes.
#[derive(Debug)]
pub struct Outputs {
    pub stdout: Sink,
    pub stderr: Sink,
    pub on_limit: OnLimit,
}

/// The books of one run, from before its start: what it says, and what is written down of it.
#[derive(Debug)]
pub struct Ledger {
    birth: Birth,
    recorder: Option<Recorder>,
    stdout: Drain,
    stderr: Drain,
    budget: Budget,
    buffer: Vec<u8>,
}

/// What became of a piece of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handed {
    /// It is where it belongs.
    On,
    /// The reader takes no more for now: nothing is to be written before [`Ledger::pass_on`] says otherwise.
    Waiting,
    /// There was more than the limit allows.
    OverLimit,
    /// Nobody reads it any more, or it cannot be written.
    ReaderGone,
}

/// How a run went, as its backend knows it.
#[derive(Debug)]
pub struct Outcome {
    pub ending: Ending,
    pub usage: Usage,
    pub enforced_by: Enforcement,
    pub isolation: BTreeMap<String, String>,
    /// What went out and what was turned away, where there was a way out.
    pub network: Option<NetworkRecord>,
    pub denials: Vec<Denial>,
    /// What was fixed, where the run had to give the same each time.
    pub determinism: Option<BTreeMap<String, String>>,
}

impl Ledger {
    /// Nothing may start before this has returned: the run is written down from here on.
    pub fn open(
        request: &Request,
        recording: Option<Recording>,
        outputs: Outputs,
    ) -> Result<Self, EngineError> {
        let birth = books::open(request, recording.as_ref())?;
        let look = EngineError::system("look at an output stream");
        Ok(Self {
            birth,
            stdout: Drain::fed(Stream::Stdout, outputs.stdout).map_err(&look)?,
            stderr: Drain::fed(Stream::Stderr, outputs.stderr).map_err(&look)?,
            budget: Budget::new(request.limits.output, outputs.on_limit),
            recorder: recording.map(|recording| recording.begin(request, birth)),
            buffer: Vec::new(),
        })
    }

    /// Takes a piece of output: counted, written down, and kept or passed on as far as the reader takes it now.
    pub fn write(&mut self, stream: Stream, bytes: &[u8]) -> Handed {
        let (drain, budget, recorder) = self.parts(stream);
        let journal = recorder.as_mut().and_then(Recorder::journal);
        match drain.push(bytes, budget, journal) {
            Ok(Drained::OverLimit) => {
                // What is within the limit still reaches the reader.
                let _ = self.pass_on(stream);
                Handed::OverLimit
            }
            Ok(_) => self.pass_on(stream),
            Err(_) => Handed::ReaderGone,
        }
    }

    /// Gives the reader what waits for it, as far as it takes it now.
    pub fn pass_on(&mut self, stream: Stream) -> Handed {
        let mut buffer = std::mem::take(&mut self.buffer);
        let (drain, budget, _) = self.parts(stream);
        let handed = loop {
            if drain.interest().is_none() {
                break Handed::On;
            }
            let waiting = drain.waiting();
            match drain.advance(budget, &mut buffer, None) {
                Drained::ReaderGone => break Handed::ReaderGone,
                Drained::Ended => break Handed::On,
                Drained::Open | Drained::OverLimit if drain.waiting() == waiting => {
                    break Handed::Waiting;
                }
                Drained::Open | Drained::OverLimit => {}
            }
        };
        self.buffer = buffer;
        handed
    }

    /// The reader that is waited for, if one is.
    pub fn waits_for(&self, stream: Stream) -> Option<BorrowedFd<'_>> {
        let drain = match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        };
        drain.interest().map(|(reader, _)| reader)
    }

    /// Everything that the program has written, kept or not.
    pub fn written(&self) -> Bytes {
        Bytes::new(self.stdout.seen() + self.stderr.seen())
    }

    /// Makes the record and writes the end down. A reader that takes its time is waited for, as long as the caller does not cancel.
    pub fn close(
        mut self,
        request: &Request,
        outcome: Outcome,
        cancel: Option<BorrowedFd<'_>>,
    ) -> Result<RunRecord, EngineError> {
        self.last_words(cancel);
        let books = Books {
            birth: self.birth,
            backend: request.backend,
            recorder: self.recorder,
            stdout: self.stdout,
            stderr: self.stderr,
        };
        let entry = Entry {
            ending: outcome.ending,
            usage: outcome.usage,
            enforced_by: outcome.enforced_by,
            isolation: outcome.isolation,
            denials: outcome.denials,
            network: outcome.network,
            changes: None,
            determinism: outcome.determinism,
        };
        books.close(entry, cancel)
    }

    fn last_words(&mut self, cancel: Option<BorrowedFd<'_>>) {
        loop {
            let _ = self.pass_on(Stream::Stdout);
            let _ = self.pass_on(Stream::Stderr);
            let readers = [&self.stdout, &self.stderr].into_iter();
            let mut fds: Vec<PollFd<'_>> = readers
                .filter_map(|drain| drain.interest())
                .map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags))
                .collect();
            let streams = fds.len();
            if streams == 0 {
                return;
            }
            fds.extend(cancel.map(|cancel| PollFd::from_borrowed_fd(cancel, PollFlags::IN)));
            let waited = rustix::event::poll(&mut fds, None);
            let canceled = fds.iter().skip(streams).any(|fd| !fd.revents().is_empty());
            if canceled || waited.is_err_and(|errno| errno != Errno::INTR) {
                return;
            }
        }
    }

    fn parts(&mut self, stream: Stream) -> (&mut Drain, &mut Budget, &mut Option<Recorder>) {
        let drain = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        (drain, &mut self.budget, &mut self.recorder)
    }
}

/// The directories of the caller's that a program may fill, while it runs in this process.
#[derive(Debug)]
pub struct Directories {
    growths: Vec<Growth>,
    limit: Cap<Bytes>,
}

impl Directories {
    /// Must be made before the program can write.
    pub fn of(request: &Request) -> Result<Self, EngineError> {
        Ok(Self {
            growths: pipeline::growths(request)?,
            limit: request.limits.disk,
        })
    }

    /// Looks once, at most a few milliseconds long.
    pub fn look(&mut self) -> Option<StopCause> {
        self.over(Moment::Running)
    }

    /// After a failure: whether the limit is what the program met.
    pub fn look_after_failure(&mut self) -> Option<StopCause> {
        self.over(Moment::Failed)
    }

    fn over(&mut self, moment: Moment) -> Option<StopCause> {
        let limit = self.limit.at_most()?;
        let own = || vec![std::process::id()];
        let over = self
            .growths
            .iter_mut()
            .any(|growth| growth.is_over(moment, own));
        over.then_some(StopCause::Disk {
            limit,
            place: DiskPlace::Workspace,
        })
    }
}
