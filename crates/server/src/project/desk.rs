//! Who looks on while the steps of a client's project run: each step is a run of its own in the history, below the run of the request; what the tools say is written into the journal of that
//! run while they say it, so that whoever follows it sees it at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cofferdam_contract::ending::Stream;
use cofferdam_contract::record::{CapturedStream, RunRecord};
use cofferdam_engine::pipeline::Recording;
use cofferdam_project::report::Counts;
use cofferdam_store::journal::Journal;
use cofferdam_store::model::Opening;
use cofferdam_store::sift::redact::Rules;
use cofferdam_store::{DataDir, RunId};
use cofferdam_workshop::{Begun, Watcher, WorkError};

use super::Progress;
use crate::archive;
use crate::kept::JOURNAL;
use crate::live::Live;
use crate::work::Place;

/// Of each stream, for the answer; the history has more.
const ANSWERED: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Desk {
    dir: DataDir,
    rules: Rules,
    run: RunId,
    tenant: String,
    progress: Arc<Progress>,
    /// How the record of the request's run begins, and how many secrets were taken out of it.
    opening: (Opening, u64),
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Begun with the first step; or why there is none.
    pub(super) journal: Option<Result<Journal, String>>,
    pub(super) stdout: Heard,
    pub(super) stderr: Heard,
    /// Of the steps.
    pub(super) records: Vec<RunRecord>,
}

/// The beginning of what was said on one stream.
#[derive(Debug, Default)]
pub(super) struct Heard {
    bytes: Vec<u8>,
    all: u64,
}

impl Heard {
    fn push(&mut self, bytes: &[u8]) {
        self.all += u64::try_from(bytes.len()).unwrap_or(0);
        let room = ANSWERED.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes
            .extend_from_slice(bytes.get(..room).unwrap_or_default());
    }

    pub(super) fn captured(&self) -> CapturedStream {
        CapturedStream::new(&self.bytes, self.all)
    }
}

impl Desk {
    pub(super) fn new(live: &Live, place: Place<'_>) -> Self {
        let rules = live.rules(&place.kept.rules);
        let opening = archive::opening_of(live, &rules);
        Self {
            dir: place.dir.clone(),
            run: live.id,
            tenant: live.tenant.clone(),
            progress: Arc::clone(&live.progress),
            opening,
            rules,
            state: Mutex::default(),
        }
    }

    /// How each part of the run is kept.
    pub(super) fn part(&self) -> Recording {
        let mut recording = Recording::new(self.dir.clone());
        recording.rules = self.rules.clone();
        recording.parent = Some(self.run);
        recording.sender = Some(self.tenant.clone());
        recording.artifacts = None;
        recording
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(super) fn redacted_in_opening(&self) -> u64 {
        self.opening.1
    }

    /// From here on the run is in the history, also when nobody comes to write how it ended.
    pub(super) fn begin(&self) {
        let mut state = self.state();
        if state.journal.is_none() {
            let begun = Journal::begin(&self.dir, &self.opening.0, self.rules.clone(), JOURNAL);
            state.journal = Some(begun.map_err(|error| {
                tracing::error!(run_id = %self.run, %error, "a run could not be kept");
                error.to_string()
            }));
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher for Desk {
    fn recording(&self) -> Result<Option<Recording>, WorkError> {
        Ok(Some(self.part()))
    }

    fn began(&self, step: &Begun<'_>) {
        self.begin();
        self.progress
            .began(step.manifest, step.attempt, step.counts);
    }

    fn said(&self, stream: Stream, bytes: &[u8]) {
        let mut state = self.state();
        if let Some(Ok(journal)) = &mut state.journal {
            journal.output(stream, bytes);
        }
        match stream {
            Stream::Stdout => state.stdout.push(bytes),
            Stream::Stderr => state.stderr.push(bytes),
        }
    }

    fn counted(&self, counts: Counts) {
        self.progress.counted(counts);
    }

    fn ended(&self, record: &RunRecord) {
        self.progress.ended();
        self.state().records.push(record.clone());
    }
}
