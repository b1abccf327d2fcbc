//! One run that the daemon has taken on: where it stands, how it is cancelled, and its result for as long as that is remembered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_contract::envelope::ResultEnvelope;
use cofferdam_contract::record::RunRecord;
use cofferdam_engine::pipeline::LiveUsage;
use cofferdam_store::RunId;
use cofferdam_store::model::{Artifact, LeftOut, RunKind};
use cofferdam_store::sift::redact::Rules;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::cancellation::Cancellation;
use crate::fault::Fault;
use crate::inputs::InputOutcome;
use crate::language::Answer;
use crate::project::{Done, Progress};
use crate::reports::About;
use crate::trace::RunTrace;
use crate::work::Work;

/// A run from its arrival on.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) id: RunId,
    /// The token that sent it.
    pub(crate) tenant: String,
    /// The client's own name for it.
    pub(crate) execution_id: Option<String>,
    /// Where the client wants the result.
    pub(crate) callback_url: Option<String>,
    /// Whether there is a file that says that it was accepted.
    pub(crate) promised: bool,
    /// Whether an earlier daemon accepted it.
    pub(crate) taken_up: bool,
    pub(crate) kind: RunKind,
    pub(crate) command: Vec<String>,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) parent: Option<RunId>,
    /// Values that must not be kept wherever they turn up.
    pub(crate) secrets: Vec<Vec<u8>>,
    pub(crate) arrived: Instant,
    pub(crate) submitted_at: Timestamp,
    /// It has ended by then, or is ended.
    pub(crate) deadline: Instant,
    /// What it takes of the memory budget.
    pub(crate) share: u64,
    pub(crate) trace: RunTrace,
    /// While it runs.
    pub(crate) usage: Arc<LiveUsage>,
    /// Of a project.
    pub(crate) progress: Arc<Progress>,
    work: Mutex<Option<Work>>,
    pub(crate) cancel: Cancellation,
    phase: watch::Sender<Phase>,
}

/// Where a run stands.
#[derive(Debug, Clone)]
pub(crate) enum Phase {
    Queued,
    Running { since: Timestamp, queued: Duration },
    Ended(Arc<Ended>),
}

/// How it came out.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) at: Timestamp,
    pub(crate) queued: Duration,
    pub(crate) total: Duration,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Finished(Box<Finished>),
    /// The engine refused it, or the daemon could not prepare it.
    Failed(Fault),
    /// Cancelled before its turn came.
    CanceledInQueue,
    /// Its deadline passed before its turn came.
    Expired,
}

/// A run that the engine brought to its end.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) record: RunRecord,
    pub(crate) stage: Stage,
    pub(crate) artifacts: Vec<Artifact>,
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) answer: Answer,
    /// What became of each input, where the program was run for several.
    pub(crate) inputs: Option<Vec<InputOutcome>>,
    /// What came of a project.
    pub(crate) project: Option<Box<Done>>,
    /// Of a payload that another machine answered, signed there.
    pub(crate) envelope: Option<Box<ResultEnvelope>>,
}

impl Finished {
    pub(crate) fn without_files(record: RunRecord, stage: Stage) -> Self {
        Self {
            record,
            stage,
            artifacts: Vec::new(),
            left_out: Vec::new(),
            answer: Answer::None,
            inputs: None,
            project: None,
            envelope: None,
        }
    }
}

/// Which part of the work the record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// It did not compile, so that nothing was run.
    Compile,
    Run,
}

/// What is known of a run at its arrival.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) id: RunId,
    pub(crate) submitted_at: Timestamp,
    /// How long ago that was.
    pub(crate) waited: Duration,
    pub(crate) tenant: String,
    /// From its submission.
    pub(crate) deadline: Duration,
    pub(crate) share: u64,
    pub(crate) execution_id: Option<String>,
    pub(crate) callback_url: Option<String>,
    pub(crate) promised: bool,
    pub(crate) taken_up: bool,
    pub(crate) work: Work,
}

impl Ended {
    /// The run that the record is of, where there is one. For code that did not compile that is the step before its run.
    pub(crate) fn run_id(&self) -> &str {
        match &self.outcome {
            Outcome::Finished(finished) => &finished.record.run_id,
            Outcome::Failed(_) | Outcome::CanceledInQueue | Outcome::Expired => "",
        }
    }

    /// About how many bytes of memory it takes to remember this.
    pub(crate) fn weight(&self) -> usize {
        const FIXED: usize = 4096;
        FIXED
            + match &self.outcome {
                Outcome::Finished(finished) => finished.weight(),
                Outcome::Failed(fault) => fault.detail.len(),
                Outcome::CanceledInQueue | Outcome::Expired => 0,
            }
    }
}

impl Live {
    pub(crate) fn new(arrival: Arrival) -> Self {
        let now = Instant::now();
        // A clock that began after it was submitted: then it came now, and has less time left.
        let (arrived, deadline) = match now.checked_sub(arrival.waited) {
            Some(arrived) => (arrived, arrival.deadline),
            None => (now, arrival.deadline.saturating_sub(arrival.waited)),
        };
        let work = arrival.work;
        Self {
            id: arrival.id,
            tenant: arrival.tenant,
            execution_id: arrival.execution_id,
            callback_url: arrival.callback_url,
            promised: arrival.promised,
            taken_up: arrival.taken_up,
            kind: work.kind,
            command: work.command_line(),
            tags: work.tags.clone(),
            parent: work.parent,
            secrets: work.secrets(),
            arrived,
            submitted_at: arrival.submitted_at,
            deadline: arrived + deadline,
            share: arrival.share,
            trace: RunTrace::begin(),
            usage: Arc::default(),
            progress: Arc::default(),
            work: Mutex::new(Some(work)),
            cancel: Cancellation::default(),
            phase: watch::Sender::new(Phase::Queued),
        }
    }

    /// The rules, and what else must not be kept of this run.
    pub(crate) fn rules(&self, rules: &Rules) -> Rules {
        let secrets = self.secrets.iter().map(Vec::as_slice);
        rules.clone().with_values(secrets)
    }

    pub(crate) fn about(&self) -> About<'_> {
        About {
            run: self.id,
            execution_id: self.execution_id.as_deref(),
            callback_url: self.callback_url.as_deref(),
        }
    }

    /// About how many bytes it takes to remember what it was, beside its result.
    pub(crate) fn weight(&self) -> usize {
        let command = self.command.iter();
        let tags = self.tags.iter();
        command
            .map(|text| size_of::<String>() + text.len())
            .sum::<usize>()
            + tags
                .map(|(key, value)| 2 * size_of::<String>() + key.len() + value.len())
                .sum::<usize>()
    }

    /// The work, for whoever carries it out; once.
    pub(crate) fn take_work(&self) -> Option<Work> {
        self.work
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    pub(crate) fn follow(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    pub(crate) fn set(&self, phase: Phase) {
        if let Phase::Ended(_) = phase {
            self.cancel.end();
            // Of a run whose turn never came.
            drop(self.take_work());
        }
        self.phase.send_replace(phase);
    }

    /// Waits for the end. The sender lives in `self`, so that it cannot go away.
    pub(crate) async fn ended(&self) -> Option<Arc<Ended>> {
        let mut phases = self.follow();
        let reached = phases
            .wait_for(|phase| matches!(phase, Phase::Ended(_)))
            .await;
        match reached.ok().as_deref() {
            Some(Phase::Ended(ended)) => Some(Arc::clone(ended)),
            _ => None,
        }
    }
}
