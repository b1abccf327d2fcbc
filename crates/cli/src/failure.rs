//! Our own failures, as people and scripts see them: one clear message with a stable code on stderr, and exit code 125. A program that fails is not one.

use std::io::Write as _;
use std::process::ExitCode;

use cofferdam_contract::codes::{self, ErrorCode};
use cofferdam_contract::problem::{Problem, Problems};
use cofferdam_engine::error::EngineError;

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    code: ErrorCode,
    /// One for each problem.
    lines: Vec<String>,
}

impl Failure {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            lines: vec![message.into()],
        }
    }

    /// All problems with an input, each on a line of its own.
    pub(crate) fn problems(code: ErrorCode, problems: &Problems) -> Self {
        Self {
            code,
            lines: problems.iter().map(ToString::to_string).collect(),
        }
    }

    pub(crate) fn problem(field: &str, value: &str, fix: impl Into<String>) -> Self {
        Self::new(
            ErrorCode::InputInvalid,
            Problem::new(field, value, fix).to_string(),
        )
    }

    /// A file or stream that could not be read or written.
    pub(crate) fn io(code: ErrorCode, what: &str, error: &std::io::Error) -> Self {
        Self::new(code, format!("{what}: {error}"))
    }

    /// Prints the message, one line for each problem, and returns the exit code of our own failures.
    pub(crate) fn report(self) -> ExitCode {
        let mut text = String::new();
        for line in &self.lines {
            text.push_str("cofferdam: ");
            text.push_str(&visible(line));
            text.push_str(" [");
            text.push_str(self.code.as_str());
            text.push_str("]\n");
        }
        let _ = std::io::stderr().write_all(text.as_bytes());
        ExitCode::from(codes::EXIT_OURS)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        match &error {
            EngineError::Invalid(problems) => Self::problems(error.code(), problems),
            other => Self::new(error.code(), other.to_string()),
        }
    }
}

/// A stranger wrote some of the values in our messages: they must not steer the terminal or look like lines of ours.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// What clap has to say: help and version are not failures; everything else is, with our code and not clap's.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() {
        ExitCode::from(codes::EXIT_OURS)
    } else {
        ExitCode::SUCCESS
    }
}

/// Writes to stdout; a reader that has gone away is not worth a message.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::io(
            ErrorCode::OutputWriteFailed,
            "cannot write to standard output",
            &error,
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_a_stranger_writes_steers_the_terminal() {
        assert_eq!(visible("é\u{1b}[2J\n\u{9b}x"), "é\\u{1b}[2J\\n\\u{9b}x");
    }
}
