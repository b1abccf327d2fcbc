//! Our own failures, as people and scripts see them: one clear message with a stable code on stderr, and exit code 125. A program that fails is not one.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use cofferdam_contract::codes::{self, ErrorCode};
use cofferdam_contract::problem::{Problem, Problems};
use cofferdam_engine::error::EngineError;
use cofferdam_images::ImageError;
use cofferdam_store::StoreError;
use cofferdam_store::sift::redact::{self, Rules};
use cofferdam_workshop::WorkError;

use crate::terminal::text;

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    code: ErrorCode,
    /// One for each problem.
    lines: Vec<String>,
}

impl Failure {
    /// The same failure under the code that fits where it happened.
    pub(crate) fn with_code(self, code: ErrorCode) -> Self {
        Self { code, ..self }
    }

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

    /// The same where each is a line already.
    pub(crate) fn lines(code: ErrorCode, lines: Vec<String>) -> Self {
        Self { code, lines }
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

    /// For what the store says of a file that was named on the command line: that one is not the history, and what is wrong with it has a code of its own.
    pub(crate) fn about_file(file: &Path, code: ErrorCode) -> impl FnOnce(StoreError) -> Self {
        move |error| match &error {
            StoreError::Io { path, .. } if path == file => Self::new(code, error.to_string()),
            _ => error.into(),
        }
    }

    pub(crate) const fn code(&self) -> ErrorCode {
        self.code
    }

    /// What it says, in one line.
    pub(crate) fn words(&self) -> String {
        self.lines.join("; ")
    }

    /// Prints the message, one line for each problem, and returns the exit code of our own failures.
    pub(crate) fn report(self) -> ExitCode {
        let mut text = String::new();
        for line in &self.lines {
            text.push_str("cofferdam: ");
            text.push_str(&visible(&without_secrets(line)));
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

impl From<WorkError> for Failure {
    fn from(error: WorkError) -> Self {
        Self::lines(error.code, error.lines)
    }
}

impl From<Failure> for WorkError {
    fn from(failure: Failure) -> Self {
        Self {
            code: failure.code,
            lines: failure.lines,
        }
    }
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

/// Messages end up in logs, and repeat what they were given.
pub(crate) fn without_secrets(text: &str) -> String {
    redact::redact_text(&Rules::default(), text).0
}

/// A stranger wrote some of the values in our messages: they must not steer the terminal or look like lines of ours.
pub(crate) fn visible(text: &str) -> String {
    text::safe(text)
}

/// What clap has to say: help and version are not failures; everything else is, in our form and with our code.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(codes::EXIT_OURS)
        }
        _ => Failure::new(ErrorCode::InputInvalid, one_line(&error.to_string())).report(),
    }
}

/// clap explains itself in paragraphs: the error, perhaps with a list below it, tips, usage, and where to find help.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        let part = part.strip_prefix("error: ").unwrap_or(part);
        let part = part.strip_prefix("tip: ").unwrap_or(part);
        let part = match part.strip_prefix("For more information, try ") {
            Some(help) => format!("see {}", help.trim_end_matches('.')),
            None => part.replace("Usage: ", "usage: "),
        };
        if line.ends_with(':') {
            line.push(' ');
        } else if !line.is_empty() {
            line.push_str("; ");
        }
        line.push_str(&part);
    }
    line
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
    fn what_clap_says_in_paragraphs_becomes_one_line() {
        let text = "error: unexpected argument '--memry' found\n\n  tip: a similar argument exists: '--memory'\n\nUsage: cofferdam run --memory <SIZE> -- <CMD>...\n\nFor more information, try '--help'.\n";
        assert_eq!(
            one_line(text),
            "unexpected argument '--memry' found; a similar argument exists: '--memory'; usage: cofferdam run --memory <SIZE> -- <CMD>...; see '--help'"
        );
        assert_eq!(
            one_line("error: the following required arguments were not provided:\n  <CMD>...\n"),
            "the following required arguments were not provided: <CMD>..."
        );
    }

    #[test]
    fn nothing_a_stranger_writes_steers_the_terminal() {
        assert_eq!(visible("é\u{1b}[2J\n\u{9b}x"), "é\\u{1b}[2J\\n\\u{9b}x");
        assert_eq!(visible("x\u{202e}y\u{2028}z"), "x\\u{202e}y\\u{2028}z");
    }
}
