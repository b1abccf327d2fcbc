//! What is in the outbox: figures for metrics, lists for people, and what goes with age.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, Row, Transaction, params};

use super::claim::moment;
use super::message::{Kind, MessageId, invalid};
use super::queue::{Durability, Outbox, milliseconds};
use super::schema::Fault;
use super::{clock, holder};
use crate::error::StoreError;

/// Figures over the whole outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// To be delivered, including those that are being sent now.
    pub waiting: u64,
    pub waiting_bytes: u64,
    pub in_flight: u64,
    /// How long the oldest that waits has waited.
    pub oldest: Option<Duration>,
    pub given_up: u64,
    /// Remembered, not stored.
    pub delivered: u64,
    /// Peers that failed last.
    pub failing_peers: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Waiting,
    Delivered,
    GivenUp,
}

/// A message as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub id: MessageId,
    pub run: String,
    pub kind: Kind,
    pub url: String,
    pub idempotency_key: String,
    pub body_bytes: u64,
    pub attempts: u32,
    pub created: Timestamp,
    pub ended: Option<Timestamp>,
    /// What the last attempt came to.
    pub outcome: Option<String>,
}

/// How many are removed in one transaction, so that nobody waits long for the lock.
const PORTION: i64 = 500;

impl Standing {
    const fn stored(self) -> i64 {
        match self {
            Self::Waiting => 0,
            Self::Delivered => 1,
            Self::GivenUp => 2,
        }
    }
}

impl Outbox {
    pub fn figures(&self, now: Timestamp) -> Result<Figures, StoreError> {
        let now = now.as_millisecond();
        let sql = "SELECT waiting, waiting_bytes, given_up,
                       (SELECT count(*) FROM messages WHERE holder IS NOT NULL),
                       (SELECT min(created) FROM messages WHERE state = 0),
                       (SELECT count(*) FROM messages WHERE state = 1),
                       (SELECT count(*) FROM peers WHERE failures > 0)
                   FROM totals";
        self.read(|connection| {
            let figures = connection.prepare_cached(sql)?.query_row([], |row| {
                let count = |at| row.get(at).map(|n: i64| u64::try_from(n).unwrap_or(0));
                let oldest: Option<i64> = row.get(4)?;
                let age = |created: i64| u64::try_from(now - created).unwrap_or(0);
                Ok(Figures {
                    waiting: count(0)?,
                    waiting_bytes: count(1)?,
                    given_up: count(2)?,
                    in_flight: count(3)?,
                    oldest: oldest.map(age).map(Duration::from_millis),
                    delivered: count(5)?,
                    failing_peers: count(6)?,
                })
            })?;
            Ok(figures)
        })
    }

    /// How many messages wait, and how large their bodies are together. Cheap: both are kept as totals.
    pub fn waiting(&self) -> Result<(u64, u64), StoreError> {
        self.read(|connection| {
            let (messages, bytes): (i64, i64) = connection
                .prepare_cached("SELECT waiting, waiting_bytes FROM totals")?
                .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let unsigned = |n| u64::try_from(n).unwrap_or(0);
            Ok((unsigned(messages), unsigned(bytes)))
        })
    }

    /// The run that a message belongs to, for as long as the message is remembered.
    pub fn run_of(&self, id: MessageId) -> Result<Option<String>, StoreError> {
        self.read(|connection| {
            Ok(connection
                .prepare_cached("SELECT run FROM messages WHERE id = ?1")?
                .query_row([id.0], |row| row.get(0))
                .optional()?)
        })
    }

    /// The newest first.
    pub fn list(&self, standing: Standing, at_most: u32) -> Result<Vec<Entry>, StoreError> {
        let sql = "SELECT id, run, kind, url, key, body_bytes, attempts, created, ended, outcome
                   FROM messages WHERE state = ?1 ORDER BY id DESC LIMIT ?2";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query(params![standing.stored(), at_most])?;
            let mut entries = Vec::new();
            while let Some(row) = rows.next()? {
                entries.push(entry(row)?);
            }
            Ok(entries)
        })
    }

    /// `None` once it has been delivered.
    pub fn body(&self, id: MessageId) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(|connection| {
            Ok(connection
                .prepare_cached("SELECT body FROM bodies WHERE message = ?1")?
                .query_row([id.0], |row| row.get(0))
                .optional()?)
        })
    }

    /// Has a message that was given up sent after all, behind whatever of its run waits already. Its age counts from now.
    pub fn revive(&self, id: MessageId, now: Timestamp) -> Result<(), StoreError> {
        let now = now.as_millisecond();
        let revived = self.write(Durability::Durable, |transaction| {
            clock::tick(transaction, now)?;
            let sql = "UPDATE messages AS m SET state = 0, ended = NULL, attempts = 0, created = ?2, awaits_peer = 0, due = CASE WHEN EXISTS
                           (SELECT 1 FROM messages o WHERE o.run = m.run AND o.peer = m.peer AND o.state = 0 AND o.expires IS NULL) THEN NULL ELSE ?2 END
                       WHERE id = ?1 AND state = 2";
            let changed = transaction.execute(sql, params![id.0, now])?;
            transaction.execute(
                "INSERT INTO peers (peer) SELECT peer FROM messages WHERE id = ?1 ON CONFLICT DO NOTHING",
                [id.0],
            )?;
            Ok(changed)
        })?;
        if revived == 0 {
            let why = "no message with this number was given up";
            return Err(invalid("message", &id.to_string(), why));
        }
        self.ring();
        Ok(())
    }

    /// Forgets what was delivered or given up long ago. Says how many messages went.
    pub fn prune(&self, now: Timestamp) -> Result<usize, StoreError> {
        let now = now.as_millisecond();
        let limits = *self.limits();
        let delivered_before = now.saturating_sub(milliseconds(limits.delivered_for));
        let given_up_before = now.saturating_sub(milliseconds(limits.given_up_for));
        let mut all = 0;
        loop {
            let gone = self.write(Durability::Consistent, |transaction| {
                clock::tick(transaction, now)?;
                Ok(remove(transaction, Standing::Delivered, delivered_before)?
                    + remove(transaction, Standing::GivenUp, given_up_before)?
                    + remove_excess(transaction, limits.given_up_bytes)?)
            })?;
            all += gone;
            if gone == 0 {
                break;
            }
        }
        self.write(Durability::Consistent, |transaction| {
            let unused = "DELETE FROM peers WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.peer = peers.peer AND m.state = 0 AND m.due IS NOT NULL)";
            Ok(transaction.execute(unused, [])?)
        })?;
        holder::sweep_best_effort(self.dir());
        self.shrink_best_effort();
        Ok(all)
    }

    /// Space that is not given back now is used again by the next messages.
    fn shrink_best_effort(&self) {
        let _ = self.on_connection(|connection| {
            let mut statement = connection.prepare("PRAGMA incremental_vacuum(2000)")?;
            let mut rows = statement.query([])?;
            while rows.next()?.is_some() {}
            Ok(())
        });
    }
}

fn entry(row: &Row<'_>) -> Result<Entry, Fault> {
    let kind: String = row.get(2)?;
    let unknown = || Fault::Damaged(format!("`{kind}` is no kind of message"));
    let bytes: i64 = row.get(5)?;
    Ok(Entry {
        id: MessageId(row.get(0)?),
        run: row.get(1)?,
        kind: Kind::from_stored(&kind).ok_or_else(unknown)?,
        url: row.get(3)?,
        idempotency_key: row.get(4)?,
        body_bytes: u64::try_from(bytes).unwrap_or(0),
        attempts: row.get(6)?,
        created: moment(row.get(7)?),
        ended: row.get::<_, Option<i64>>(8)?.map(moment),
        outcome: row.get(9)?,
    })
}

fn remove(transaction: &Transaction<'_>, standing: Standing, before: i64) -> Result<usize, Fault> {
    let sql = "DELETE FROM messages WHERE id IN (SELECT id FROM messages WHERE state = ?1 AND ended < ?2 ORDER BY ended LIMIT ?3)";
    let values = params![standing.stored(), before, PORTION];
    Ok(transaction.prepare_cached(sql)?.execute(values)?)
}

/// The oldest of those given up, while their bodies take more than they may.
fn remove_excess(transaction: &Transaction<'_>, at_most: u64) -> Result<usize, Fault> {
    let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
    let mut gone = 0;
    for _ in 0..PORTION {
        let sql = "DELETE FROM messages WHERE id = (SELECT id FROM messages WHERE state = 2 ORDER BY ended LIMIT 1)
                   AND (SELECT given_up_bytes FROM totals) > ?1";
        let removed = transaction.prepare_cached(sql)?.execute([at_most])?;
        if removed == 0 {
            break;
        }
        gone += removed;
    }
    Ok(gone)
}
