//! Entries: how they are hashed, appended and listed.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row};
use serde::Serialize;
use serde_json::Value;

use super::head::{self, Head};
use crate::database::run_row::{Fields, timestamp};
use crate::database::{Fault, History};
use crate::error::StoreError;
use crate::model::Digest;

pub(crate) const NOTHING_BEFORE: Digest = Digest([0; 32]);

/// One entry of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub seq: u64,
    pub at: Timestamp,
    /// Such as `run.ended`.
    pub event: String,
    /// The id of a run, or the name of something else.
    pub subject: String,
    /// A small JSON document.
    pub detail: String,
    pub prev: Digest,
    pub hash: Digest,
}

impl Entry {
    /// What the hash must be.
    pub(crate) fn computed(&self) -> Digest {
        let mut fields = Fields::new(b"cofferdam.audit/1");
        fields.bytes(&self.seq.to_le_bytes());
        fields.bytes(&self.at.as_microsecond().to_le_bytes());
        for text in [&self.event, &self.subject, &self.detail] {
            fields.bytes(text.as_bytes());
        }
        fields.bytes(&self.prev.0);
        fields.finish()
    }

    /// From seq, at, event, subject, detail, prev and hash.
    pub(crate) fn read(row: &Row<'_>) -> Result<Self, Fault> {
        let seq: i64 = row.get(0)?;
        Ok(Self {
            seq: u64::try_from(seq)
                .map_err(|_| Fault::Damaged(format!("an audit entry has the number {seq}")))?,
            at: timestamp(row.get(1)?)?,
            event: row.get(2)?,
            subject: row.get(3)?,
            detail: row.get(4)?,
            prev: Digest(row.get(5)?),
            hash: Digest(row.get(6)?),
        })
    }
}

/// An entry that is about to be made.
#[derive(Debug)]
pub(crate) struct NewEntry<'a> {
    pub(crate) event: &'a str,
    pub(crate) subject: &'a str,
    pub(crate) detail: &'a str,
}

/// The end of the chain, inside of a transaction.
#[derive(Debug)]
pub(crate) struct Chain<'a> {
    connection: &'a Connection,
    head: Head,
}

impl<'a> Chain<'a> {
    pub(crate) fn load(connection: &'a Connection) -> Result<Self, Fault> {
        let head = last(connection)?;
        Ok(Self { connection, head })
    }

    pub(crate) const fn head(&self) -> Head {
        self.head
    }

    pub(crate) fn append(&mut self, new: &NewEntry<'_>) -> Result<(), Fault> {
        let micros = Timestamp::now().as_microsecond();
        let mut entry = Entry {
            seq: self.head.seq.saturating_add(1),
            at: timestamp(micros)?,
            event: new.event.to_owned(),
            subject: new.subject.to_owned(),
            detail: new.detail.to_owned(),
            prev: self.head.hash,
            hash: NOTHING_BEFORE,
        };
        entry.hash = entry.computed();
        let sql = "INSERT INTO audit (seq, at, event, subject, detail, prev, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        self.connection
            .prepare_cached(sql)?
            .execute(rusqlite::params![
                i64::try_from(entry.seq).unwrap_or(i64::MAX),
                micros,
                entry.event,
                entry.subject,
                entry.detail,
                entry.prev.0,
                entry.hash.0,
            ])?;
        self.head = Head {
            seq: entry.seq,
            hash: entry.hash,
        };
        Ok(())
    }
}

/// Where the chain ends now.
pub(crate) fn last(connection: &Connection) -> Result<Head, Fault> {
    let sql = "SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1";
    let found: Option<(i64, [u8; 32])> = connection
        .prepare_cached(sql)?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(match found {
        None => Head {
            seq: 0,
            hash: NOTHING_BEFORE,
        },
        Some((seq, hash)) => Head {
            seq: u64::try_from(seq).unwrap_or(0),
            hash: Digest(hash),
        },
    })
}

/// Makes an entry about something that happened. `detail` should be small.
pub fn append(
    history: &mut History,
    event: &str,
    subject: &str,
    detail: &Value,
) -> Result<(), StoreError> {
    let detail = detail.to_string();
    let head = history.write_durably(|transaction| {
        let mut chain = Chain::load(transaction)?;
        chain.append(&NewEntry {
            event,
            subject,
            detail: &detail,
        })?;
        Ok(chain.head())
    })?;
    head::advance_best_effort(history, head);
    Ok(())
}

/// Entries, newest first; only those before the number `before`, where one is given.
pub fn list(
    history: &History,
    limit: usize,
    before: Option<u64>,
) -> Result<Vec<Entry>, StoreError> {
    let before = before.and_then(|seq| i64::try_from(seq).ok());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    history.read(|connection| {
        let sql = "SELECT seq, at, event, subject, detail, prev, hash FROM audit
            WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([before.unwrap_or(i64::MAX), limit])?;
        let mut entries = Vec::new();
        while let Some(row) = rows.next()? {
            entries.push(Entry::read(row)?);
        }
        Ok(entries)
    })
}
