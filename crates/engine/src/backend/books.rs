//! How a run's books are opened and closed, whoever carries it out: its name and time of birth, and in the end its record, made and written down.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use cofferdam_contract::ending::{Ending, Stream};
use cofferdam_contract::enforcement::Enforcement;
use cofferdam_contract::network_record::NetworkRecord;
use cofferdam_contract::record::{Change, Denial, FinishedRun, RunRecord};
use cofferdam_contract::request::{BackendName, Request};
use cofferdam_contract::units::Bytes;
use cofferdam_contract::usage::Usage;
use cofferdam_store::RunId;
use cofferdam_sys::signals;
use jiff::Timestamp;
use rustix::process::Signal;

use crate::capture::Drain;
use crate::error::EngineError;
use crate::pipeline::{Birth, Recording, whole_micros};
use crate::recording::Recorder;

/// What the books hold when a run is over.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) birth: Birth,
    pub(super) backend: BackendName,
    pub(super) recorder: Option<Recorder>,
    pub(super) stdout: Drain,
    pub(super) stderr: Drain,
}

/// What the backend adds to them.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) ending: Ending,
    /// Without the output, which is counted here.
    pub(super) usage: Usage,
    pub(super) enforced_by: Enforcement,
    pub(super) isolation: BTreeMap<String, String>,
    pub(super) denials: Vec<Denial>,
    /// `None` for a run without network.
    pub(super) network: Option<NetworkRecord>,
    pub(super) changes: Option<Vec<Change>>,
}

/// Names the run, and refuses what could not be written down.
pub(super) fn open(request: &Request, recording: Option<&Recording>) -> Result<Birth, EngineError> {
    if let Some(recording) = recording {
        recording.check(request)?;
        // A limit on the size of our own files is a full journal, not our end.
        signals::hold_back(Signal::XFSZ).map_err(EngineError::system("hold a signal back"))?;
    }
    Ok(Birth {
        run_id: recording.map_or_else(RunId::new, |recording| recording.run_id),
        started_at: whole_micros(Timestamp::now()),
    })
}

impl Books {
    /// Makes the record and writes the end down.
    pub(super) fn close(
        self,
        entry: Entry,
        cancel: Option<BorrowedFd<'_>>,
    ) -> Result<RunRecord, EngineError> {
        let mut usage = entry.usage;
        usage.output = Bytes::new(self.stdout.seen() + self.stderr.seen());
        let failures = [
            (Stream::Stdout, self.stdout.failure()),
            (Stream::Stderr, self.stderr.failure()),
        ];
        let mut record = RunRecord::new(FinishedRun {
            run_id: self.birth.run_id.to_string(),
            backend: self.backend,
            ending: entry.ending,
            stdout: self.stdout.into_captured(),
            stderr: self.stderr.into_captured(),
            result: None,
            usage,
            enforced_by: entry.enforced_by,
            isolation: entry.isolation,
            denials: entry.denials,
            changes: entry.changes,
            started_at: self.birth.started_at,
            ended_at: whole_micros(Timestamp::now()),
        });
        record.network = entry.network;
        record.unrecorded = self
            .recorder
            .and_then(|recorder| recorder.finish(&record, None, cancel));
        for (stream, failure) in failures {
            if let Some(errno) = failure {
                return Err(EngineError::OutputWriteFailed { stream, errno });
            }
        }
        Ok(record)
    }
}
