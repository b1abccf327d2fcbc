//! History as it is searched: one SQLite database.

use std::collections::BTreeMap;
use std::time::Duration;

use cofferdam_contract::units::{Bytes, Cap};
use jiff::Timestamp;
use serde::Serialize;

use crate::data_dir::DataDir;
use crate::error::StoreError;
use crate::id::RunId;
use crate::log::Chunk;
use crate::model::{Digest, LogFacts, Opening, Outcome, RunKind, Status, StoredRun};

/// The history of one data directory.
#[derive(Debug)]
pub struct History {
    dir: DataDir,
}

/// A run as it comes into the history: from a journal, or from a bundle.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRun {
    pub opening: Opening,
    /// Not `Running`.
    pub outcome: Outcome,
    pub log: LogFacts,
    pub output: KeptOutput,
}

/// Where a run's output is kept: encoded by [`crate::log::encode`], in the row when it is small, as an object when it is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptOutput {
    Inline(Vec<u8>),
    Object(Digest),
}

/// Which runs to list. All that is set must hold.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Query {
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Any of these, by status or by cause.
    pub statuses: Vec<StatusFilter>,
    pub exit_code: Option<i32>,
    /// A glob over the whole command line: `*`, `?`, `[…]`. Without any of these, the command line begins with it.
    pub command: Option<String>,
    /// Each must be there, with this value or with any.
    pub tags: Vec<(String, Option<String>)>,
    pub kind: Option<RunKind>,
    pub backend: Option<String>,
    pub parent: Option<RunId>,
    pub longer_than: Option<Duration>,
    pub shorter_than: Option<Duration>,
    pub has_artifacts: Option<bool>,
    /// Only runs older than this one: the next page.
    pub before: Option<RunId>,
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatusFilter {
    Status(Status),
    /// The name of a limit, such as `memory` or `wall_time`.
    Cause(String),
}

/// Newest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Page {
    pub runs: Vec<RunSummary>,
    /// Ask for the runs before this one to go on; `None` at the end.
    pub next: Option<RunId>,
}

/// One line of a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    pub run_id: RunId,
    /// The shortest beginning of the id that no other run has, at least [`crate::id::SHORT`] characters.
    pub short_id: String,
    pub status: Status,
    pub cause: Option<String>,
    pub exit_code: Option<i32>,
    pub signal: Option<String>,
    pub started_at: Timestamp,
    pub duration_ms: Option<f64>,
    pub kind: RunKind,
    pub backend: String,
    pub command: String,
    pub tags: BTreeMap<String, String>,
    pub parent: Option<RunId>,
    pub artifacts: u64,
    pub output_bytes: u64,
}

/// What is kept for how long. Runs with a tag are kept until somebody removes them by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    pub max_age: Cap<Duration>,
    /// Of runs that failed; they are what people come back for.
    pub max_age_of_failures: Cap<Duration>,
    pub max_runs: Cap<u64>,
    pub max_bytes: Cap<Bytes>,
}

/// What pruning removed, or would.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Pruned {
    pub runs: Vec<PrunedRun>,
    /// Contents that no run refers to any more.
    pub objects: u64,
    pub freed_bytes: u64,
    pub kept_runs: u64,
    pub kept_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PrunedRun {
    pub run_id: RunId,
    pub started_at: Timestamp,
    pub status: Status,
    pub command: String,
    pub why: PruneReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PruneReason {
    Age,
    Count,
    Size,
    Named,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PruneMode {
    Remove,
    DryRun,
}

/// Figures over the whole history.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stats {
    pub runs: u64,
    pub by_status: BTreeMap<Status, u64>,
    pub oldest: Option<Timestamp>,
    pub newest: Option<Timestamp>,
    /// Of runs that ended, in milliseconds.
    pub duration_ms: Option<Percentiles>,
    pub database_bytes: u64,
    pub objects: u64,
    /// Contents as they are stored, compressed and without duplicates.
    pub object_bytes: u64,
    /// The same contents as the runs see them.
    pub logical_bytes: u64,
    /// The commands that ran most often, with how often.
    pub top_commands: Vec<(String, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Percentiles {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

impl History {
    /// Opens the history, making it where there is none, and brings it to the current format.
    pub fn open(dir: &DataDir) -> Result<Self, StoreError> {
        Ok(Self { dir: dir.clone() })
    }

    pub fn dir(&self) -> &DataDir {
        &self.dir
    }

    /// Writes down that these runs go on. Those that are known already are left as they are.
    pub fn begin(&mut self, runs: &[Opening]) -> Result<(), StoreError> {
        let _ = runs;
        unimplemented!()
    }

    /// Writes down how these runs ended, all or none, with their entries in the audit chain. One that has ended already stays as it is.
    pub fn record(&mut self, runs: &[NewRun]) -> Result<(), StoreError> {
        let _ = runs;
        unimplemented!()
    }

    pub fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let _ = query;
        unimplemented!()
    }

    /// How many runs a query finds.
    pub fn count(&self, query: &Query) -> Result<u64, StoreError> {
        let _ = query;
        unimplemented!()
    }

    /// The run that is meant: a whole id, a unique beginning of one, `latest`, or `latest~2`.
    pub fn resolve(&self, asked: &str) -> Result<RunId, StoreError> {
        let _ = asked;
        unimplemented!()
    }

    pub fn get(&self, id: RunId) -> Result<StoredRun, StoreError> {
        let _ = id;
        unimplemented!()
    }

    /// A run with its output as it is stored.
    pub fn kept_output(&self, id: RunId) -> Result<KeptOutput, StoreError> {
        let _ = id;
        unimplemented!()
    }

    /// What the run wrote. Of a run that goes on, what its journal holds so far.
    pub fn output(&self, id: RunId) -> Result<Vec<Chunk>, StoreError> {
        let _ = id;
        unimplemented!()
    }

    pub fn prune(&mut self, retention: &Retention, mode: PruneMode) -> Result<Pruned, StoreError> {
        let _ = (retention, mode);
        unimplemented!()
    }

    /// Removes runs by name, tagged ones too.
    pub fn remove(&mut self, runs: &[RunId], mode: PruneMode) -> Result<Pruned, StoreError> {
        let _ = (runs, mode);
        unimplemented!()
    }

    pub fn stats(&self) -> Result<Stats, StoreError> {
        unimplemented!()
    }
}
