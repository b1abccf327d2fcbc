//! Why an image cannot be had, kept or used. Each says what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use cofferdam_contract::codes::ErrorCode;

/// What went wrong with an image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(
        "`{text}` is no name of an image: {why}; write HOST/NAME:TAG, NAME:TAG or NAME@sha256:…"
    )]
    Name { text: String, why: &'static str },
    #[error(
        "there is no image `{name}` unpacked here; get it with `{command}`, or run it in a container with --backend docker"
    )]
    Absent { name: String, command: String },
    /// Whoever made it made a mistake, or did it on purpose.
    #[error("{what} is refused: {why}")]
    Refused { what: String, why: String },
    #[error("the image {bound}, which is more than is taken; {fix}")]
    TooLarge { bound: String, fix: &'static str },
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("cannot write `{}`: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    #[error(
        "the registry {registry} cannot be reached: {why}; without network, take the image along as a file: `docker save -o image.tar NAME` there, `cofferdam images import image.tar` here"
    )]
    Unreachable { registry: String, why: String },
    #[error("the registry {registry} does not give `{name}`: {why}; {fix}")]
    Denied {
        registry: String,
        name: String,
        why: String,
        fix: &'static str,
    },
    #[error("`{name}` is in use by a run; try again when that has ended")]
    InUse { name: String },
}

impl ImageError {
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Name { .. }
            | Self::Refused { .. }
            | Self::TooLarge { .. }
            | Self::InUse { .. } => ErrorCode::InputInvalid,
            Self::Absent { .. } => ErrorCode::BackendUnavailable,
            Self::Unreadable { .. } => ErrorCode::InputUnreadable,
            Self::Unwritable { .. } => ErrorCode::OutputWriteFailed,
            Self::Unreachable { .. } => ErrorCode::ServerUnreachable,
            Self::Denied { .. } => ErrorCode::ServerRefused,
        }
    }

    pub(crate) fn refused(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Refused {
            what: what.into(),
            why: why.into(),
        }
    }

    pub(crate) fn unreadable(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Unreadable {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn unwritable(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Unwritable {
            path: path.to_owned(),
            source,
        }
    }
}
