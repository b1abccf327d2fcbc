//! Why nothing could be done. A tool that fails is no error: that is an outcome.

use std::fmt;
use std::io;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::problem::{Problem, Problems};
use cofferdam_engine::error::EngineError;
use cofferdam_store::StoreError;

/// With one line for each problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkError {
    pub code: ErrorCode,
    pub lines: Vec<String>,
}

impl WorkError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            lines: vec![message.into()],
        }
    }

    /// What is wrong with something that was asked for, in the words of a command line; other callers have the same names without the dashes.
    pub fn problem(field: &str, value: &str, fix: impl Into<String>) -> Self {
        let problem = Problem::new(field, value, fix);
        Self::new(ErrorCode::InputInvalid, problem.to_string())
    }

    pub(crate) fn io(code: ErrorCode, what: &str, error: &io::Error) -> Self {
        Self::new(code, format!("{what}: {error}"))
    }

    pub(crate) fn problems(code: ErrorCode, problems: &Problems) -> Self {
        Self {
            code,
            lines: problems.iter().map(ToString::to_string).collect(),
        }
    }
}

impl fmt::Display for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("; "))
    }
}

impl std::error::Error for WorkError {}

impl From<EngineError> for WorkError {
    fn from(error: EngineError) -> Self {
        match &error {
            EngineError::Invalid(problems) => Self::problems(error.code(), problems),
            other => Self::new(error.code(), other.to_string()),
        }
    }
}

impl From<StoreError> for WorkError {
    fn from(error: StoreError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}
