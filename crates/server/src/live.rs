//! One run that the daemon has taken on: where it stands, how it is cancelled, and its result for as long as that is remembered.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_contract::record::RunRecord;
use cofferdam_engine::pipeline::LiveUsage;
use cofferdam_store::RunId;
use cofferdam_store::model::{Artifact, LeftOut, RunKind};
use jiff::Timestamp;
use rustix::event::EventfdFlags;
use tokio::sync::watch;

use crate::fault::Fault;
use crate::inputs::InputOutcome;
use crate::language::Answer;
use crate::work::Work;

/// A run from its arrival on.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) id: RunId,
    /// The token that sent it.
    pub(crate) tenant: String,
    pub(crate) kind: RunKind,
    pub(crate) command: Vec<String>,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) arrived: Instant,
    pub(crate) submitted_at: Timestamp,
    /// It has ended by then, or is ended.
    pub(crate) deadline: Instant,
    /// What it takes of the memory budget.
    pub(crate) share: u64,
    /// While it runs.
    pub(crate) usage: Arc<LiveUsage>,
    work: Mutex<Option<Work>>,
    /// Only until the end: remembering a result must not take a descriptor.
    cancel: Mutex<Option<Arc<OwnedFd>>>,
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
        }
    }
}

/// Which part of the work the record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It did not compile, so that nothing was run.
    Compile,
    Run,
}

/// What is known of a run at its arrival.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) tenant: String,
    pub(crate) deadline: Duration,
    pub(crate) share: u64,
    pub(crate) work: Work,
}

impl Ended {
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
    pub(crate) fn new(arrival: Arrival) -> Result<Self, Fault> {
        let cancel = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Fault::internal(format!("cannot make an eventfd: {errno}")))?;
        let arrived = Instant::now();
        let work = arrival.work;
        Ok(Self {
            id: RunId::new(),
            tenant: arrival.tenant,
            kind: work.kind,
            command: work.command_line(),
            tags: work.tags.clone(),
            arrived,
            submitted_at: Timestamp::now(),
            deadline: arrived + arrival.deadline,
            share: arrival.share,
            usage: Arc::default(),
            work: Mutex::new(Some(work)),
            cancel: Mutex::new(Some(Arc::new(cancel))),
            phase: watch::Sender::new(Phase::Queued),
        })
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
            *self.cancel.lock().unwrap_or_else(PoisonError::into_inner) = None;
            // Of a run whose turn never came.
            drop(self.take_work());
        }
        self.phase.send_replace(phase);
    }

    /// Tells the supervisor. Harmless for a run that has ended.
    pub(crate) fn request_cancel(&self) {
        let one: u64 = 1;
        if let Some(cancel) = self.cancel_descriptor() {
            // Full would mean that it was asked 2^64 times.
            let _ = rustix::io::write(&cancel, &one.to_ne_bytes());
        }
    }

    /// For the supervisor; `None` after the end.
    pub(crate) fn cancel_descriptor(&self) -> Option<Arc<OwnedFd>> {
        let cancel = self.cancel.lock().unwrap_or_else(PoisonError::into_inner);
        cancel.clone()
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
