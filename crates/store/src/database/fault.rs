//! What can go wrong inside the database, before it is known which file it was.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;

use crate::error::StoreError;
use crate::sqlite::{self, Trouble};

/// A failure without its path. [`Fault::at`] adds it.
#[derive(Debug)]
pub(crate) enum Fault {
    Sql(rusqlite::Error),
    /// Read, and not what we wrote.
    Damaged(String),
    Store(StoreError),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<rusqlite::types::FromSqlError> for Fault {
    fn from(error: rusqlite::types::FromSqlError) -> Self {
        Self::Damaged(format!("a column holds what it should not: {error}"))
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
            Trouble::Foreign => Self::Damaged("it is a database of another program".to_owned()),
        }
    }
}

impl Fault {
    pub(crate) fn at(self, path: &Path) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Damaged(why) => damaged(path, &why),
            Self::Sql(error) => match meaning(&error) {
                Meaning::Damaged => damaged(path, &error.to_string()),
                Meaning::NotWritable => not_writable(path),
                Meaning::Other => StoreError::Database {
                    path: path.to_owned(),
                    source: error,
                },
            },
        }
    }

    /// Whether reading could still work.
    pub(crate) fn is_about_writing(&self) -> bool {
        match self {
            Self::Sql(error) => matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied)
            ),
            Self::Store(StoreError::Io { source, .. }) => matches!(
                source.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ),
            Self::Damaged(_) | Self::Store(_) => false,
        }
    }
}

enum Meaning {
    Damaged,
    NotWritable,
    Other,
}

fn meaning(error: &rusqlite::Error) -> Meaning {
    match error.sqlite_error_code() {
        _ if sqlite::is_unreadable(error) => Meaning::Damaged,
        Some(ErrorCode::ReadOnly) => Meaning::NotWritable,
        _ => Meaning::Other,
    }
}

fn damaged(path: &Path, why: &str) -> StoreError {
    StoreError::Damaged {
        path: path.to_owned(),
        why: format!(
            "{why}; it is left as it is: restore a copy of it, or move it away to begin a new history"
        ),
    }
}

/// The history can be read and not written.
pub(crate) fn not_writable(path: &Path) -> StoreError {
    StoreError::Io {
        what: "write to the history",
        path: path.to_owned(),
        source: io::Error::new(
            io::ErrorKind::ReadOnlyFilesystem,
            "the file or its directory may not be written; give yourself write permission, or name another --data-dir",
        ),
    }
}
