//! What every database of ours has in common: a private file, settings that tampering cannot turn against us, and a format that goes up step by step, also when several processes make the
//! file at once.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::data_dir::{self, DataDir};
use crate::error::StoreError;

/// The tables of one kind of database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format<'a> {
    /// In the header of the file.
    pub(crate) application: i64,
    /// The step at index n leads from format n to format n + 1. A step that has been released is never changed.
    pub(crate) steps: &'a [&'a str],
}

/// Why a database is not one that can be used. Each kind says in its own words what to do about it.
#[derive(Debug)]
pub(crate) enum Trouble {
    Sql(rusqlite::Error),
    Newer(StoreError),
    Foreign,
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// How long somebody else's change of the journal mode is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// SQLite gives the WAL and its index the mode that the file has.
pub(crate) fn create_private(path: &Path) -> io::Result<()> {
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
pub(crate) fn settle(connection: &Connection, busy: Duration) -> rusqlite::Result<()> {
    connection.busy_timeout(busy)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "foreign_keys", true)
}

/// A database in which every change is one that must not be lost: when it is told of, it is on the disk. It is never begun anew by itself.
#[derive(Debug)]
pub(crate) struct Durable {
    path: PathBuf,
    /// What a person can do about one that cannot be read.
    advice: &'static str,
    connection: Mutex<Connection>,
}

impl Durable {
    /// Makes the file where there is none, and its directory.
    pub(crate) fn open(
        dir: &DataDir,
        path: PathBuf,
        format: &Format<'_>,
        (busy, advice): (Duration, &'static str),
    ) -> Result<Self, StoreError> {
        data_dir::create_private(dir.path())
            .map_err(StoreError::io("make the directory", dir.path()))?;
        create_private(&path).map_err(StoreError::io("make", &path))?;
        let opened = || -> Result<Connection, Trouble> {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let mut connection = Connection::open_with_flags(&path, flags)?;
            settle(&connection, busy)?;
            format.upgrade(&mut connection, &path)?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            Ok(connection)
        };
        let connection = opened().map_err(|trouble| trouble.kept(&path, advice))?;
        Ok(Self {
            connection: Mutex::new(connection),
            advice,
            path,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sql(&self, error: rusqlite::Error) -> StoreError {
        Trouble::Sql(error).kept(&self.path, self.advice)
    }
}

impl Trouble {
    fn kept(self, path: &Path, advice: &str) -> StoreError {
        let damaged = |why: &str| StoreError::Damaged {
            path: path.to_owned(),
            why: format!("{why}; it is left as it is: {advice}"),
        };
        match self {
            Self::Newer(error) => error,
            Self::Foreign => damaged("it is a database of another kind"),
            Self::Sql(error) if is_unreadable(&error) => damaged(&error.to_string()),
            Self::Sql(error) => StoreError::Database {
                path: path.to_owned(),
                source: error,
            },
        }
    }
}

/// Whether the file is no database, or holds what we never write.
pub(crate) fn is_unreadable(error: &rusqlite::Error) -> bool {
    use rusqlite::Error;
    matches!(
        error,
        Error::FromSqlConversionFailure(..)
            | Error::InvalidColumnType(..)
            | Error::IntegralValueOutOfRange(..)
            | Error::Utf8Error(..)
    ) || matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt)
    )
}

impl Format<'_> {
    /// The format that this version writes.
    pub(crate) fn known(&self) -> i64 {
        i64::try_from(self.steps.len()).unwrap_or(i64::MAX)
    }

    /// The format that the file has; refuses one that is newer or not ours.
    pub(crate) fn found(&self, connection: &Connection, path: &Path) -> Result<i64, Trouble> {
        // At one moment: another process may be making it right now.
        let look = connection.unchecked_transaction()?;
        let found = version(&look)?;
        self.refuse_newer(found, path)?;
        self.refuse_foreign(&look, found)?;
        Ok(found)
    }

    /// Brings the database to the current format. Several processes may do this at once.
    pub(crate) fn upgrade(&self, connection: &mut Connection, path: &Path) -> Result<(), Trouble> {
        let found = self.found(connection, path)?;
        if found == self.known() {
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
        self.refuse_newer(found, path)?;
        for step in self.steps.iter().skip(usize::try_from(found).unwrap_or(0)) {
            transaction.execute_batch(step)?;
        }
        transaction.pragma_update(None, "application_id", self.application)?;
        transaction.pragma_update(None, "user_version", self.known())?;
        Ok(transaction.commit()?)
    }

    fn refuse_newer(&self, found: i64, path: &Path) -> Result<(), Trouble> {
        let known = self.known();
        if (0..=known).contains(&found) {
            return Ok(());
        }
        let path = path.to_owned();
        Err(Trouble::Newer(StoreError::NewerFormat {
            path,
            found,
            known,
        }))
    }

    /// A database of somebody else is not turned into ours.
    fn refuse_foreign(&self, connection: &Connection, version: i64) -> Result<(), Trouble> {
        let application: i64 =
            connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let count = "SELECT count(*) FROM sqlite_schema";
        let tables: i64 = connection.query_row(count, [], |row| row.get(0))?;
        if application == self.application || (version == 0 && tables == 0) {
            return Ok(());
        }
        Err(Trouble::Foreign)
    }
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// The one change for which SQLite does not wait by itself when two processes make the same new file.
fn use_wal(connection: &Connection) -> rusqlite::Result<()> {
    let deadline = Instant::now() + PATIENCE;
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
            other => return other.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: Format<'_> = Format {
        application: 0x7465_7374,
        steps: &["CREATE TABLE a (x INTEGER) STRICT;"],
    };

    fn open(path: &Path) -> Result<i64, Trouble> {
        let mut connection = Connection::open(path)?;
        settle(&connection, PATIENCE)?;
        FORMAT.upgrade(&mut connection, path)?;
        FORMAT.found(&connection, path)
    }

    /// Whoever comes while another makes the file finds it made, or makes it; nobody takes it for a stranger's.
    #[test]
    fn many_may_make_the_same_new_file() {
        let place = tempfile::tempdir().unwrap();
        for round in 0..20 {
            let path = place.path().join(round.to_string());
            create_private(&path).unwrap();
            thread::scope(|scope| {
                let openers: Vec<_> = (0..8).map(|_| scope.spawn(|| open(&path))).collect();
                for opener in openers {
                    assert_eq!(opener.join().unwrap().unwrap(), 1, "round {round}");
                }
            });
        }
    }
}
