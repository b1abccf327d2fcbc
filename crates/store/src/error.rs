//! What can go wrong with what is stored. A run's own result never depends on it.

use std::io;
use std::path::PathBuf;

use cofferdam_contract::codes::ErrorCode;

/// Why something could not be stored or read back.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Disk full, no permission, read-only, gone.
    #[error("cannot {what} `{}`: {source}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("the database at `{}` cannot be used: {source}", path.display())]
    Database {
        path: PathBuf,
        source: rusqlite::Error,
    },
    /// Not what we wrote: a checksum does not fit, a frame or a document cannot be read.
    #[error("`{}` is damaged: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error(
        "the database at `{}` has format {found}, and this version knows formats up to {known}; use a newer cofferdam, or another --data-dir",
        path.display()
    )]
    NewerFormat {
        path: PathBuf,
        found: i64,
        known: i64,
    },
    #[error("there is no run `{asked}`; `cofferdam runs list` shows them")]
    NoSuchRun { asked: String },
    #[error("`{asked}` could be any of {}; write more of it", candidates.join(", "))]
    Ambiguous {
        asked: String,
        candidates: Vec<String>,
    },
    #[error("run {run} has no artifact `{path}`; `cofferdam artifacts list {run}` shows them")]
    NoSuchArtifact { run: String, path: String },
    /// A value that the caller gave: a pattern, a filter, a key.
    #[error("{field}: {why} (got `{value}`)")]
    Invalid {
        field: &'static str,
        value: String,
        why: String,
    },
    /// Nothing is dropped to make room: whoever has something to tell must slow down, or somebody must look why nothing leaves.
    #[error("the outbox at `{}` is full: {why}; see that the peer can be reached, or raise the limit", path.display())]
    OutboxFull { path: PathBuf, why: String },
    /// A bundle that must not be imported.
    #[error("this bundle is refused: {why}")]
    BundleRefused { why: String },
}

impl StoreError {
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Io { .. } | Self::Database { .. } | Self::OutboxFull { .. } => {
                ErrorCode::HistoryUnavailable
            }
            Self::Damaged { .. } => ErrorCode::HistoryDamaged,
            Self::NewerFormat { .. } => ErrorCode::HistoryNewerFormat,
            Self::NoSuchRun { .. } | Self::NoSuchArtifact { .. } => ErrorCode::HistoryNotFound,
            Self::Ambiguous { .. } | Self::Invalid { .. } => ErrorCode::InputInvalid,
            Self::BundleRefused { .. } => ErrorCode::BundleRefused,
        }
    }
}
