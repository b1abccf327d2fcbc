//! One run: which one is meant, what is kept of it, what it wrote.

use rusqlite::{Connection, OptionalExtension as _};
use serde::de::DeserializeOwned;

use super::fault::Fault;
use super::open::History;
use super::run_row::RunRow;
use super::write::KeptOutput;
use crate::error::StoreError;
use crate::id::{RunId, SHORT};
use crate::journal;
use crate::log::{self, Chunk};
use crate::model::{Outcome, StoredRun};
use crate::objects::Objects;

/// How many runs an ambiguous name lists.
const CANDIDATES: usize = 8;

impl History {
    /// The run that is meant: a whole id, a unique beginning of one, `latest`, or `latest~2`.
    pub fn resolve(&self, asked: &str) -> Result<RunId, StoreError> {
        self.read(|connection| {
            let found = match steps_back(asked) {
                Some(steps) => nth_latest(connection, steps)?,
                None => by_beginning(connection, asked)?,
            };
            found.ok_or_else(|| no_such_run(asked))
        })
    }

    pub fn get(&self, id: RunId) -> Result<StoredRun, StoreError> {
        self.read(|connection| {
            let row = row_of(connection, id)?;
            let outcome: Outcome = parsed(&row.outcome, id, "outcome")?;
            Ok(StoredRun {
                opening: parsed(&row.opening, id, "opening")?,
                status: outcome.status(),
                outcome,
                log: parsed(&row.log, id, "log")?,
            })
        })
    }

    /// A run's output as it is stored. A run that goes on has none here: its journal has.
    pub fn kept_output(&self, id: RunId) -> Result<KeptOutput, StoreError> {
        self.stored_output(id)?.ok_or_else(|| StoreError::Invalid {
            field: "run",
            value: id.to_string(),
            why: "it has not ended, and its output is still in its journal".to_owned(),
        })
    }

    /// What the run wrote. Of a run that goes on, what its journal holds so far.
    pub fn output(&self, id: RunId) -> Result<Vec<Chunk>, StoreError> {
        let mut stored = self.stored_output(id)?;
        if stored.is_none() {
            if let Some(journal) = journal::of_run(self.dir(), id)? {
                return Ok(journal.chunks);
            }
            // Adopted between the two looks.
            stored = self.stored_output(id)?;
        }
        let encoded = match stored {
            None => return Ok(Vec::new()),
            Some(KeptOutput::Inline(bytes)) => bytes,
            Some(KeptOutput::Object(digest)) => Objects::open(self.dir()).get(&digest)?,
        };
        log::decode(&encoded).map_err(|broken| StoreError::Damaged {
            path: self.dir().database(),
            why: format!("the output of run {id} cannot be read: {broken}"),
        })
    }

    fn stored_output(&self, id: RunId) -> Result<Option<KeptOutput>, StoreError> {
        self.read(|connection| Ok(row_of(connection, id)?.output))
    }
}

fn row_of(connection: &Connection, id: RunId) -> Result<RunRow, Fault> {
    RunRow::read(connection, id)?.ok_or_else(|| no_such_run(&id.to_string()))
}

fn no_such_run(asked: &str) -> Fault {
    let asked = asked.to_owned();
    Fault::Store(StoreError::NoSuchRun { asked })
}

fn parsed<T: DeserializeOwned>(document: &str, id: RunId, which: &str) -> Result<T, Fault> {
    serde_json::from_str(document)
        .map_err(|error| Fault::Damaged(format!("the {which} of run {id} cannot be read: {error}")))
}

/// `latest` is 0 steps back, `latest~2` two. A number that no history reaches is one that finds nothing.
fn steps_back(asked: &str) -> Option<i64> {
    let after = asked.strip_prefix("latest")?;
    if after.is_empty() {
        return Some(0);
    }
    let digits = after.strip_prefix('~')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(i64::MAX))
}

fn nth_latest(connection: &Connection, steps: i64) -> Result<Option<RunId>, Fault> {
    let sql = "SELECT id FROM runs ORDER BY id DESC LIMIT 1 OFFSET ?1";
    let found: Option<[u8; 16]> = connection
        .prepare_cached(sql)?
        .query_row([steps], |row| row.get(0))
        .optional()?;
    Ok(found.map(RunId::from_bytes))
}

fn by_beginning(connection: &Connection, asked: &str) -> Result<Option<RunId>, Fault> {
    let Some((low, high)) = RunId::range_of_prefix(asked) else {
        return Ok(None);
    };
    let sql = "SELECT id FROM runs WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT ?3";
    let most = i64::try_from(CANDIDATES).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(
        rusqlite::params![low.as_bytes(), high.as_bytes(), most],
        |row| row.get::<_, [u8; 16]>(0),
    )?;
    let found: Vec<[u8; 16]> = rows.collect::<rusqlite::Result<_>>()?;
    let ids: Vec<RunId> = found.into_iter().map(RunId::from_bytes).collect();
    match ids.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        several => {
            let names = several.iter().map(|id| short_id(connection, *id));
            Err(Fault::Store(StoreError::Ambiguous {
                asked: asked.to_owned(),
                candidates: names.collect::<Result<_, Fault>>()?,
            }))
        }
    }
}

fn short_id(connection: &Connection, id: RunId) -> Result<String, Fault> {
    let sql =
        "SELECT (SELECT max(id) FROM runs WHERE id < ?1), (SELECT min(id) FROM runs WHERE id > ?1)";
    let mut statement = connection.prepare_cached(sql)?;
    let neighbours = statement.query_row([id.as_bytes()], |row| Ok([row.get(0)?, row.get(1)?]))?;
    Ok(shortest_unique(id, neighbours))
}

/// The shortest beginning that no other run has: one character more than the neighbours in the order of ids share.
pub(crate) fn shortest_unique(id: RunId, neighbours: [Option<[u8; 16]>; 2]) -> String {
    let own = id.to_string();
    let mut length = SHORT;
    for neighbour in neighbours.into_iter().flatten() {
        let other = RunId::from_bytes(neighbour).to_string();
        let shared = own.bytes().zip(other.bytes()).take_while(|(a, b)| a == b);
        length = length.max(shared.count() + 1);
    }
    own.get(..length).unwrap_or(&own).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_relative_to_the_latest() {
        assert_eq!(steps_back("latest"), Some(0));
        assert_eq!(steps_back("latest~0"), Some(0));
        assert_eq!(steps_back("latest~12"), Some(12));
        assert_eq!(steps_back("latest~99999999999999999999"), Some(i64::MAX));
        for other in ["", "latest~", "latest~-1", "latest~x", "latest2", "late"] {
            assert_eq!(steps_back(other), None, "{other}");
        }
    }
}
