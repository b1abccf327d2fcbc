//! The verdict on a run: which rule was broken, and the evidence. Taken from how the run ended, never guessed from usage.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ending::{Ending, LimitValue, StopCause};
use crate::record::{Denial, DenialKind};

/// The rule that was broken.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Violation {
    Timeout,
    CpuLimitExceeded,
    MemoryLimitExceeded,
    OutputTooLarge,
    MalformedResult,
    NetworkViolation,
    FilesystemViolation,
    ProcessLimitExceeded,
    DiskLimitExceeded,
    Canceled,
}

/// A broken rule with the limit that it is about and what shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    pub violation: Violation,
    /// Null when the rule is not a number.
    pub limit: Option<LimitValue>,
    pub evidence: String,
}

impl Violation {
    pub const ALL: [Self; 10] = [
        Self::Timeout,
        Self::CpuLimitExceeded,
        Self::MemoryLimitExceeded,
        Self::OutputTooLarge,
        Self::MalformedResult,
        Self::NetworkViolation,
        Self::FilesystemViolation,
        Self::ProcessLimitExceeded,
        Self::DiskLimitExceeded,
        Self::Canceled,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "TIMEOUT",
            Self::CpuLimitExceeded => "CPU_LIMIT_EXCEEDED",
            Self::MemoryLimitExceeded => "MEMORY_LIMIT_EXCEEDED",
            Self::OutputTooLarge => "OUTPUT_TOO_LARGE",
            Self::MalformedResult => "MALFORMED_RESULT",
            Self::NetworkViolation => "NETWORK_VIOLATION",
            Self::FilesystemViolation => "FILESYSTEM_VIOLATION",
            Self::ProcessLimitExceeded => "PROCESS_LIMIT_EXCEEDED",
            Self::DiskLimitExceeded => "DISK_LIMIT_EXCEEDED",
            Self::Canceled => "CANCELED",
        }
    }

    /// The rule that a stop with this [name](StopCause::name) broke.
    pub(crate) fn of_stop(cause: &str) -> Option<Self> {
        match cause {
            "wall_time" => Some(Self::Timeout),
            "cpu_time" => Some(Self::CpuLimitExceeded),
            "memory" => Some(Self::MemoryLimitExceeded),
            "output" => Some(Self::OutputTooLarge),
            "processes" => Some(Self::ProcessLimitExceeded),
            "disk" => Some(Self::DiskLimitExceeded),
            "canceled" => Some(Self::Canceled),
            _ => None,
        }
    }
}

impl Verdict {
    /// The verdict that the ending itself gives, if any. A program that succeeded in spite of a denial broke no rule.
    pub fn on(ending: &Ending, denials: &[Denial]) -> Option<Self> {
        match ending {
            Ending::Stopped(cause) => Some(Self::on_stop(cause)),
            Ending::Exited { code: 0 } | Ending::NeverStarted(_) => None,
            Ending::Exited { .. } | Ending::Signaled { .. } => Self::on_denials(denials),
        }
    }

    fn on_stop(cause: &StopCause) -> Self {
        let violation = match cause {
            StopCause::WallTime { .. } => Violation::Timeout,
            StopCause::CpuTime { .. } => Violation::CpuLimitExceeded,
            StopCause::Memory { .. } => Violation::MemoryLimitExceeded,
            StopCause::Output { .. } => Violation::OutputTooLarge,
            StopCause::Processes { .. } => Violation::ProcessLimitExceeded,
            StopCause::Disk { .. } => Violation::DiskLimitExceeded,
            StopCause::Canceled => Violation::Canceled,
        };
        Self {
            violation,
            limit: cause.limit(),
            evidence: cause.reason(),
        }
    }

    /// Network before file system, whatever the order in which they were noticed, so that the verdict is the same every time.
    fn on_denials(denials: &[Denial]) -> Option<Self> {
        let of_kind = |kind, violation| {
            let tried: Vec<_> = denials
                .iter()
                .filter(|denial| denial.kind == kind)
                .map(|denial| format!("{} ({} times)", denial.what, denial.count))
                .collect();
            (!tried.is_empty()).then(|| Self {
                violation,
                limit: None,
                evidence: format!(
                    "the program failed after it was denied: {}",
                    tried.join(", ")
                ),
            })
        };
        of_kind(DenialKind::Network, Violation::NetworkViolation)
            .or_else(|| of_kind(DenialKind::Filesystem, Violation::FilesystemViolation))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ending::{DiskPlace, SetupFailure, SetupFailureKind, Stream};
    use crate::units::Bytes;

    fn denial(kind: DenialKind, what: &str) -> Denial {
        Denial {
            kind,
            what: what.into(),
            count: 2,
        }
    }

    #[test]
    fn names_are_stable() {
        for violation in Violation::ALL {
            assert_eq!(serde_json::to_value(violation).unwrap(), violation.as_str());
        }
    }

    #[test]
    fn every_stop_has_its_violation_limit_and_evidence() {
        let limit = Duration::from_secs(2);
        let bytes = Bytes::new(1024);
        for (cause, violation, evidence) in [
            (
                StopCause::WallTime { limit },
                Violation::Timeout,
                "wall time limit of 2 s reached",
            ),
            (
                StopCause::CpuTime { limit },
                Violation::CpuLimitExceeded,
                "CPU time limit of 2 s used up",
            ),
            (
                StopCause::Memory { limit: bytes },
                Violation::MemoryLimitExceeded,
                "memory limit of 1 KiB reached",
            ),
            (
                StopCause::Output {
                    limit: bytes,
                    stream: Stream::Stderr,
                },
                Violation::OutputTooLarge,
                "output limit of 1 KiB reached while writing to stderr",
            ),
            (
                StopCause::Processes { limit: 3 },
                Violation::ProcessLimitExceeded,
                "limit of 3 processes and threads reached",
            ),
            (
                StopCause::Disk {
                    limit: bytes,
                    place: DiskPlace::Workspace,
                },
                Violation::DiskLimitExceeded,
                "disk limit of 1 KiB reached in the workspace",
            ),
            (
                StopCause::Canceled,
                Violation::Canceled,
                "canceled by the caller",
            ),
        ] {
            let expected = Verdict {
                violation,
                limit: cause.limit(),
                evidence: evidence.into(),
            };
            assert_eq!(Violation::of_stop(cause.name()), Some(violation));
            // Denials beside a stop change nothing: the stop is what ended it.
            let denials = [denial(DenialKind::Network, "connect 1.1.1.1:80")];
            assert_eq!(
                Verdict::on(&Ending::Stopped(cause), &denials),
                Some(expected)
            );
        }
    }

    #[test]
    fn a_denial_counts_only_when_the_program_failed() {
        let denials = [
            denial(DenialKind::Syscall, "ptrace"),
            denial(DenialKind::Filesystem, "write /etc/passwd"),
            denial(DenialKind::Network, "connect 1.1.1.1:80"),
        ];
        let network = Verdict {
            violation: Violation::NetworkViolation,
            limit: None,
            evidence: "the program failed after it was denied: connect 1.1.1.1:80 (2 times)".into(),
        };
        assert_eq!(Verdict::on(&Ending::Exited { code: 0 }, &denials), None);
        assert_eq!(
            Verdict::on(&Ending::Exited { code: 1 }, &denials),
            Some(network.clone())
        );
        assert_eq!(
            Verdict::on(&Ending::Signaled { signal: 6 }, &denials),
            Some(network)
        );
        let filesystem = Verdict::on(&Ending::Exited { code: 1 }, &denials[..2]).unwrap();
        assert_eq!(filesystem.violation, Violation::FilesystemViolation);
        assert_eq!(
            Verdict::on(&Ending::Exited { code: 1 }, &denials[..1]),
            None
        );
    }

    #[test]
    fn what_never_ran_broke_no_rule() {
        let kind = SetupFailureKind::Sandbox;
        let failure = SetupFailure {
            kind,
            step: String::new(),
            message: String::new(),
            errno: None,
        };
        assert_eq!(Verdict::on(&Ending::NeverStarted(failure), &[]), None);
    }
}
