//! Why a run could not even be tried. A program that fails is a result, not an error.

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::ending::Stream;
use cofferdam_contract::enforcement::LimitName;
use cofferdam_contract::problem::Problems;
use cofferdam_contract::request::BackendName;
use rustix::io::Errno;

/// Why nothing was run, or why its result cannot be given.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("{0}")]
    Invalid(#[from] Problems),
    #[error("{what} `{path}`: {errno}")]
    Unreadable {
        what: &'static str,
        path: String,
        errno: Errno,
    },
    #[error(
        "{limit}: cannot be enforced on this host: {why}; {fix}, or accept that it is not enforced with --waive {limit}"
    )]
    Unenforceable {
        limit: LimitName,
        why: String,
        fix: String,
    },
    #[error("the {backend} backend is not available here: {why}; {fix}")]
    Unavailable {
        backend: &'static str,
        why: String,
        fix: String,
    },
    #[error("cannot pass on the program's {stream}: {errno}")]
    OutputWriteFailed { stream: Stream, errno: Errno },
    #[error("cannot {doing}: {errno}")]
    System { doing: &'static str, errno: Errno },
}

impl EngineError {
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid(_) => ErrorCode::InputInvalid,
            Self::Unreadable { .. } => ErrorCode::InputUnreadable,
            Self::Unenforceable { .. } => ErrorCode::LimitUnenforceable,
            Self::Unavailable { .. } => ErrorCode::BackendUnavailable,
            Self::OutputWriteFailed { .. } => ErrorCode::OutputWriteFailed,
            Self::System { .. } => ErrorCode::Internal,
        }
    }

    /// Building a sandbox is the same work for several backends; whoever asked for one is told of that one.
    pub(crate) fn of_backend(self, name: BackendName) -> Self {
        match self {
            Self::Unavailable { why, fix, .. } => Self::Unavailable {
                backend: name.as_str(),
                why,
                fix,
            },
            other => other,
        }
    }

    /// For a system call that fails only when the machine is out of something.
    pub(crate) fn system(doing: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::System { doing, errno }
    }
}
