//! Stable codes of our own failures, and the exit codes of the command line.
//!
//! | exit code | meaning |
//! | --- | --- |
//! | 0–255 | the program's own, when it ended by itself |
//! | 124 | stopped: wall time limit |
//! | 125 | ours: bad input or configuration, or the sandbox could not be built; the program never ran |
//! | 126 | the program exists inside the sandbox and cannot be executed |
//! | 127 | the program does not exist inside the sandbox |
//! | 128+n | signal n ended the program, and no limit of ours sent it |
//! | 130 | canceled, as a shell reports a program that Ctrl-C ended (128 + SIGINT) |
//! | 137 | stopped: memory or process limit (128 + SIGKILL) |
//! | 152 | stopped: CPU time limit (128 + SIGXCPU) |
//! | 153 | stopped: output or disk limit (128 + SIGXFSZ) |
//!
//! A program may return any of these itself; who needs certainty reads `ending` in the record (`--json`).

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ending::{Ending, SetupFailureKind, StopCause};

pub const EXIT_WALL_TIME: u8 = 124;
pub const EXIT_OURS: u8 = 125;
pub const EXIT_NOT_EXECUTABLE: u8 = 126;
pub const EXIT_NOT_FOUND: u8 = 127;
pub const EXIT_CANCELED: u8 = 130;
pub const EXIT_KILLED: u8 = 137;
pub const EXIT_CPU_TIME: u8 = 152;
pub const EXIT_SIZE: u8 = 153;

/// What the command line exits with after a run that ended so.
pub fn exit_code(ending: &Ending) -> u8 {
    match ending {
        Ending::Exited { code } => low_byte(*code),
        Ending::Signaled { signal } => signal
            .checked_add(128)
            .and_then(|n| u8::try_from(n).ok())
            .unwrap_or(u8::MAX),
        Ending::Stopped(cause) => match cause {
            StopCause::WallTime { .. } => EXIT_WALL_TIME,
            StopCause::CpuTime { .. } => EXIT_CPU_TIME,
            StopCause::Memory { .. } | StopCause::Processes { .. } => EXIT_KILLED,
            StopCause::Output { .. } | StopCause::Disk { .. } => EXIT_SIZE,
            StopCause::Canceled => EXIT_CANCELED,
        },
        Ending::NeverStarted(failure) => match failure.kind {
            SetupFailureKind::ProgramNotFound => EXIT_NOT_FOUND,
            SetupFailureKind::ProgramNotExecutable => EXIT_NOT_EXECUTABLE,
            SetupFailureKind::Sandbox => EXIT_OURS,
        },
    }
}

/// The kernel keeps only the low byte of what a program returns.
fn low_byte(code: i32) -> u8 {
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
}

/// A stable code for each of our own failures. Codes are never renamed; scripts and peers match on them.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum ErrorCode {
    #[serde(rename = "input.invalid")]
    InputInvalid,
    #[serde(rename = "input.unreadable")]
    InputUnreadable,
    #[serde(rename = "input.malformed_json")]
    InputMalformedJson,
    #[serde(rename = "payload.invalid")]
    PayloadInvalid,
    #[serde(rename = "payload.digest_mismatch")]
    PayloadDigestMismatch,
    #[serde(rename = "payload.expired")]
    PayloadExpired,
    #[serde(rename = "envelope.invalid")]
    EnvelopeInvalid,
    #[serde(rename = "config.invalid")]
    ConfigInvalid,
    #[serde(rename = "policy.refused")]
    PolicyRefused,
    #[serde(rename = "backend.unavailable")]
    BackendUnavailable,
    #[serde(rename = "backend.unsupported_task")]
    BackendUnsupportedTask,
    #[serde(rename = "limit.unenforceable")]
    LimitUnenforceable,
    #[serde(rename = "sandbox.setup_failed")]
    SandboxSetupFailed,
    #[serde(rename = "program.not_found")]
    ProgramNotFound,
    #[serde(rename = "program.not_executable")]
    ProgramNotExecutable,
    #[serde(rename = "output.write_failed")]
    OutputWriteFailed,
    #[serde(rename = "history.unavailable")]
    HistoryUnavailable,
    #[serde(rename = "history.damaged")]
    HistoryDamaged,
    #[serde(rename = "history.newer_format")]
    HistoryNewerFormat,
    #[serde(rename = "history.not_found")]
    HistoryNotFound,
    #[serde(rename = "bundle.refused")]
    BundleRefused,
    #[serde(rename = "server.unreachable")]
    ServerUnreachable,
    #[serde(rename = "server.refused")]
    ServerRefused,
    #[serde(rename = "internal")]
    Internal,
}

/// What is documented about a code.
struct Entry {
    code: &'static str,
    meaning: &'static str,
    what_to_do: &'static str,
}

impl ErrorCode {
    pub const ALL: [Self; 24] = [
        Self::InputInvalid,
        Self::InputUnreadable,
        Self::InputMalformedJson,
        Self::PayloadInvalid,
        Self::PayloadDigestMismatch,
        Self::PayloadExpired,
        Self::EnvelopeInvalid,
        Self::ConfigInvalid,
        Self::PolicyRefused,
        Self::BackendUnavailable,
        Self::BackendUnsupportedTask,
        Self::LimitUnenforceable,
        Self::SandboxSetupFailed,
        Self::ProgramNotFound,
        Self::ProgramNotExecutable,
        Self::OutputWriteFailed,
        Self::HistoryUnavailable,
        Self::HistoryDamaged,
        Self::HistoryNewerFormat,
        Self::HistoryNotFound,
        Self::BundleRefused,
        Self::ServerUnreachable,
        Self::ServerRefused,
        Self::Internal,
    ];

    pub const fn as_str(self) -> &'static str {
        self.entry().code
    }

    /// One line: what this code says happened.
    pub const fn meaning(self) -> &'static str {
        self.entry().meaning
    }

    /// One line: what the reader does about it.
    pub const fn what_to_do(self) -> &'static str {
        self.entry().what_to_do
    }

    /// What the command line exits with.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::ProgramNotFound => EXIT_NOT_FOUND,
            Self::ProgramNotExecutable => EXIT_NOT_EXECUTABLE,
            Self::InputInvalid
            | Self::InputUnreadable
            | Self::InputMalformedJson
            | Self::PayloadInvalid
            | Self::PayloadDigestMismatch
            | Self::PayloadExpired
            | Self::EnvelopeInvalid
            | Self::ConfigInvalid
            | Self::PolicyRefused
            | Self::BackendUnavailable
            | Self::BackendUnsupportedTask
            | Self::LimitUnenforceable
            | Self::SandboxSetupFailed
            | Self::OutputWriteFailed
            | Self::HistoryUnavailable
            | Self::HistoryDamaged
            | Self::HistoryNewerFormat
            | Self::HistoryNotFound
            | Self::BundleRefused
            | Self::ServerUnreachable
            | Self::ServerRefused
            | Self::Internal => EXIT_OURS,
        }
    }

    const fn entry(self) -> Entry {
        let (code, meaning, what_to_do) = match self {
            Self::InputInvalid => (
                "input.invalid",
                "A flag or an argument has a value that cannot be used.",
                "Correct every field that the message names; nothing has run.",
            ),
            Self::InputUnreadable => (
                "input.unreadable",
                "A file or stream that was named could not be read.",
                "Check that it exists and that you may read it.",
            ),
            Self::InputMalformedJson => (
                "input.malformed_json",
                "The input is not JSON, or JSON that two readers could understand differently.",
                "Correct the place that the message names: line and column, or the path of the key.",
            ),
            Self::PayloadInvalid => (
                "payload.invalid",
                "The payload is JSON and breaks the contract.",
                "Correct every field that the message names, then seal it again.",
            ),
            Self::PayloadDigestMismatch => (
                "payload.digest_mismatch",
                "The payload was changed after it was sealed.",
                "Get it again from whoever sealed it, or seal your own version; do not run this one.",
            ),
            Self::PayloadExpired => (
                "payload.expired",
                "The payload's deadline has passed.",
                "Seal a new one with a later deadline.",
            ),
            Self::EnvelopeInvalid => (
                "envelope.invalid",
                "The result does not fit its payload: ids, limits, proof or schema.",
                "Do not trust this result; run the payload again, elsewhere if a worker sent it.",
            ),
            Self::ConfigInvalid => (
                "config.invalid",
                "The configuration has an unknown key or a value that cannot be used.",
                "Correct the key that the message names; `cofferdam config show` prints where each value comes from.",
            ),
            Self::PolicyRefused => (
                "policy.refused",
                "The mode in force forbids what was asked for; nothing has run.",
                "The message names the rule and what it allows; `cofferdam policy show` prints the whole policy and who set it.",
            ),
            Self::BackendUnavailable => (
                "backend.unavailable",
                "The backend that was asked for does not work on this host.",
                "`cofferdam doctor` says what is missing and the command that fixes it.",
            ),
            Self::BackendUnsupportedTask => (
                "backend.unsupported_task",
                "The backend cannot run this kind of task.",
                "Choose a backend that can, or write the task as a command.",
            ),
            Self::LimitUnenforceable => (
                "limit.unenforceable",
                "A limit that was asked for cannot be enforced on this host.",
                "`cofferdam doctor` says what is missing; or waive that limit by name.",
            ),
            Self::SandboxSetupFailed => (
                "sandbox.setup_failed",
                "The sandbox could not be built; the program never ran.",
                "The message names the step and the kernel's answer; `cofferdam doctor` checks the host.",
            ),
            Self::ProgramNotFound => (
                "program.not_found",
                "The program does not exist inside the sandbox.",
                "Check its name, or mount the directory that holds it.",
            ),
            Self::ProgramNotExecutable => (
                "program.not_executable",
                "The program exists inside the sandbox and cannot be executed.",
                "Make it executable, check its `#!` line and that it is built for this machine.",
            ),
            Self::OutputWriteFailed => (
                "output.write_failed",
                "The result could not be written to where it was asked for.",
                "Check the disk and the permissions of the destination.",
            ),
            Self::HistoryUnavailable => (
                "history.unavailable",
                "What is kept of runs could not be read or written; the run itself is not affected.",
                "Check the disk and the permissions of the data directory, or name another with --data-dir.",
            ),
            Self::HistoryDamaged => (
                "history.damaged",
                "Something that is kept of a run is not what was written.",
                "`cofferdam audit verify` says what; export what can be read, and check the disk.",
            ),
            Self::HistoryNewerFormat => (
                "history.newer_format",
                "The history was written by a newer version.",
                "Use that version, or name another directory with --data-dir.",
            ),
            Self::HistoryNotFound => (
                "history.not_found",
                "There is no such run, or the run has no such artifact.",
                "`cofferdam runs list` and `cofferdam artifacts list` show what there is.",
            ),
            Self::BundleRefused => (
                "bundle.refused",
                "The bundle is damaged, unsafe, wrongly signed or of a newer format; nothing was imported.",
                "Get it again from whoever exported it; the message says what is wrong.",
            ),
            Self::ServerUnreachable => (
                "server.unreachable",
                "The daemon does not answer, or not as a daemon of ours does.",
                "Check its address and that it runs: `curl URL/health`.",
            ),
            Self::ServerRefused => (
                "server.refused",
                "The daemon answered with an error.",
                "The message has its code and what it says to do.",
            ),
            Self::Internal => (
                "internal",
                "A mistake of Cofferdam's own.",
                "Please report it with the message and the command.",
            ),
        };
        Entry {
            code,
            meaning,
            what_to_do,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::ending::{DiskPlace, SetupFailure, Stream};
    use crate::units::Bytes;

    fn never_started(kind: SetupFailureKind) -> Ending {
        let (step, message) = (String::new(), String::new());
        Ending::NeverStarted(SetupFailure {
            kind,
            step,
            message,
            errno: None,
        })
    }

    #[test]
    fn every_ending_has_its_documented_exit_code() {
        let second = Duration::from_secs(1);
        let byte = Bytes::new(1);
        for (ending, code) in [
            (Ending::Exited { code: 0 }, 0),
            (Ending::Exited { code: 42 }, 42),
            (Ending::Exited { code: 255 }, 255),
            (Ending::Exited { code: 256 }, 0),
            (Ending::Exited { code: -1 }, 255),
            (Ending::Signaled { signal: 9 }, 137),
            (Ending::Signaled { signal: 11 }, 139),
            (Ending::Signaled { signal: 64 }, 192),
            (Ending::Signaled { signal: i32::MAX }, 255),
            (Ending::Stopped(StopCause::WallTime { limit: second }), 124),
            (Ending::Stopped(StopCause::CpuTime { limit: second }), 152),
            (Ending::Stopped(StopCause::Memory { limit: byte }), 137),
            (Ending::Stopped(StopCause::Processes { limit: 1 }), 137),
            (
                Ending::Stopped(StopCause::Output {
                    limit: byte,
                    stream: Stream::Stderr,
                }),
                153,
            ),
            (
                Ending::Stopped(StopCause::Disk {
                    limit: byte,
                    place: DiskPlace::Scratch,
                }),
                153,
            ),
            (Ending::Stopped(StopCause::Canceled), 130),
            (never_started(SetupFailureKind::ProgramNotFound), 127),
            (never_started(SetupFailureKind::ProgramNotExecutable), 126),
            (never_started(SetupFailureKind::Sandbox), 125),
        ] {
            assert_eq!(exit_code(&ending), code, "{ending:?}");
        }
    }

    #[test]
    fn codes_are_distinct_dotted_and_explained() {
        let codes: BTreeSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(codes.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            assert!(
                code.as_str()
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b == b'.' || b == b'_')
            );
            assert!(
                code.meaning().ends_with('.') && code.what_to_do().ends_with('.'),
                "{code}"
            );
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
