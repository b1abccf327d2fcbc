//! Runs come in: as going on, and as ended. What has ended is never changed again.

use rusqlite::{Connection, OptionalExtension as _};
use serde_json::json;

use super::commands;
use super::fault::Fault;
use super::open::{Durability, History};
use super::run_row::RunRow;
use crate::audit::chain::{Chain, NewEntry};
use crate::audit::head;
use crate::error::StoreError;
use crate::id::RunId;
use crate::model::{Digest, LogFacts, Opening, Outcome};

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

impl History {
    /// Writes down that these runs go on. Those that are known already are left as they are.
    pub fn begin(&mut self, runs: &[Opening]) -> Result<(), StoreError> {
        if runs.is_empty() {
            return Ok(());
        }
        self.write(Durability::Consistent, |transaction| {
            for opening in runs {
                if standing(transaction, opening.run_id)? == Standing::Unknown {
                    let row = RunRow::new(opening, &Outcome::Running, &LogFacts::default(), None)?;
                    insert(transaction, &row)?;
                }
            }
            Ok(())
        })
    }

    /// Writes down how these runs ended, all or none, with their entries in the audit chain. One that has ended already stays as it is. When this has returned, a power cut does
    /// not undo it: what the runs came from may be removed.
    pub fn record(&mut self, runs: &[NewRun]) -> Result<(), StoreError> {
        if runs.is_empty() {
            return Ok(());
        }
        let last = self.write(Durability::Durable, |transaction| {
            let mut chain = Chain::load(transaction)?;
            for run in runs {
                record_one(transaction, &mut chain, run)?;
            }
            Ok(chain.head())
        })?;
        head::advance_best_effort(self, last);
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Unknown,
    Running,
    Ended,
}

fn standing(connection: &Connection, id: RunId) -> Result<Standing, Fault> {
    let sql = "SELECT status = 'running' FROM runs JOIN facets USING (facet) WHERE id = ?1";
    let running: Option<bool> = connection
        .prepare_cached(sql)?
        .query_row([id.as_bytes()], |row| row.get(0))
        .optional()?;
    Ok(match running {
        None => Standing::Unknown,
        Some(true) => Standing::Running,
        Some(false) => Standing::Ended,
    })
}

fn record_one(connection: &Connection, chain: &mut Chain<'_>, run: &NewRun) -> Result<(), Fault> {
    let id = run.opening.run_id;
    let event = match &run.outcome {
        Outcome::Running => {
            return Err(Fault::Store(StoreError::Invalid {
                field: "outcome",
                value: format!("running, for run {id}"),
                why: "a run is recorded when it has ended".to_owned(),
            }));
        }
        Outcome::Ended(_) => "run.ended",
        Outcome::Interrupted { .. } => "run.interrupted",
    };
    let standing = standing(connection, id)?;
    if standing == Standing::Ended {
        return Ok(());
    }
    let output = Some(run.output.clone());
    let row = RunRow::new(&run.opening, &run.outcome, &run.log, output)?;
    if standing == Standing::Running {
        replace(connection, &row)?;
    } else {
        insert(connection, &row)?;
    }
    chain.append(&NewEntry {
        event,
        subject: &id.to_string(),
        detail: &json!({"sha256": row.digest()}).to_string(),
    })
}

fn insert(connection: &Connection, row: &RunRow) -> Result<(), Fault> {
    let facet = row.facet.intern(connection)?;
    let command = commands::intern(connection, &row.line)?;
    let sql = "INSERT INTO runs
        (id, facet, command, started, duration, parent, artifacts, output_bytes, stored_bytes)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    write_run(connection, sql, row, [facet, command])?;
    let sql = "INSERT INTO details (opening, outcome, log, output, output_digest, run)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    write_details(connection, sql, row)?;
    insert_parts(connection, row, facet, command)
}

/// A run that went on has ended. Its opening is the one that came with its end.
fn replace(connection: &Connection, row: &RunRow) -> Result<(), Fault> {
    let facet = row.facet.intern(connection)?;
    let command = commands::intern(connection, &row.line)?;
    let sql = "UPDATE details SET opening = ?1, outcome = ?2, log = ?3, output = ?4, output_digest = ?5 WHERE run = ?6";
    write_details(connection, sql, row)?;
    for sql in [
        "DELETE FROM tags WHERE run = ?1",
        "DELETE FROM senders WHERE run = ?1",
        "DELETE FROM contents WHERE run = ?1",
    ] {
        connection
            .prepare_cached(sql)?
            .execute([row.id.as_bytes()])?;
    }
    insert_parts(connection, row, facet, command)?;
    let sql = "UPDATE runs SET facet = ?2, command = ?3, started = ?4, duration = ?5, parent = ?6,
        artifacts = ?7, output_bytes = ?8, stored_bytes = ?9 WHERE id = ?1";
    write_run(connection, sql, row, [facet, command])
}

/// A statement whose parameters are the columns of `runs`, in their order.
fn write_run(
    connection: &Connection,
    sql: &str,
    row: &RunRow,
    [facet, command]: [i64; 2],
) -> Result<(), Fault> {
    connection.prepare_cached(sql)?.execute(rusqlite::params![
        row.id.as_bytes(),
        facet,
        command,
        row.started,
        row.duration,
        row.parent.as_ref().map(RunId::as_bytes),
        row.artifacts,
        row.output_bytes,
        row.stored_bytes,
    ])?;
    Ok(())
}

fn write_details(connection: &Connection, sql: &str, row: &RunRow) -> Result<(), Fault> {
    let (inline, digest) = match &row.output {
        None => (None, None),
        Some(KeptOutput::Inline(bytes)) => (Some(bytes.as_slice()), None),
        Some(KeptOutput::Object(digest)) => (None, Some(digest.0)),
    };
    connection.prepare_cached(sql)?.execute(rusqlite::params![
        row.opening,
        row.outcome,
        row.log,
        inline,
        digest,
        row.id.as_bytes(),
    ])?;
    Ok(())
}

fn insert_parts(
    connection: &Connection,
    row: &RunRow,
    facet: i64,
    command: i64,
) -> Result<(), Fault> {
    let tag = "INSERT INTO tags (run, key, value, facet, duration, command) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    for (key, value) in &row.tags {
        connection.prepare_cached(tag)?.execute(rusqlite::params![
            row.id.as_bytes(),
            key,
            value,
            facet,
            row.duration,
            command,
        ])?;
    }
    if let Some(sender) = &row.sender {
        let sql = "INSERT INTO senders (sender, run, facet, duration, command) VALUES (?1, ?2, ?3, ?4, ?5)";
        connection.prepare_cached(sql)?.execute(rusqlite::params![
            sender,
            row.id.as_bytes(),
            facet,
            row.duration,
            command,
        ])?;
    }
    let content = "INSERT INTO contents (run, digest, bytes) VALUES (?1, ?2, ?3)";
    for (digest, bytes) in &row.contents {
        connection
            .prepare_cached(content)?
            .execute(rusqlite::params![row.id.as_bytes(), digest.0, bytes])?;
    }
    Ok(())
}
