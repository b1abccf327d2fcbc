//! Figures over the whole history. Nothing is read into memory that grows with the number of runs.

use std::collections::BTreeMap;
use std::fs;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _};
use serde::Serialize;

use super::fault::Fault;
use super::open::History;
use super::run_row::{facets, signed, timestamp, unsigned};
use super::search::milliseconds;
use crate::error::StoreError;
use crate::model::Status;
use crate::objects::Objects;

/// How many commands are named.
const TOP: i64 = 10;

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
    pub fn stats(&self) -> Result<Stats, StoreError> {
        let objects = Objects::open(self.dir())
            .iter()
            .collect::<Result<Vec<_>, _>>()?;
        self.read(|connection| {
            let mut by_status: BTreeMap<Status, u64> = BTreeMap::new();
            for (_, facet, runs) in facets(connection)? {
                *by_status.entry(facet.status).or_default() += runs;
            }
            let logical = "SELECT CAST(min(total(bytes), 9.0e18) AS INTEGER) FROM contents";
            let logical: i64 = connection.query_row(logical, [], |row| row.get(0))?;
            Ok(Stats {
                runs: by_status.values().sum(),
                by_status,
                oldest: started(connection, "SELECT started FROM runs ORDER BY id LIMIT 1")?,
                newest: started(
                    connection,
                    "SELECT started FROM runs ORDER BY id DESC LIMIT 1",
                )?,
                duration_ms: percentiles(connection)?,
                database_bytes: self.database_bytes(),
                objects: u64::try_from(objects.len()).unwrap_or(u64::MAX),
                object_bytes: objects.iter().map(|object| object.stored_bytes).sum(),
                logical_bytes: unsigned(logical),
                top_commands: top_commands(connection)?,
            })
        })
    }

    /// With what is still in the WAL.
    fn database_bytes(&self) -> u64 {
        let path = self.dir().database();
        let mut wal = path.clone().into_os_string();
        wal.push("-wal");
        let size = |path: &std::path::Path| fs::metadata(path).map_or(0, |found| found.len());
        size(&path).saturating_add(size(wal.as_ref()))
    }
}

fn started(connection: &Connection, sql: &str) -> Result<Option<Timestamp>, Fault> {
    let micros: Option<i64> = connection.query_row(sql, [], |row| row.get(0)).optional()?;
    micros.map(timestamp).transpose()
}

/// The smallest duration that at least so many of a hundred runs do not exceed, read from the index.
fn percentiles(connection: &Connection) -> Result<Option<Percentiles>, Fault> {
    let sql = "SELECT count(*) FROM runs INDEXED BY runs_by_duration WHERE duration IS NOT NULL";
    let count = unsigned(connection.query_row(sql, [], |row| row.get(0))?);
    if count == 0 {
        return Ok(None);
    }
    let at = |percent: u64| {
        let rank = count.saturating_mul(percent).div_ceil(100).max(1);
        nth_duration(connection, count, rank)
    };
    Ok(Some(Percentiles {
        p50: at(50)?,
        p95: at(95)?,
        p99: at(99)?,
        max: at(100)?,
    }))
}

/// Counted from the nearer end.
fn nth_duration(connection: &Connection, count: u64, rank: u64) -> Result<f64, Fault> {
    let (order, offset) = if rank <= count / 2 {
        ("ASC", rank.saturating_sub(1))
    } else {
        ("DESC", count.saturating_sub(rank))
    };
    let sql = format!(
        "SELECT duration FROM runs INDEXED BY runs_by_duration WHERE duration IS NOT NULL
         ORDER BY duration {order} LIMIT 1 OFFSET ?1"
    );
    let micros = connection.query_row(&sql, [signed(offset)], |row| row.get(0))?;
    Ok(milliseconds(micros))
}

fn top_commands(connection: &Connection) -> Result<Vec<(String, u64)>, Fault> {
    let sql = "SELECT text, runs FROM commands WHERE runs > 0 ORDER BY runs DESC, text LIMIT ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([TOP], |row| {
        Ok((row.get(0)?, unsigned(row.get::<_, i64>(1)?)))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
