//! The file of the outbox: its settings, its tables, and what can be wrong with it. A file that cannot be written is an error here: an outbox that takes nothing is none.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::data_dir::{self, DataDir};
use crate::error::StoreError;

const BUSY: Duration = Duration::from_secs(20);
/// In the header of the file: `cofo`.
const APPLICATION: i64 = 0x636f_666f;
/// The step at index n leads from format n to format n + 1. A step that has been released is never changed.
const STEPS: &[&str] = &[FIRST];

/// Times are milliseconds since 1970. `due` is when a message may be taken: now, after a failure, or when the lease of its taker ends; it is null for one that waits for an earlier
/// one of its run. So the next message is found by one step into an index, however many wait. Bodies stand apart, because SQLite writes all of a row that changes.
const FIRST: &str = "
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL,
    kind TEXT NOT NULL,
    peer TEXT NOT NULL,
    trust TEXT NOT NULL,
    url TEXT NOT NULL,
    key TEXT NOT NULL,
    token TEXT,
    body_bytes INTEGER NOT NULL,
    state INTEGER NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)),
    created INTEGER NOT NULL,
    due INTEGER,
    expires INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    holder TEXT,
    awaits_peer INTEGER NOT NULL DEFAULT 0,
    ended INTEGER,
    outcome TEXT
) STRICT;
CREATE UNIQUE INDEX messages_by_key ON messages (key, url);
CREATE INDEX messages_due ON messages (peer, due, id) WHERE state = 0 AND due IS NOT NULL;
CREATE INDEX messages_in_order ON messages (run, peer, id) WHERE state = 0 AND expires IS NULL;
CREATE INDEX messages_expiring ON messages (expires) WHERE state = 0 AND expires IS NOT NULL;
CREATE INDEX messages_ended ON messages (state, ended) WHERE state > 0;
CREATE INDEX messages_waiting ON messages (created) WHERE state = 0;
CREATE INDEX messages_held ON messages (holder) WHERE holder IS NOT NULL;
CREATE TABLE bodies (
    message INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE peers (
    peer TEXT PRIMARY KEY,
    failures INTEGER NOT NULL DEFAULT 0,
    not_before INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE TABLE totals (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    waiting INTEGER NOT NULL,
    waiting_bytes INTEGER NOT NULL,
    given_up INTEGER NOT NULL,
    given_up_bytes INTEGER NOT NULL,
    clock INTEGER NOT NULL
) STRICT;
INSERT INTO totals VALUES (1, 0, 0, 0, 0, 0);
CREATE TRIGGER counted_in AFTER INSERT ON messages BEGIN
    UPDATE totals SET waiting = waiting + 1, waiting_bytes = waiting_bytes + new.body_bytes;
END;
CREATE TRIGGER counted_on AFTER UPDATE OF state ON messages WHEN old.state != new.state BEGIN
    UPDATE totals SET
        waiting = waiting + (new.state = 0) - (old.state = 0),
        waiting_bytes = waiting_bytes + new.body_bytes * ((new.state = 0) - (old.state = 0)),
        given_up = given_up + (new.state = 2) - (old.state = 2),
        given_up_bytes = given_up_bytes + new.body_bytes * ((new.state = 2) - (old.state = 2));
END;
CREATE TRIGGER counted_out AFTER DELETE ON messages BEGIN
    UPDATE totals SET
        waiting = waiting - (old.state = 0),
        waiting_bytes = waiting_bytes - old.body_bytes * (old.state = 0),
        given_up = given_up - (old.state = 2),
        given_up_bytes = given_up_bytes - old.body_bytes * (old.state = 2);
END;
";

/// What can be wrong, before it is known with which file.
#[derive(Debug)]
pub(super) enum Fault {
    Sql(rusqlite::Error),
    Damaged(String),
    Store(StoreError),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Fault {
    pub(super) fn at(self, path: &Path) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Damaged(why) => damaged(path, &why),
            Self::Sql(error) => from_sql(path, error),
        }
    }
}

fn from_sql(path: &Path, error: rusqlite::Error) -> StoreError {
    use rusqlite::Error as E;
    let unreadable = matches!(
        error,
        E::InvalidColumnType(..)
            | E::FromSqlConversionFailure(..)
            | E::IntegralValueOutOfRange(..)
            | E::Utf8Error(..)
    );
    match error.sqlite_error_code() {
        _ if unreadable => damaged(path, &error.to_string()),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            damaged(path, &error.to_string())
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => not_writable(path),
        _ => StoreError::Database {
            path: path.to_owned(),
            source: error,
        },
    }
}

fn damaged(path: &Path, why: &str) -> StoreError {
    StoreError::Damaged {
        path: path.to_owned(),
        why: format!(
            "{why}; it is left as it is: restore a copy of it, or move it away to begin a new outbox (what was waiting in it is not sent then)"
        ),
    }
}

fn not_writable(path: &Path) -> StoreError {
    StoreError::Io {
        what: "write to the outbox",
        path: path.to_owned(),
        source: io::Error::new(
            io::ErrorKind::ReadOnlyFilesystem,
            "the file or its directory may not be written; give yourself write permission, or name another --data-dir",
        ),
    }
}

pub(super) fn open(dir: &DataDir) -> Result<Connection, StoreError> {
    let path = dir.outbox();
    for directory in [dir.path().to_owned(), dir.couriers()] {
        data_dir::create_private(&directory)
            .map_err(StoreError::io("make the directory", &directory))?;
    }
    create_private(&path).map_err(StoreError::io("make the outbox", &path))?;
    open_file(&path).map_err(|fault| fault.at(&path))
}

fn open_file(path: &Path) -> Result<Connection, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    settle(&connection)?;
    if connection.is_readonly("main")? {
        return Err(not_writable(path).into());
    }
    upgrade(&mut connection, path)?;
    Ok(connection)
}

/// SQLite gives the WAL and its index the mode that the file has.
fn create_private(path: &Path) -> io::Result<()> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map(drop),
    }
}

/// A file that somebody tampered with must not be able to run code, hide corruption, or change what a statement means.
fn settle(connection: &Connection) -> Result<(), Fault> {
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // A large body leaves a large WAL; it need not stay so.
    let bytes = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
    connection.pragma_update_and_check(None, "journal_size_limit", 16 << 20, bytes)?;
    Ok(())
}

fn upgrade(connection: &mut Connection, path: &Path) -> Result<(), Fault> {
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    let found = version(connection)?;
    refuse_foreign(connection, found)?;
    refuse_newer(found, known, path)?;
    if found == known {
        return Ok(());
    }
    if found == 0 {
        // Both can be chosen for an empty file only.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        use_wal(connection)?;
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    let found = version(&transaction)?;
    refuse_newer(found, known, path)?;
    for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", known)?;
    transaction.commit()?;
    Ok(())
}

fn version(connection: &Connection) -> Result<i64, Fault> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

fn refuse_newer(found: i64, known: i64, path: &Path) -> Result<(), Fault> {
    if (0..=known).contains(&found) {
        return Ok(());
    }
    let path = path.to_owned();
    Err(StoreError::NewerFormat { path, found, known }.into())
}

/// A database of somebody else is not turned into ours.
fn refuse_foreign(connection: &Connection, version: i64) -> Result<(), Fault> {
    let application: i64 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application == APPLICATION || (version == 0 && tables == 0) {
        return Ok(());
    }
    Err(Fault::Damaged(
        "it is a database of another kind".to_owned(),
    ))
}

/// The one change for which SQLite does not wait by itself when two processes make the same new file.
fn use_wal(connection: &Connection) -> Result<(), Fault> {
    let deadline = Instant::now() + BUSY;
    loop {
        let asked = connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match asked {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < deadline =>
            {
                thread::sleep(Duration::from_millis(2));
            }
            other => return Ok(other.map(drop)?),
        }
    }
}
