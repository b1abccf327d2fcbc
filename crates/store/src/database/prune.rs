//! Which runs go: first by age, then by number, then by size, the oldest first. Runs with a tag and runs that go on stay.
//!
//! The size of a run is what it takes in the database, which is an estimate (its documents and output, and [`super::run_row::ROW_SHARE`]), and the contents that only it and
//! other runs that go refer to, which is exact.

use std::ops::ControlFlow;
use std::time::Duration;

use cofferdam_contract::units::{Bytes, Cap};
use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;
use serde::Serialize;

use super::fault::Fault;
use super::open::History;
use super::remove::Doomed;
use super::run_row::{Facet, timestamp, unsigned};
use crate::error::StoreError;
use crate::id::RunId;
use crate::model::Status;
use crate::objects::Objects;

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

impl PruneReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Count => "count",
            Self::Size => "size",
            Self::Named => "named",
        }
    }
}

impl History {
    /// Removes what the rules no longer keep, and contents that nothing has referred to for an hour.
    pub fn prune(&mut self, retention: &Retention, mode: PruneMode) -> Result<Pruned, StoreError> {
        let objects = Objects::open(self.dir());
        let doomed = self.read(|connection| {
            let mut doomed = Doomed::new(connection, &objects, self.dir())?;
            doomed.sweep_orphans(connection)?;
            choose(connection, &mut doomed, retention, Timestamp::now())?;
            Ok(doomed)
        })?;
        self.carry_out(doomed, mode)
    }
}

/// A run that may go.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) id: RunId,
    pub(crate) status: Status,
    pub(crate) started: Timestamp,
    pub(crate) duration: Option<i64>,
    pub(crate) stored_bytes: u64,
    pub(crate) line: String,
}

fn choose(
    connection: &Connection,
    doomed: &mut Doomed,
    retention: &Retention,
    now: Timestamp,
) -> Result<(), Fault> {
    by_age(connection, doomed, retention, now)?;
    if let Cap::AtMost(most) = retention.max_runs
        && doomed.kept_runs() > most
    {
        each_candidate(connection, doomed, |doomed, candidate| {
            if doomed.kept_runs() <= most {
                return Ok(ControlFlow::Break(()));
            }
            if !doomed.contains(candidate.id) {
                doomed.add(connection, candidate, PruneReason::Count)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    if let Cap::AtMost(most) = retention.max_bytes
        && doomed.wanted_bytes() > most.get()
    {
        each_candidate(connection, doomed, |doomed, candidate| {
            if doomed.wanted_bytes() <= most.get() {
                return Ok(ControlFlow::Break(()));
            }
            if !doomed.contains(candidate.id) {
                doomed.add(connection, candidate, PruneReason::Size)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(())
}

fn by_age(
    connection: &Connection,
    doomed: &mut Doomed,
    retention: &Retention,
    now: Timestamp,
) -> Result<(), Fault> {
    let success = oldest_kept(now, retention.max_age);
    let failure = oldest_kept(now, retention.max_age_of_failures);
    // Ids order runs by the time at which they were named, which is a little off the time at which they began.
    let slack = SignedDuration::from_mins(1);
    let last = success
        .max(failure)
        .and_then(|at| at.saturating_add(slack).ok());
    let Some(last) = last else { return Ok(()) };
    // By the id, as they are walked: one run that says that it began later than its id does not end the walk for those behind it.
    let last = RunId::floor(last);
    each_candidate(connection, doomed, |doomed, candidate| {
        if candidate.id > last {
            return Ok(ControlFlow::Break(()));
        }
        let oldest = if candidate.status.is_failure() {
            failure
        } else {
            success
        };
        if oldest.is_some_and(|oldest| candidate.started < oldest) {
            doomed.add(connection, candidate, PruneReason::Age)?;
        }
        Ok(ControlFlow::Continue(()))
    })
}

/// What began before is too old. `None` keeps everything.
fn oldest_kept(now: Timestamp, age: Cap<Duration>) -> Option<Timestamp> {
    match age {
        Cap::Unlimited => None,
        Cap::AtMost(age) => {
            let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
            Some(now.checked_sub(age).unwrap_or(Timestamp::MIN))
        }
    }
}

/// From the oldest on: runs that have ended and have no tag.
fn each_candidate(
    connection: &Connection,
    doomed: &mut Doomed,
    mut visit: impl FnMut(&mut Doomed, &Candidate) -> Result<ControlFlow<()>, Fault>,
) -> Result<(), Fault> {
    let sql = "SELECT status, cause, exit_code, signal, kind, backend, has_artifacts, id, started, duration, stored_bytes, text
        FROM runs NOT INDEXED CROSS JOIN facets USING (facet) CROSS JOIN commands USING (command)
        WHERE status <> 'running' AND NOT EXISTS (SELECT 1 FROM tags WHERE run = id) ORDER BY id";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let candidate = candidate(row)?;
        if visit(doomed, &candidate)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// From the seven columns of a facet, then id, started, duration, stored bytes, command line.
pub(crate) fn candidate(row: &rusqlite::Row<'_>) -> Result<Candidate, Fault> {
    Ok(Candidate {
        id: RunId::from_bytes(row.get(7)?),
        status: Facet::read(row)?.status,
        started: timestamp(row.get(8)?)?,
        duration: row.get(9)?,
        stored_bytes: unsigned(row.get(10)?),
        line: row.get(11)?,
    })
}
