//! The file of the outbox: its settings, its tables, and what can be wrong with it. A file that cannot be written is an error here: an outbox that takes nothing is none.

use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::data_dir::{self, DataDir};
use crate::error::StoreError;
use crate::sqlite::{self, Format, Trouble};

const BUSY: Duration = Duration::from_secs(20);
/// In the header of the file: `cofo`.
const APPLICATION: i64 = 0x636f_666f;
/// The step at index n leads from format n to format n + 1. A step that has been released is never changed.
const STEPS: &[&str] = &[FIRST, SECOND];
const FORMAT: Format<'_> = Format {
    application: APPLICATION,
    steps: STEPS,
};

/// The headers of the trace that a message belongs to, one on a line.
const SECOND: &str = "ALTER TABLE messages ADD COLUMN trace TEXT;";

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

impl From<Trouble> for Fault {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Sql(error) => Self::Sql(error),
            Trouble::Newer(error) => Self::Store(error),
            Trouble::Foreign => Self::Damaged("it is a database of another kind".to_owned()),
        }
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
    match error.sqlite_error_code() {
        _ if sqlite::is_unreadable(&error) => damaged(path, &error.to_string()),
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
    sqlite::create_private(&path).map_err(StoreError::io("make the outbox", &path))?;
    open_file(&path).map_err(|fault| fault.at(&path))
}

fn open_file(path: &Path) -> Result<Connection, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    settle(&connection)?;
    if connection.is_readonly("main")? {
        return Err(not_writable(path).into());
    }
    FORMAT.upgrade(&mut connection, path)?;
    Ok(connection)
}

fn settle(connection: &Connection) -> Result<(), Fault> {
    sqlite::settle(connection, BUSY)?;
    connection.set_prepared_statement_cache_capacity(64);
    // A large body leaves a large WAL; it need not stay so.
    let bytes = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
    connection.pragma_update_and_check(None, "journal_size_limit", 16 << 20, bytes)?;
    Ok(())
}
