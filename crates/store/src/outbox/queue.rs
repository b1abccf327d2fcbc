//! Messages come in. Each call returns when its message is on the disk; calls that come while another is being written are written together, in one commit.

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{
    Connection, ErrorCode, OptionalExtension as _, Transaction, TransactionBehavior, params,
};

use super::clock;
use super::holder::Holder;
use super::message::{Enqueued, Kind, Message, MessageId, TraceHeaders, invalid};
use super::schema::{self, Fault};
use crate::data_dir::DataDir;
use crate::error::StoreError;

/// How much may wait, and how long things are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub messages: u64,
    /// Of all bodies that wait.
    pub bytes: u64,
    pub body_bytes: u64,
    /// After this a heartbeat says nothing any more.
    pub heartbeat_life: Duration,
    /// How long a delivered message is remembered, without its body. As long as it is, the same key is not sent again.
    pub delivered_for: Duration,
    pub given_up_for: Duration,
    /// Of bodies of messages that were given up. The oldest go first.
    pub given_up_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 60 * 60);
        Self {
            messages: 200_000,
            bytes: 2 << 30,
            body_bytes: 128 << 20,
            heartbeat_life: Duration::from_secs(15),
            delivered_for: day,
            given_up_for: 30 * day,
            given_up_bytes: 512 << 20,
        }
    }
}

/// The outbox of a data directory. Clones are the same outbox; other processes may have it open too.
#[derive(Debug, Clone)]
pub struct Outbox {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    dir: DataDir,
    path: PathBuf,
    limits: Limits,
    connection: Mutex<Connection>,
    brought: Mutex<Vec<Arc<Slot>>>,
    rung: Mutex<u64>,
    bell: Condvar,
    holder: OnceLock<Holder>,
    first_holder: Mutex<()>,
}

/// A message that waits to be written, and then what became of it.
#[derive(Debug)]
struct Slot {
    message: Message,
    now: i64,
    done: Mutex<Option<Result<Enqueued, StoreError>>>,
}

/// How sure a commit must be when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// A power cut may undo it. Undoing the note of a delivery means delivering again, under the same key.
    Consistent,
    /// A power cut does not undo it.
    Durable,
}

impl Outbox {
    pub fn open(dir: &DataDir) -> Result<Self, StoreError> {
        Self::open_with(dir, Limits::default())
    }

    pub fn open_with(dir: &DataDir, limits: Limits) -> Result<Self, StoreError> {
        let connection = schema::open(dir)?;
        Ok(Self {
            shared: Arc::new(Shared {
                dir: dir.clone(),
                path: dir.outbox(),
                limits,
                connection: Mutex::new(connection),
                brought: Mutex::new(Vec::new()),
                rung: Mutex::new(0),
                bell: Condvar::new(),
                holder: OnceLock::new(),
                first_holder: Mutex::new(()),
            }),
        })
    }

    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    pub(super) fn dir(&self) -> &DataDir {
        &self.shared.dir
    }

    /// Takes a message. When this has returned, neither a crash nor a power cut loses it; a heartbeat only survives a crash. Blocks for as long as the disk needs.
    pub fn enqueue(&self, message: Message, now: Timestamp) -> Result<Enqueued, StoreError> {
        message.check()?;
        // What is larger than all the room would wait for ever.
        let most = self.shared.limits.body_bytes.min(self.shared.limits.bytes);
        if length(&message.body) > most {
            let bytes = format!("{} bytes", message.body.len());
            let why = format!("at most {most} bytes are possible; send a reference instead");
            return Err(invalid("body", &bytes, &why));
        }
        let now = now.as_millisecond();
        let enqueued = if message.kind == Kind::Heartbeat {
            self.write(Durability::Consistent, |transaction| {
                self.insert(transaction, &message, now)
            })
        } else {
            self.enqueue_together(message, now)
        }?;
        self.ring();
        Ok(enqueued)
    }

    fn enqueue_together(&self, message: Message, now: i64) -> Result<Enqueued, StoreError> {
        let slot = Arc::new(Slot {
            message,
            now,
            done: Mutex::new(None),
        });
        lock(&self.shared.brought).push(Arc::clone(&slot));
        let mut connection = lock(&self.shared.connection);
        // Whoever had the connection before may have written this one too.
        if let Some(done) = lock(&slot.done).take() {
            return done;
        }
        let group = mem::take(&mut *lock(&self.shared.brought));
        match self.insert_all(&mut connection, &group) {
            Ok(all) => {
                for (slot, done) in group.iter().zip(all) {
                    *lock(&slot.done) = Some(done);
                }
            }
            // One of them may be the reason: each for itself. Not where somebody else had the database for as long as it is waited for, or each would wait as long again.
            Err(failed) => {
                for slot in &group {
                    let alone = match is_busy(&failed) {
                        true => Err(busy(&self.shared.path)),
                        false => self.insert_all(&mut connection, std::slice::from_ref(slot)),
                    };
                    let done = alone.and_then(|all| all.into_iter().next().unwrap_or_else(lost));
                    *lock(&slot.done) = Some(done);
                }
            }
        }
        drop(connection);
        lock(&slot.done).take().unwrap_or_else(lost)
    }

    /// All in one commit. A message that is refused is not in it, and hinders no other.
    fn insert_all(
        &self,
        connection: &mut Connection,
        group: &[Arc<Slot>],
    ) -> Result<Vec<Result<Enqueued, StoreError>>, StoreError> {
        self.write_on(connection, Durability::Durable, |transaction| {
            let mut all = Vec::with_capacity(group.len());
            for slot in group {
                match self.insert(transaction, &slot.message, slot.now) {
                    Err(Fault::Store(refused)) => all.push(Err(refused)),
                    other => all.push(Ok(other?)),
                }
            }
            Ok(all)
        })
    }

    fn insert(
        &self,
        transaction: &Transaction<'_>,
        message: &Message,
        now: i64,
    ) -> Result<Enqueued, Fault> {
        clock::tick(transaction, now)?;
        let known: Option<i64> = transaction
            .prepare_cached("SELECT id FROM messages WHERE key = ?1 AND url = ?2")?
            .query_row(params![message.idempotency_key, message.url], |row| {
                row.get(0)
            })
            .optional()?;
        if let Some(id) = known {
            return Ok(Enqueued::Known(MessageId(id)));
        }
        let peer = message.stored_peer();
        if matches!(message.kind, Kind::Heartbeat | Kind::Result) {
            forget_heartbeats(transaction, &message.run, &peer)?;
        }
        self.refuse_when_full(transaction, message)?;
        transaction
            .prepare_cached("INSERT INTO peers (peer) VALUES (?1) ON CONFLICT DO NOTHING")?
            .execute([&peer])?;
        insert_row(transaction, message, &peer, now, self.expiry(message, now))
            .map(|id| Enqueued::New(MessageId(id)))
    }

    fn expiry(&self, message: &Message, now: i64) -> Option<i64> {
        (message.kind == Kind::Heartbeat)
            .then(|| now.saturating_add(milliseconds(self.shared.limits.heartbeat_life)))
    }

    fn refuse_when_full(
        &self,
        transaction: &Transaction<'_>,
        message: &Message,
    ) -> Result<(), Fault> {
        let limits = &self.shared.limits;
        let (messages, bytes): (i64, i64) = transaction
            .prepare_cached("SELECT waiting, waiting_bytes FROM totals")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let messages = u64::try_from(messages).unwrap_or(0);
        let bytes = u64::try_from(bytes).unwrap_or(0);
        let why = if messages >= limits.messages {
            format!("{messages} messages wait, and {} may", limits.messages)
        } else if bytes.saturating_add(length(&message.body)) > limits.bytes {
            format!(
                "{bytes} bytes wait, {} more are brought, and {} may wait",
                message.body.len(),
                limits.bytes
            )
        } else {
            return Ok(());
        };
        let path = self.shared.path.clone();
        Err(StoreError::OutboxFull { path, why }.into())
    }

    /// Wakes all that wait in [`Self::wait`]: who of them may take what came in is not known here.
    pub fn ring(&self) {
        *lock(&self.shared.rung) += 1;
        self.shared.bell.notify_all();
    }

    /// How often it rang. To be read before looking for something to do, and given to [`Self::wait`] afterwards, so that nothing is missed in between.
    pub fn rung(&self) -> u64 {
        *lock(&self.shared.rung)
    }

    /// Returns when a message has come in through this process since `seen`, or after `at_most`. Of other processes' messages it knows nothing.
    pub fn wait(&self, seen: u64, at_most: Duration) {
        let rung = lock(&self.shared.rung);
        let silent = |rung: &mut u64| *rung == seen;
        drop(self.shared.bell.wait_timeout_while(rung, at_most, silent));
    }

    pub(super) fn holder(&self) -> Result<&Holder, StoreError> {
        let _one_makes_it = lock(&self.shared.first_holder);
        if let Some(holder) = self.shared.holder.get() {
            return Ok(holder);
        }
        let made = Holder::new(&self.shared.dir)?;
        Ok(self.shared.holder.get_or_init(|| made))
    }

    pub(super) fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let connection = lock(&self.shared.connection);
        let read = || {
            let snapshot = connection.unchecked_transaction()?;
            work(&snapshot)
        };
        read().map_err(|fault| fault.at(&self.shared.path))
    }

    /// Outside of any transaction.
    pub(super) fn on_connection<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let connection = lock(&self.shared.connection);
        work(&connection).map_err(|fault| fault.at(&self.shared.path))
    }

    pub(super) fn write<T>(
        &self,
        durability: Durability,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let mut connection = lock(&self.shared.connection);
        self.write_on(&mut connection, durability, work)
    }

    fn write_on<T>(
        &self,
        connection: &mut Connection,
        durability: Durability,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let write = || {
            let level = match durability {
                Durability::Consistent => "NORMAL",
                Durability::Durable => "FULL",
            };
            connection.pragma_update(None, "synchronous", level)?;
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        };
        write().map_err(|fault: Fault| fault.at(&self.shared.path))
    }
}

/// A newer one says more, and after the result none says anything. One that is being sent is left to its taker.
fn forget_heartbeats(transaction: &Transaction<'_>, run: &str, peer: &str) -> Result<(), Fault> {
    let sql = "DELETE FROM messages WHERE state = 0 AND expires IS NOT NULL AND run = ?1 AND peer = ?2 AND holder IS NULL";
    transaction.prepare_cached(sql)?.execute([run, peer])?;
    Ok(())
}

fn insert_row(
    transaction: &Transaction<'_>,
    message: &Message,
    peer: &str,
    now: i64,
    expires: Option<i64>,
) -> Result<i64, Fault> {
    let earlier = "SELECT 1 FROM messages WHERE run = ?1 AND peer = ?2 AND state = 0 AND expires IS NULL LIMIT 1";
    let is_behind = expires.is_none()
        && transaction
            .prepare_cached(earlier)?
            .exists([&message.run, peer])?;
    let due = (!is_behind).then_some(now);
    let row = "INSERT INTO messages (run, kind, peer, trust, url, key, token, body_bytes, created, due, expires, trace)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    transaction.prepare_cached(row)?.execute(params![
        message.run,
        message.kind.as_str(),
        peer,
        message.peer.as_str(),
        message.url,
        message.idempotency_key,
        message.authorization,
        i64::try_from(message.body.len()).unwrap_or(i64::MAX),
        now,
        due,
        expires,
        message.trace.as_ref().map(TraceHeaders::stored),
    ])?;
    let id = transaction.last_insert_rowid();
    transaction
        .prepare_cached("INSERT INTO bodies (message, body) VALUES (?1, ?2)")?
        .execute(params![id, message.body])?;
    Ok(id)
}

fn is_busy(error: &StoreError) -> bool {
    let code = match error {
        StoreError::Database { source, .. } => source.sqlite_error_code(),
        _ => None,
    };
    matches!(
        code,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

fn busy(path: &Path) -> StoreError {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
    StoreError::Database {
        path: path.to_owned(),
        source: rusqlite::Error::SqliteFailure(code, None),
    }
}

/// Cannot happen: whoever writes a group answers every slot of it.
fn lost() -> Result<Enqueued, StoreError> {
    Err(invalid(
        "message",
        "…",
        "it was not written; bring it again",
    ))
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

pub(super) fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 4)
}

/// What a panicking thread left is a whole value: every change under these locks is one assignment or one transaction.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
