//! What is written down about a fleet: jobs, work, claims, workers and settings. Data only.

use std::time::Duration;

use cofferdam_contract::canonical::Digest;
use cofferdam_contract::replicas::Agreement;
use cofferdam_contract::rules::{Entry, Offence, Rules};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::class::Capabilities;

/// A document: small ones travel in the message, large ones lie in the object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Carried {
    Inline {
        text: String,
    },
    Object {
        name: String,
        bytes: u64,
        sha256: Digest,
    },
}

/// One message of the queue: one run that is wanted of one worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    pub job: String,
    pub slot: u32,
    pub tenant: String,
    pub class: String,
    pub digest: Digest,
    pub payload: Carried,
    /// What a daemon was asked, where the payload stands for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Carried>,
    /// Workers that must not take it.
    pub excluded: Vec<String>,
    pub deadline: Timestamp,
}

impl Work {
    /// What is to be done for one answer of a job.
    pub fn of(record: &JobRecord, slot: &Slot) -> Self {
        Self {
            job: record.job.clone(),
            slot: slot.number,
            tenant: record.tenant.clone(),
            class: record.class.clone(),
            digest: record.digest,
            payload: record.payload.clone(),
            request: record.request.clone(),
            excluded: slot.excluded.clone(),
            deadline: record.deadline,
        }
    }
}

/// Who has a slot. Changed only by comparing and setting, so that one worker has it at a time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    pub state: ClaimState,
    /// How often a worker has started on it.
    pub starts: u32,
    /// Added to those of the work.
    pub excluded: Vec<String>,
    pub failures: Vec<Failure>,
    /// Everybody who has started on it, however that ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub takers: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ClaimState {
    #[default]
    Free,
    Held {
        worker: String,
        /// A worker that was started again is another one.
        incarnation: String,
        /// Signs of life.
        beats: u64,
    },
    Answered {
        worker: String,
    },
    Dead {
        reason: String,
    },
}

/// Why a worker did not bring a slot to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    pub worker: String,
    pub kind: FailureKind,
    pub at: Timestamp,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// It had given signs of life and gave no more.
    Stall,
    /// It never gave one.
    Crash,
    /// It said itself that it cannot do it: no offence.
    Refused,
}

/// A job, from being accepted to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRecord {
    pub job: String,
    pub tenant: String,
    pub class: String,
    pub digest: Digest,
    pub payload: Carried,
    /// What a daemon was asked, where the payload stands for that. Its digest is sealed in the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Carried>,
    /// How many answers are compared.
    pub replicas: u32,
    /// A second answer was asked for without the submitter's having asked.
    pub audited: bool,
    pub accepted_at: Timestamp,
    pub deadline: Timestamp,
    /// Whether all of its work is in the queue.
    pub queued: bool,
    pub slots: Vec<Slot>,
    /// The answers of earlier rounds: none of them counts again.
    pub used: Vec<String>,
    /// What is held for or against workers because of it.
    pub entries: Vec<Held>,
    /// When somebody said that it is not wanted any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canceled: Option<Timestamp>,
    pub end: Option<End>,
    /// Whether the ledger has all of its entries.
    pub settled: bool,
}

/// One run that is wanted of one worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    pub number: u32,
    pub excluded: Vec<String>,
    pub queued_at: Timestamp,
    pub end: Option<SlotEnd>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SlotEnd {
    /// The first valid envelope, by its place in the stream of results.
    Valid {
        worker: String,
        result_id: String,
        sequence: u64,
    },
    Rejected {
        worker: String,
        offence: Option<Offence>,
        evidence: String,
    },
    Dead {
        reason: String,
    },
    /// Of an earlier round, which a person has had done again.
    Abandoned,
}

/// An entry for a worker's standing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    pub worker: String,
    pub entry: Entry,
}

/// How a job ended; written once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    pub at: Timestamp,
    pub outcome: EndOutcome,
    /// The workers whose answers were compared, in the agreement's order.
    pub workers: Vec<String>,
    pub agreement: Option<Agreement>,
    /// The slot whose envelope is the answer.
    pub answer: Option<u32>,
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndOutcome {
    /// There is an answer that enough workers agree on.
    Agreed,
    /// They do not agree.
    Disputed,
    /// Too few answered.
    Failed,
    /// Somebody did not want it any more, before there was an answer.
    Canceled,
}

/// What a worker says about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advert {
    pub name: String,
    pub incarnation: String,
    /// An Ed25519 public key as base64.
    pub key: String,
    pub engine: String,
    pub slots: u32,
    pub state: WorkerState,
    pub capabilities: Capabilities,
    /// What it is doing: job and slot.
    pub running: Vec<(String, u32)>,
    pub started_at: Timestamp,
    pub seen_at: Timestamp,
    pub done: u64,
    /// The account whose bond stands for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    Ready,
    /// It finishes what it has and takes nothing new.
    Draining,
    Quarantined,
    Stopped,
}

/// What holds for the whole fleet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// How long after a start nobody asks for signs of life.
    pub grace_ms: u64,
    /// How long a worker may be silent; also when the queue gives its work to another.
    pub heartbeat_timeout_ms: u64,
    /// How often a slot is started at most: one, and one reassignment.
    pub max_starts: u32,
    /// How often a rejected answer is asked of another worker.
    pub max_replacements: u32,
    pub keep_results_hours: u64,
    pub rules: Rules,
    pub enforcement: Enforcement,
}

/// Who carries out what the rules say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Enforcement {
    /// The fleet itself: quarantine.
    #[default]
    Local,
    /// A contract too: bonds on a chain, and its word before a run has network.
    Public {
        chain_id: u64,
        contract: String,
        /// In wei: a number as text, since it may be larger than JSON's.
        minimum_bond: String,
        /// What of a bond is locked for each job, in wei; nothing where it is zero.
        #[serde(default = "nothing")]
        job_bond: String,
    },
}

fn nothing() -> String {
    "0".to_owned()
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            grace_ms: 60_000,
            heartbeat_timeout_ms: 30_000,
            max_starts: 2,
            max_replacements: 1,
            keep_results_hours: 7 * 24,
            rules: Rules::default(),
            enforcement: Enforcement::Local,
        }
    }
}

impl Settings {
    pub const fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms)
    }

    pub const fn heartbeat_timeout(&self) -> Duration {
        Duration::from_millis(self.heartbeat_timeout_ms)
    }

    /// How long the server keeps what nobody writes anew.
    pub const fn kept(&self) -> Duration {
        Duration::from_secs(self.keep_results_hours.saturating_mul(3600))
    }

    /// Six signs of life in the time after which one is missed.
    pub fn beat(&self) -> Duration {
        (self.heartbeat_timeout() / 6).max(Duration::from_millis(50))
    }
}

/// One line of a job's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    pub at: Timestamp,
    pub job: String,
    pub slot: Option<u32>,
    /// `taken`, `revoked`, `late`, `refused`, `answered`, `rejected`, `dead`, `canceled`, `ended`, `requeued`.
    pub what: String,
    pub worker: Option<String>,
    pub detail: String,
    /// The first lines that the program wrote to stderr, where it has answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<String>,
}

/// What lies in the stream of the dead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetter {
    pub work: Work,
    pub reason: String,
    pub failures: Vec<Failure>,
    pub at: Timestamp,
}
