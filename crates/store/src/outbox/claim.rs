//! One message is taken, for as long as a lease says, and comes back as delivered, failed or given up.
//!
//! Peers are told apart by origin. One that fails is left alone for a while with everything that waits for it, and then tried with a single message; as soon as it takes one, all that
//! waited for it are due. So a day without a peer costs one attempt every half minute, not one for every message.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use super::clock;
use super::holder;
use super::message::{Kind, MessageId, Peer, TraceHeaders, stored_peer};
use super::queue::{Durability, Outbox, milliseconds};
use super::schema::Fault;
use crate::error::StoreError;

/// A message that was taken. It is nobody else's until the lease ends or its taker dies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub id: MessageId,
    pub run: String,
    pub kind: Kind,
    pub url: String,
    pub idempotency_key: String,
    pub authorization: Option<String>,
    pub peer: Peer,
    pub trace: Option<TraceHeaders>,
    pub body: Vec<u8>,
    pub created: Timestamp,
    /// Which attempt this is, from 1. Attempts that died with their process count.
    pub attempt: u32,
    /// How often this peer has failed in a row, with any message.
    pub peer_failures: u32,
}

/// What to do after an attempt that may succeed later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Kept with the message.
    pub why: String,
    pub at: Timestamp,
    /// Until then nothing is sent to this peer. `None`: the fault may be this message's alone, and the peer is tried with the next one at once.
    pub peer_until: Option<Timestamp>,
}

/// What an attempt says about the peer.
#[derive(Debug, Clone, Copy)]
enum Health {
    Well,
    Silent {
        until: i64,
    },
    /// The next message finds out.
    Suspect,
    /// It was not spoken to.
    Untried,
}

impl Outbox {
    /// Takes the next message that is due, if there is one.
    pub fn next_due(
        &self,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Option<Delivery>, StoreError> {
        self.next_due_to(None, now, lease)
    }

    /// Takes the next message to such a peer, or to any. Clients' addresses may be slow on purpose, and must not keep those busy who report to the control plane.
    pub fn next_due_to(
        &self,
        whose: Option<Peer>,
        now: Timestamp,
        lease: Duration,
    ) -> Result<Option<Delivery>, StoreError> {
        let now = now.as_millisecond();
        // A look that finds nothing must not cost a write.
        let something = self.read(|connection| {
            Ok(clock::went_back(connection, now)?
                || find(connection, whose, now)?.is_some()
                || stale(connection, now)?)
        })?;
        if !something {
            return Ok(None);
        }
        let me = self.holder()?.name();
        self.write(Durability::Consistent, |transaction| {
            clock::tick(transaction, now)?;
            transaction
                .prepare_cached("DELETE FROM messages WHERE state = 0 AND expires IS NOT NULL AND expires <= ?1 AND holder IS NULL")?
                .execute([now])?;
            let lease_ends = now.saturating_add(milliseconds(lease));
            while let Some(found) = find(transaction, whose, now)? {
                match take(transaction, found, lease_ends, me) {
                    // One that cannot be read must not stand before all the others for ever.
                    Err(Fault::Damaged(why)) => give_up_damaged(transaction, found, &why, now)?,
                    taken => return taken.map(Some),
                }
            }
            Ok(None)
        })
    }

    /// When the next message will be due, as far as is known now.
    pub fn next_due_at(&self) -> Result<Option<Timestamp>, StoreError> {
        self.next_due_at_to(None)
    }

    /// [`Self::next_due_at`], for such a peer or any.
    pub fn next_due_at_to(&self, whose: Option<Peer>) -> Result<Option<Timestamp>, StoreError> {
        let sql = "SELECT min(max(p.not_before, (SELECT due FROM messages WHERE peer = p.peer AND state = 0 AND due IS NOT NULL ORDER BY due LIMIT 1))) FROM peers p WHERE p.peer >= ?1 AND p.peer < ?2";
        let at: Option<i64> = self.read(|connection| {
            Ok(connection
                .prepare_cached(sql)?
                .query_row(Peer::stored_range(whose), |row| row.get(0))?)
        })?;
        Ok(at.map(moment))
    }

    /// The peer has it. It is remembered without its body; a heartbeat is forgotten.
    pub fn delivered(
        &self,
        delivery: &Delivery,
        answer: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let now = now.as_millisecond();
        let recovered = self.write(Durability::Consistent, |transaction| {
            clock::tick(transaction, now)?;
            // Also one that was given up meanwhile by somebody who took it over: the peer has it.
            let changed = transaction
                .prepare_cached("UPDATE messages SET state = 1, due = NULL, holder = NULL, ended = ?2, outcome = ?3 WHERE id = ?1 AND state != 1")?
                .execute(params![delivery.id.0, now, answer])?;
            transaction
                .prepare_cached("DELETE FROM bodies WHERE message = ?1")?
                .execute([delivery.id.0])?;
            if delivery.kind == Kind::Heartbeat {
                forget(transaction, delivery.id)?;
            } else if changed > 0 {
                let_the_next_go(transaction, delivery.id, now)?;
            }
            settle_peer(transaction, delivery, Health::Well, now)
        })?;
        if recovered {
            self.ring();
        }
        Ok(())
    }

    /// The peer may not have it. Does nothing when somebody else has taken the message over meanwhile.
    pub fn failed(
        &self,
        delivery: &Delivery,
        retry: &Retry,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let now = now.as_millisecond();
        self.write(Durability::Consistent, |transaction| {
            clock::tick(transaction, now)?;
            let sql = "UPDATE messages SET due = ?3, holder = NULL, outcome = ?4, awaits_peer = ?5 WHERE id = ?1 AND attempts = ?2 AND state = 0";
            let values = params![
                delivery.id.0,
                delivery.attempt,
                retry.at.as_millisecond(),
                retry.why,
                retry.peer_until.is_some(),
            ];
            transaction.prepare_cached(sql)?.execute(values)?;
            let health = retry.peer_until.map_or(Health::Suspect, |until| Health::Silent {
                until: until.as_millisecond(),
            });
            settle_peer(transaction, delivery, health, now).map(drop)
        })
    }

    /// It will not be sent any more. It is kept, with its body, to be looked at and perhaps revived; a heartbeat is forgotten. `peer_until` as in [`Retry`]; `None` when the peer answered.
    pub fn given_up(
        &self,
        delivery: &Delivery,
        why: &str,
        peer_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let now = now.as_millisecond();
        let recovered = self.write(Durability::Durable, |transaction| {
            clock::tick(transaction, now)?;
            let changed = transaction
                .prepare_cached("UPDATE messages SET state = 2, due = NULL, holder = NULL, ended = ?3, outcome = ?4 WHERE id = ?1 AND attempts = ?2 AND state = 0")?
                .execute(params![delivery.id.0, delivery.attempt, now, why])?;
            if changed > 0 && delivery.kind == Kind::Heartbeat {
                forget(transaction, delivery.id)?;
            } else if changed > 0 {
                let_the_next_go(transaction, delivery.id, now)?;
            }
            let health = peer_until.map_or(Health::Well, |until| Health::Silent {
                until: until.as_millisecond(),
            });
            settle_peer(transaction, delivery, health, now)
        })?;
        if recovered {
            self.ring();
        }
        Ok(())
    }

    /// Gives a message back that was taken and not sent.
    pub fn release(&self, delivery: &Delivery, now: Timestamp) -> Result<(), StoreError> {
        let now = now.as_millisecond();
        self.write(Durability::Consistent, |transaction| {
            transaction
                .prepare_cached("UPDATE messages SET due = ?3, holder = NULL WHERE id = ?1 AND attempts = ?2 AND state = 0")?
                .execute(params![delivery.id.0, delivery.attempt, now])?;
            settle_peer(transaction, delivery, Health::Untried, now).map(drop)
        })
    }

    /// Takes back what takers have that are no longer alive. Says how many messages that were.
    pub fn take_back_from_the_dead(&self, now: Timestamp) -> Result<usize, StoreError> {
        let now = now.as_millisecond();
        let holders: Vec<String> = self.read(|connection| {
            let sql = "SELECT DISTINCT holder FROM messages WHERE holder IS NOT NULL";
            let mut statement = connection.prepare_cached(sql)?;
            let names = statement.query_map([], |row| row.get(0))?;
            Ok(names.collect::<rusqlite::Result<_>>()?)
        })?;
        let me = self.holder()?.name();
        let gone = |name: &&String| *name != me && holder::is_gone(self.dir(), name);
        let mut taken_back = 0;
        for name in holders.iter().filter(gone) {
            taken_back += self.write(Durability::Consistent, |transaction| {
                clock::tick(transaction, now)?;
                let peers = "UPDATE peers SET not_before = min(not_before, ?2) WHERE peer IN (SELECT peer FROM messages WHERE holder = ?1)";
                transaction.execute(peers, params![name, now])?;
                let messages = "UPDATE messages SET due = ?2, holder = NULL WHERE holder = ?1 AND state = 0";
                Ok(transaction.execute(messages, params![name, now])?)
            })?;
        }
        if taken_back > 0 {
            self.ring();
        }
        Ok(taken_back)
    }
}

#[derive(Debug, Clone, Copy)]
struct Found {
    id: i64,
    peer_failures: i64,
}

/// One step into the index for each peer that may be spoken to.
fn find(connection: &Connection, whose: Option<Peer>, now: i64) -> Result<Option<Found>, Fault> {
    let sql = "SELECT m.id, p.failures FROM peers p JOIN messages m ON m.id =
                   (SELECT id FROM messages WHERE peer = p.peer AND state = 0 AND due IS NOT NULL AND due <= ?1 ORDER BY due, id LIMIT 1)
               WHERE p.peer >= ?2 AND p.peer < ?3 AND p.not_before <= ?1 ORDER BY m.due, m.id LIMIT 1";
    let [from, to] = Peer::stored_range(whose);
    let found = connection
        .prepare_cached(sql)?
        .query_row(params![now, from, to], |row| {
            Ok(Found {
                id: row.get(0)?,
                peer_failures: row.get(1)?,
            })
        });
    Ok(found.optional()?)
}

fn stale(connection: &Connection, now: i64) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM messages WHERE state = 0 AND expires IS NOT NULL AND expires <= ?1 AND holder IS NULL LIMIT 1";
    Ok(connection.prepare_cached(sql)?.exists([now])?)
}

fn take(
    transaction: &Transaction<'_>,
    found: Found,
    lease_ends: i64,
    me: &str,
) -> Result<Delivery, Fault> {
    let delivery = read(transaction, found)?;
    transaction
        .prepare_cached(
            "UPDATE messages SET attempts = attempts + 1, due = ?2, holder = ?3 WHERE id = ?1",
        )?
        .execute(params![found.id, lease_ends, me])?;
    if found.peer_failures > 0 {
        // One message finds out whether the peer is back; the others wait for that.
        transaction
            .prepare_cached("UPDATE peers SET not_before = ?2 WHERE peer = (SELECT peer FROM messages WHERE id = ?1)")?
            .execute(params![found.id, lease_ends])?;
    }
    Ok(delivery)
}

/// As it will be when it is taken.
fn read(transaction: &Transaction<'_>, found: Found) -> Result<Delivery, Fault> {
    let sql = "SELECT m.id, run, kind, url, key, token, trust, body, created, attempts + 1, trace
               FROM messages m JOIN bodies b ON b.message = m.id WHERE m.id = ?1";
    let read = transaction
        .prepare_cached(sql)?
        .query_row([found.id], |row| Ok(delivery(row, found.peer_failures)))
        .optional()?;
    read.unwrap_or_else(|| Err(Fault::Damaged(format!("message {} has no body", found.id))))
}

/// It stays to be looked at, and the next of its run has its turn.
fn give_up_damaged(
    transaction: &Transaction<'_>,
    found: Found,
    why: &str,
    now: i64,
) -> Result<(), Fault> {
    transaction
        .prepare_cached("UPDATE messages SET state = 2, due = NULL, holder = NULL, ended = ?2, outcome = ?3 WHERE id = ?1")?
        .execute(params![found.id, now, format!("damaged: {why}")])?;
    let_the_next_go(transaction, MessageId(found.id), now)
}

fn delivery(row: &Row<'_>, peer_failures: i64) -> Result<Delivery, Fault> {
    let kind: String = row.get(2)?;
    let trust: String = row.get(6)?;
    let trace: Option<String> = row.get(10)?;
    let unknown = |what: &str| Fault::Damaged(format!("`{what}` is no kind of message or peer"));
    Ok(Delivery {
        id: MessageId(row.get(0)?),
        run: row.get(1)?,
        kind: Kind::from_stored(&kind).ok_or_else(|| unknown(&kind))?,
        url: row.get(3)?,
        idempotency_key: row.get(4)?,
        authorization: row.get(5)?,
        peer: Peer::from_stored(&trust).ok_or_else(|| unknown(&trust))?,
        body: row.get(7)?,
        created: moment(row.get(8)?),
        attempt: row.get(9)?,
        trace: trace.map(|text| TraceHeaders::from_stored(&text)),
        peer_failures: u32::try_from(peer_failures).unwrap_or(u32::MAX),
    })
}

fn forget(transaction: &Transaction<'_>, id: MessageId) -> Result<(), Fault> {
    transaction
        .prepare_cached("DELETE FROM messages WHERE id = ?1")?
        .execute([id.0])?;
    Ok(())
}

/// The run's next message in order, if one waits for this.
pub(super) fn let_the_next_go(
    transaction: &Transaction<'_>,
    done: MessageId,
    now: i64,
) -> Result<(), Fault> {
    let sql = "UPDATE messages SET due = ?2 WHERE due IS NULL AND id =
                   (SELECT n.id FROM messages d JOIN messages n ON n.run = d.run AND n.peer = d.peer AND n.state = 0 AND n.expires IS NULL
                    WHERE d.id = ?1 AND d.expires IS NULL ORDER BY n.id LIMIT 1)";
    transaction
        .prepare_cached(sql)?
        .execute(params![done.0, now])?;
    Ok(())
}

/// Says whether a peer that had failed is back, and things may have become due.
fn settle_peer(
    transaction: &Transaction<'_>,
    delivery: &Delivery,
    health: Health,
    now: i64,
) -> Result<bool, Fault> {
    let origin = stored_peer(delivery.peer, &delivery.url);
    match health {
        Health::Well => {
            let changed = transaction
                .prepare_cached("UPDATE peers SET failures = 0, not_before = 0 WHERE peer = ?1 AND (failures > 0 OR not_before > 0)")?
                .execute([&origin])?;
            if changed == 0 {
                return Ok(false);
            }
            transaction
                .prepare_cached("UPDATE messages SET due = ?2, awaits_peer = 0 WHERE peer = ?1 AND state = 0 AND due > ?2 AND holder IS NULL AND awaits_peer = 1")?
                .execute(params![origin, now])?;
            Ok(true)
        }
        Health::Silent { until } => fail_peer(transaction, delivery, &origin, until),
        Health::Suspect => fail_peer(transaction, delivery, &origin, now),
        Health::Untried => {
            if delivery.peer_failures > 0 {
                transaction
                    .prepare_cached(
                        "UPDATE peers SET not_before = min(not_before, ?2) WHERE peer = ?1",
                    )?
                    .execute(params![origin, now])?;
            }
            Ok(false)
        }
    }
}

/// Several that failed at once are one failure of the peer.
fn fail_peer(
    transaction: &Transaction<'_>,
    delivery: &Delivery,
    origin: &str,
    until: i64,
) -> Result<bool, Fault> {
    let failures = i64::from(delivery.peer_failures.saturating_add(1));
    transaction
        .prepare_cached(
            "UPDATE peers SET failures = max(failures, ?2), not_before = ?3 WHERE peer = ?1",
        )?
        .execute(params![origin, failures, until])?;
    Ok(false)
}

/// What cannot be a time was not written by us; the beginning of time is then as good as any.
pub(super) fn moment(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}
