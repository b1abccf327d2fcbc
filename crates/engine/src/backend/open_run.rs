//! A program that another crate has run elsewhere: the backend brings the bytes and the evidence here, where the ending is settled.
//!
//! ```text
//! Grant ─open─▶ OpenRun ─begin─▶ take, pass_on, sample … ─close─▶ RunRecord
//! ```

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use cofferdam_contract::ending::{Ending, SetupFailure, StopCause, Stream};
use cofferdam_contract::enforcement::Enforcement;
use cofferdam_contract::network_record::NetworkRecord;
use cofferdam_contract::record::{Change, Denial, RunRecord};
use cofferdam_contract::request::{Grant, Request};
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_contract::usage::Usage;
use cofferdam_store::RunId;
use cofferdam_sys::protocol::WaitStatus;

use super::books::{self, Books, Entry};
use crate::capture::{Budget, Drain, Drained};
use crate::disk::{Growth, Moment};
use crate::error::EngineError;
use crate::feed::Input;
use crate::live_usage::{LiveUsage, Sample};
use crate::pipeline::{Birth, Recording, Streams};
use crate::recording::Recorder;
use crate::settle::{self, Evidence, Report, Started};

/// A run that another crate carries out: everything of it that is kept here.
#[derive(Debug)]
pub struct OpenRun {
    request: Request,
    birth: Birth,
    recording: Option<Recording>,
    recorder: Option<Recorder>,
    stdout: Drain,
    stderr: Drain,
    budget: Budget,
    usage: Option<Arc<LiveUsage>>,
    buffer: Vec<u8>,
}

/// What the backend itself has to do with the caller.
#[derive(Debug)]
pub struct Ends<'a> {
    pub stdin: Input,
    /// Readable when the caller wants the run to end.
    pub cancel: Option<BorrowedFd<'a>>,
}

/// What came of a piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    Open,
    /// The run must end, for this: its output went over the limit, or nobody reads it any more.
    Stop(StopCause),
}

/// Everything that a backend knows when a run is over.
#[derive(Debug)]
pub struct End {
    /// Set by whoever stopped the run.
    pub cause: Option<StopCause>,
    /// A limit that was held against the program, by the kernel's word.
    pub refused: Option<StopCause>,
    pub report: Reported,
    /// Without the output, which is counted here.
    pub usage: Usage,
    pub enforced_by: Enforcement,
    pub isolation: BTreeMap<String, String>,
    pub denials: Vec<Denial>,
    /// What went through its ways out; `None` for a run without network.
    pub network: Option<NetworkRecord>,
    /// What a copy-on-write workspace would have changed.
    pub changes: Option<Vec<Change>>,
}

/// The last word about the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reported {
    Exited {
        code: i32,
    },
    Signaled {
        signal: i32,
    },
    NeverStarted(SetupFailure),
    /// It was stopped, and nothing was said after that.
    Nothing,
}

/// Takes a grant and its streams apart. Nothing has been started, and nothing written down.
pub fn open<'a>(grant: Grant, streams: Streams<'a>) -> Result<(OpenRun, Ends<'a>), EngineError> {
    let recording = streams.recording;
    let birth = books::open(grant.request(), recording.as_ref())?;
    let look = EngineError::system("look at an output stream");
    let request = grant.into_request();
    let run = OpenRun {
        birth,
        recording,
        recorder: None,
        stdout: Drain::fed(Stream::Stdout, streams.stdout).map_err(&look)?,
        stderr: Drain::fed(Stream::Stderr, streams.stderr).map_err(&look)?,
        budget: Budget::new(request.limits.output, streams.on_output_limit),
        usage: streams.usage,
        buffer: Vec::new(),
        request,
    };
    let ends = Ends {
        stdin: streams.stdin,
        cancel: streams.cancel,
    };
    Ok((run, ends))
}

impl OpenRun {
    pub fn request(&self) -> &Request {
        &self.request
    }

    pub fn run_id(&self) -> RunId {
        self.birth.run_id
    }

    /// Writes the run down. Everything that can be refused has been; the program has not started yet.
    pub fn begin(&mut self) {
        if let Some(recording) = self.recording.take() {
            self.recorder = Some(recording.begin(&self.request, self.birth));
        }
    }

    /// Takes in a piece of output, whole. While [`OpenRun::waits_for`] names a reader, no more is to be given.
    pub fn take(&mut self, stream: Stream, piece: &[u8]) -> Taken {
        let journal = self.recorder.as_mut().and_then(Recorder::journal);
        let drain = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let drained = drain
            .push(piece, &mut self.budget, journal)
            .unwrap_or_else(|errno| drain.lose(errno));
        self.judge(stream, drained)
    }

    /// The reader that has to take something before there can be more output.
    pub fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        let interest = self.stdout.interest().or_else(|| self.stderr.interest());
        interest.map(|(reader, _)| reader)
    }

    /// Gives readers what they take now, without waiting for them.
    pub fn pass_on(&mut self) -> Taken {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let drain = match stream {
                Stream::Stdout => &mut self.stdout,
                Stream::Stderr => &mut self.stderr,
            };
            if drain.interest().is_none() {
                continue;
            }
            let drained = drain.advance(&mut self.budget, &mut self.buffer, None);
            if let stop @ Taken::Stop(_) = self.judge(stream, drained) {
                return stop;
            }
        }
        Taken::Open
    }

    /// Tells whoever watches what the run uses right now.
    pub fn sample(&self, sample: Sample) {
        if let Some(usage) = &self.usage {
            usage.set(sample);
        }
    }

    /// Settles the ending and writes it down.
    pub fn close(self, end: End, cancel: Option<BorrowedFd<'_>>) -> Result<RunRecord, EngineError> {
        let entry = Entry {
            ending: ending(&self.request, end.cause, end.refused, end.report),
            usage: end.usage,
            enforced_by: end.enforced_by,
            isolation: end.isolation,
            denials: end.denials,
            network: end.network,
            changes: end.changes,
            determinism: None,
        };
        let books = Books {
            birth: self.birth,
            backend: self.request.backend,
            recorder: self.recorder,
            stdout: self.stdout,
            stderr: self.stderr,
        };
        books.close(entry, cancel)
    }

    fn judge(&self, stream: Stream, drained: Drained) -> Taken {
        match (drained, self.request.limits.output) {
            (Drained::Open | Drained::Ended, _) | (Drained::OverLimit, Cap::Unlimited) => {
                Taken::Open
            }
            (Drained::OverLimit, Cap::AtMost(limit)) => {
                Taken::Stop(StopCause::Output { limit, stream })
            }
            // As a shell does to the left side of a pipe whose right side has ended.
            (Drained::ReaderGone, _) => Taken::Stop(StopCause::Canceled),
        }
    }
}

fn ending(
    request: &Request,
    cause: Option<StopCause>,
    refused: Option<StopCause>,
    report: Reported,
) -> Ending {
    let report = match (&cause, report) {
        (None, Reported::NeverStarted(failure)) => return Ending::NeverStarted(failure),
        (_, Reported::Exited { code }) => Report::Ended(WaitStatus::Exited { code }),
        (_, Reported::Signaled { signal }) => Report::Ended(WaitStatus::Signaled { signal }),
        (_, Reported::NeverStarted(_) | Reported::Nothing) => Report::InitGone,
    };
    settle::settle(Evidence {
        request,
        steps: &[],
        cause,
        refused,
        disk: None,
        started: Started::Yes,
        report,
    })
}

/// A path of the program's as records write it: bytes that are not UTF-8 as `\xff`.
pub fn readable(path: &[u8]) -> String {
    crate::changes::readable(path)
}

/// Watches how much a directory holds that the program may fill: what is more than when this was made.
#[derive(Debug)]
pub struct Filling(Growth);

impl Filling {
    /// `None` where nobody may look.
    pub fn new(path: &Path, limit: Bytes) -> Option<Self> {
        Growth::new(path, limit).ok().map(Self)
    }

    pub fn is_over(&mut self) -> bool {
        self.0.is_over(Moment::Running, Vec::new)
    }
}

/// Whether this descriptor has something to read now; for a cancel descriptor, whether the caller has given up.
pub fn is_readable(fd: impl AsFd) -> bool {
    crate::capture::has_data(fd)
}
