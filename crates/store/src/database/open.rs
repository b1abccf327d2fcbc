//! The connection to the database: its settings, whether it may write, and its transactions. Knows no table.
//!
//! What a crash can lose. WAL with `synchronous=NORMAL` loses nothing when a process of ours dies. A power cut may take the last transactions of a `NORMAL` connection, and never
//! the consistency of the file. That is good enough for the note that a run goes on ([`History::begin`]): its journal still says so. It is not for what a journal or a file is removed
//! after, nor for what the audit head is written after. So [`History::record`], removals and audit entries commit with `synchronous=FULL`: when they return, the WAL is on the disk.
//! Whoever adopts may unlink its journals as soon as `record` has returned.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::fault::{Fault, not_writable};
use super::schema;
use crate::audit::head;
use crate::data_dir::DataDir;
use crate::error::StoreError;
use crate::sqlite;

/// How long one writer waits for another. Transactions are short; pruning works in portions.
const BUSY: Duration = Duration::from_secs(20);
/// Of pages, in KiB, as SQLite wants it written: negative.
const CACHE_KIB: i64 = -32 * 1024;
const STATEMENTS: usize = 96;

/// The history of one data directory.
#[derive(Debug)]
pub struct History {
    dir: DataDir,
    connection: Connection,
    access: Access,
}

/// Whether this history can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    ReadWrite,
    /// The file or its directory may not be written. Reading works.
    ReadOnly,
}

/// What must be on the disk when a transaction has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// A power cut may undo it.
    Consistent,
    /// A power cut does not undo it.
    Durable,
}

impl History {
    /// Opens the history, making it where there is none, and brings it to the current format. Where it may not be written, it is opened for reading.
    pub fn open(dir: &DataDir) -> Result<Self, StoreError> {
        let path = dir.database();
        let opened = match open_writable(dir, &path) {
            Err(fault) if fault.is_about_writing() && path.exists() => {
                open_read_only(&path).map(|connection| (connection, Access::ReadOnly))
            }
            other => other,
        };
        let (connection, access) = opened.map_err(|fault| fault.at(&path))?;
        let history = Self {
            dir: dir.clone(),
            connection,
            access,
        };
        head::found_best_effort(&history);
        Ok(history)
    }

    pub fn dir(&self) -> &DataDir {
        &self.dir
    }

    pub const fn access(&self) -> Access {
        self.access
    }

    /// What SQLite finds wrong with the file; empty when it is sound. Reads all of it.
    pub fn check_integrity(&self) -> Result<Vec<String>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare("PRAGMA quick_check(100)")?;
            let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
            let lines: Vec<String> = lines.collect::<rusqlite::Result<_>>()?;
            Ok(lines.into_iter().filter(|line| line != "ok").collect())
        })
    }

    /// One look at one state of the history, whatever others write meanwhile.
    pub(crate) fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let read = || {
            let snapshot = self.connection.unchecked_transaction()?;
            work(&snapshot)
        };
        read().map_err(|fault| fault.at(&self.dir.database()))
    }

    /// All of `work` or none of it. Takes the write lock at once, so that it cannot fail half-way because somebody else wrote.
    pub(crate) fn write<T>(
        &mut self,
        durability: Durability,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let path = self.dir.database();
        if self.access == Access::ReadOnly {
            return Err(not_writable(&path));
        }
        let connection = &mut self.connection;
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
        write().map_err(|fault: Fault| fault.at(&path))
    }

    /// [`Self::write`], on the disk when it returns.
    pub(crate) fn write_durably<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        self.write(Durability::Durable, work)
    }

    /// Gives free pages back to the file system, and empties the WAL as far as nobody reads it.
    pub(crate) fn shrink_best_effort(&self) {
        if self.access == Access::ReadOnly {
            return;
        }
        let shrink = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare("PRAGMA incremental_vacuum")?;
            let mut rows = statement.query([])?;
            while rows.next()?.is_some() {}
            drop(rows);
            let busy = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
            self.connection
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], busy)?;
            Ok(())
        };
        // Space that is not given back now is used again by the next runs.
        let _ = shrink();
    }
}

fn open_writable(dir: &DataDir, path: &Path) -> Result<(Connection, Access), Fault> {
    dir.create()?;
    sqlite::create_private(path).map_err(StoreError::io("make the history", path))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    settle(&connection)?;
    // SQLite opens a file that it may not write for reading, and says nothing.
    if connection.is_readonly("main")? {
        return Err(not_writable(path).into());
    }
    schema::upgrade(&mut connection, path)?;
    Ok((connection, Access::ReadWrite))
}

/// Reads along with a writer where there is one. Where there is none and its files cannot be made, the file is read as one that nobody changes; that would be wrong with a WAL that
/// still holds something, and is not done then.
fn open_read_only(path: &Path) -> Result<Connection, Fault> {
    let shared = open_uri(path, "mode=ro");
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    let wal_is_empty = std::fs::metadata(wal).map_or(true, |found| found.len() == 0);
    match shared {
        Err(fault) if fault.is_about_writing() && wal_is_empty => {
            open_uri(path, "mode=ro&immutable=1")
        }
        other => other,
    }
}

fn open_uri(path: &Path, how: &str) -> Result<Connection, Fault> {
    let uri = format!("file:{}?{how}", percent_encoded(path));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri, flags)?;
    settle(&connection)?;
    schema::require_current(&connection, path)?;
    Ok(connection)
}

fn percent_encoded(path: &Path) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                text.push(char::from(*byte));
            }
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(text, "%{byte:02x}");
            }
        }
    }
    text
}

/// What this database needs besides.
fn settle(connection: &Connection) -> Result<(), Fault> {
    sqlite::settle(connection, BUSY)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Without this, every new value that is bound to an indexed column has the statement compiled anew.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "cache_size", CACHE_KIB)?;
    Ok(())
}
