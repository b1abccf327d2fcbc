//! How a run ended. Set once, by whoever ended it, from kernel evidence; never guessed later from usage.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Number;

use crate::codes::ErrorCode;
use crate::enforcement::LimitName;
use crate::signal::signal_name;
use crate::units::{Bytes, format_duration};

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The program ended by itself.
    Exited { code: i32 },
    /// A signal ended the program, and no limit of ours sent it.
    Signaled { signal: i32 },
    /// A limit or a person ended it.
    Stopped(StopCause),
    /// It never ran: our fault or a missing program, never the program's doing.
    NeverStarted(SetupFailure),
}

/// The limit that fired, with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopCause {
    WallTime { limit: Duration },
    CpuTime { limit: Duration },
    Memory { limit: Bytes },
    Output { limit: Bytes, stream: Stream },
    Processes { limit: u64 },
    Disk { limit: Bytes, place: DiskPlace },
    Canceled,
}

/// Which of the program's streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Which storage was full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskPlace {
    /// /tmp, /dev/shm, the home directory and copy-on-write changes: one private, sized file system.
    Scratch,
    Workspace,
}

/// The step of setting up that failed, and how the kernel answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetupFailure {
    pub kind: SetupFailureKind,
    /// The step, in words: `mount /usr`, `execve ./solve`.
    pub step: String,
    /// What went wrong and, where we know it, what would fix it.
    pub message: String,
    /// The kernel's error number, when there was one.
    pub errno: Option<i32>,
}

/// Whose failure a [`SetupFailure`] is; decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetupFailureKind {
    /// The program does not exist inside the sandbox (127 in a shell).
    ProgramNotFound,
    /// The program exists and cannot be executed (126 in a shell).
    ProgramNotExecutable,
    /// The sandbox could not be built (125).
    Sandbox,
}

/// A limit as a number with its unit, for records and verdicts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitValue {
    pub value: Number,
    pub unit: LimitUnit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitUnit {
    Seconds,
    Bytes,
    Processes,
}

impl Ending {
    /// The program's exit code and the name of the signal that ended it, as a record has them beside the ending.
    pub(crate) fn code_and_signal(&self) -> (Option<i32>, Option<String>) {
        match self {
            Self::Exited { code } => (Some(*code), None),
            Self::Signaled { signal } => (None, Some(signal_name(*signal))),
            Self::Stopped(_) | Self::NeverStarted(_) => (None, None),
        }
    }

    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Exited { .. } => "exited",
            Self::Signaled { .. } => "signaled",
            Self::Stopped(_) => "stopped",
            Self::NeverStarted(_) => "never_started",
        }
    }

    /// One word and its detail: `exited:0`, `signaled:11`, `stopped:memory`, `never_started:program.not_found`.
    pub fn brief(&self) -> String {
        match self {
            Self::Exited { code } => format!("exited:{code}"),
            Self::Signaled { signal } => format!("signaled:{signal}"),
            Self::Stopped(cause) => format!("stopped:{}", cause.name()),
            Self::NeverStarted(failure) => format!("never_started:{}", failure.code().as_str()),
        }
    }
}

impl StopCause {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::WallTime { .. } => "wall_time",
            Self::CpuTime { .. } => "cpu_time",
            Self::Memory { .. } => "memory",
            Self::Output { .. } => "output",
            Self::Processes { .. } => "processes",
            Self::Disk { .. } => "disk",
            Self::Canceled => "canceled",
        }
    }

    /// The limit that fired; a person is none.
    pub const fn limit_name(&self) -> Option<LimitName> {
        match self {
            Self::WallTime { .. } => Some(LimitName::WallTime),
            Self::CpuTime { .. } => Some(LimitName::CpuTime),
            Self::Memory { .. } => Some(LimitName::Memory),
            Self::Output { .. } => Some(LimitName::Output),
            Self::Processes { .. } => Some(LimitName::Processes),
            Self::Disk { .. } => Some(LimitName::Disk),
            Self::Canceled => None,
        }
    }

    /// The flag that raises the limit; a person has none.
    pub const fn flag(&self) -> Option<&'static str> {
        match self {
            Self::WallTime { .. } => Some("--timeout"),
            Self::CpuTime { .. } => Some("--cpu-time"),
            Self::Memory { .. } => Some("--memory"),
            Self::Output { .. } => Some("--output-limit"),
            Self::Processes { .. } => Some("--pids"),
            Self::Disk { .. } => Some("--disk"),
            Self::Canceled => None,
        }
    }

    pub fn limit(&self) -> Option<LimitValue> {
        match self {
            Self::WallTime { limit } | Self::CpuTime { limit } => Some(LimitValue::seconds(*limit)),
            Self::Memory { limit } | Self::Output { limit, .. } | Self::Disk { limit, .. } => {
                Some(LimitValue::bytes(*limit))
            }
            Self::Processes { limit } => Some(LimitValue::processes(*limit)),
            Self::Canceled => None,
        }
    }

    /// One line for a person at the command line: the limit, its value, and the flag that raises it.
    pub fn explain(&self) -> String {
        match self.flag() {
            Some(flag) => format!("stopped: {}; raise it with {flag}", self.reason()),
            None => format!("stopped: {}", self.reason()),
        }
    }

    /// What happened, without advice: `memory limit of 64 MiB reached`.
    pub fn reason(&self) -> String {
        match self {
            Self::WallTime { limit } => {
                format!("wall time limit of {} reached", format_duration(*limit))
            }
            Self::CpuTime { limit } => {
                format!("CPU time limit of {} used up", format_duration(*limit))
            }
            Self::Memory { limit } => format!("memory limit of {limit} reached"),
            Self::Output { limit, stream } => {
                format!("output limit of {limit} reached while writing to {stream}")
            }
            Self::Processes { limit } => {
                format!("limit of {limit} processes and threads reached")
            }
            Self::Disk { limit, place } => format!("disk limit of {limit} reached in {place}"),
            Self::Canceled => "canceled by the caller".to_owned(),
        }
    }
}

impl SetupFailure {
    pub const fn code(&self) -> ErrorCode {
        match self.kind {
            SetupFailureKind::ProgramNotFound => ErrorCode::ProgramNotFound,
            SetupFailureKind::ProgramNotExecutable => ErrorCode::ProgramNotExecutable,
            SetupFailureKind::Sandbox => ErrorCode::SandboxSetupFailed,
        }
    }
}

impl LimitValue {
    /// Whole seconds stay whole numbers: `2`, not `2.0`.
    pub fn seconds(limit: Duration) -> Self {
        let value = match limit.subsec_nanos() {
            0 => Number::from(limit.as_secs()),
            // A duration is never NaN or infinite, so the fallback is unreachable.
            _ => Number::from_f64(limit.as_secs_f64()).unwrap_or(Number::from(limit.as_secs())),
        };
        Self {
            value,
            unit: LimitUnit::Seconds,
        }
    }

    pub fn bytes(limit: Bytes) -> Self {
        Self {
            value: limit.get().into(),
            unit: LimitUnit::Bytes,
        }
    }

    pub fn processes(limit: u64) -> Self {
        Self {
            value: limit.into(),
            unit: LimitUnit::Processes,
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        })
    }
}

impl fmt::Display for DiskPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scratch => "the scratch space (/tmp, /dev/shm, home)",
            Self::Workspace => "the workspace",
        })
    }
}

/// How a run ended, as records say it. Exit code and signal are fields of the record itself, so that each is found in one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EndingRecord {
    /// The program ended by itself; see `exit_code`.
    Exited,
    /// A signal ended the program, and no limit of ours sent it; see `signal`.
    Signaled,
    /// A limit or a person ended it.
    Stopped {
        #[schemars(extend("enum" = ["wall_time", "cpu_time", "memory", "output", "processes", "disk", "canceled"]))]
        cause: String,
        /// Null when a person stopped it.
        limit: Option<LimitValue>,
        detail: String,
    },
    /// It never ran: our fault or a missing program, never the program's doing.
    NeverStarted {
        code: ErrorCode,
        step: String,
        message: String,
        errno: Option<i32>,
    },
}

impl From<&Ending> for EndingRecord {
    fn from(ending: &Ending) -> Self {
        match ending {
            Ending::Exited { .. } => Self::Exited,
            Ending::Signaled { .. } => Self::Signaled,
            Ending::Stopped(cause) => Self::Stopped {
                cause: cause.name().to_owned(),
                limit: cause.limit(),
                detail: cause.explain(),
            },
            Ending::NeverStarted(failure) => Self::NeverStarted {
                code: failure.code(),
                step: failure.step.clone(),
                message: failure.message.clone(),
                errno: failure.errno,
            },
        }
    }
}

impl Serialize for Ending {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        EndingRecord::from(self).serialize(serializer)
    }
}

impl JsonSchema for Ending {
    fn schema_name() -> Cow<'static, str> {
        "Ending".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        EndingRecord::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MIB_64: Bytes = Bytes::new(64 << 20);

    fn every_cause() -> [StopCause; 7] {
        [
            StopCause::WallTime {
                limit: Duration::from_secs(2),
            },
            StopCause::CpuTime {
                limit: Duration::from_millis(1500),
            },
            StopCause::Memory { limit: MIB_64 },
            StopCause::Output {
                limit: Bytes::new(100 << 10),
                stream: Stream::Stdout,
            },
            StopCause::Processes { limit: 100 },
            StopCause::Disk {
                limit: Bytes::new(1 << 30),
                place: DiskPlace::Workspace,
            },
            StopCause::Canceled,
        ]
    }

    #[test]
    fn every_cause_explains_itself_in_one_line() {
        assert_eq!(
            every_cause().map(|cause| cause.explain()),
            [
                "stopped: wall time limit of 2 s reached; raise it with --timeout",
                "stopped: CPU time limit of 1.5 s used up; raise it with --cpu-time",
                "stopped: memory limit of 64 MiB reached; raise it with --memory",
                "stopped: output limit of 100 KiB reached while writing to stdout; raise it with --output-limit",
                "stopped: limit of 100 processes and threads reached; raise it with --pids",
                "stopped: disk limit of 1 GiB reached in the workspace; raise it with --disk",
                "stopped: canceled by the caller",
            ]
        );
    }

    #[test]
    fn endings_serialize_by_kind() {
        let stopped = Ending::Stopped(StopCause::Memory { limit: MIB_64 });
        let failure = SetupFailure {
            kind: SetupFailureKind::ProgramNotFound,
            step: "execve ./solve".into(),
            message: "no such file".into(),
            errno: Some(2),
        };
        for (ending, expected) in [
            (Ending::Exited { code: 3 }, json!({"kind": "exited"})),
            (Ending::Signaled { signal: 9 }, json!({"kind": "signaled"})),
            (
                stopped,
                json!({
                    "kind": "stopped",
                    "cause": "memory",
                    "limit": {"value": 67_108_864, "unit": "bytes"},
                    "detail": "stopped: memory limit of 64 MiB reached; raise it with --memory",
                }),
            ),
            (
                Ending::Stopped(StopCause::Canceled),
                json!({
                    "kind": "stopped",
                    "cause": "canceled",
                    "limit": null,
                    "detail": "stopped: canceled by the caller",
                }),
            ),
            (
                Ending::NeverStarted(failure),
                json!({
                    "kind": "never_started",
                    "code": "program.not_found",
                    "step": "execve ./solve",
                    "message": "no such file",
                    "errno": 2,
                }),
            ),
        ] {
            assert_eq!(serde_json::to_value(&ending).unwrap(), expected);
            assert_eq!(expected["kind"], ending.kind());
        }
    }

    #[test]
    fn limits_in_seconds_stay_whole_when_they_are() {
        assert_eq!(
            LimitValue::seconds(Duration::from_secs(2))
                .value
                .to_string(),
            "2"
        );
        assert_eq!(
            LimitValue::seconds(Duration::from_millis(1500))
                .value
                .to_string(),
            "1.5"
        );
    }
}
