//! A run's whole record in a form that another machine reads back: whatever its ending was, our own faults included. Where it is from is for its reader to check.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ending::{Ending, SetupFailure, SetupFailureKind, StopCause};
use crate::enforcement::Enforcement;
use crate::envelope::CachedFrom;
use crate::kept_record::KeptEnding;
use crate::network_record::NetworkRecord;
use crate::record::{CapturedStream, Change, Denial, RunRecord, UsageRecord};

/// The record of a run that was made elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CarriedRecord {
    run_id: String,
    backend: String,
    ending: CarriedEnding,
    stdout: CapturedStream,
    stderr: CapturedStream,
    usage: UsageRecord,
    enforced_by: Enforcement,
    isolation: BTreeMap<String, String>,
    denials: Vec<Denial>,
    changes: Option<Vec<Change>>,
    started_at: String,
    ended_at: String,
    trap: Option<String>,
    determinism: Option<BTreeMap<String, String>>,
    network: Option<NetworkRecord>,
    cached: Option<CachedFrom>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CarriedEnding {
    Own(KeptEnding),
    Canceled,
    NeverStarted(CarriedFailure),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CarriedFailure {
    kind: FailureKind,
    step: String,
    message: String,
    errno: Option<i32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FailureKind {
    NotFound,
    NotExecutable,
    Sandbox,
}

impl CarriedRecord {
    /// All of it but what the program said over its result channel, which has been read by then, and what concerns one machine's history.
    pub fn of(record: &RunRecord) -> Self {
        Self {
            run_id: record.run_id.clone(),
            backend: record.backend.clone(),
            ending: CarriedEnding::of(&record.ending),
            stdout: record.stdout.clone(),
            stderr: record.stderr.clone(),
            usage: record.usage,
            enforced_by: record.enforced_by.clone(),
            isolation: record.isolation.clone(),
            denials: record.denials.clone(),
            changes: record.changes.clone(),
            started_at: record.started_at.clone(),
            ended_at: record.ended_at.clone(),
            trap: record.trap.clone(),
            determinism: record.determinism.clone(),
            network: record.network.clone(),
            cached: record.cached.clone(),
        }
    }

    /// Exit code and signal follow from the ending here too: whoever wrote this cannot have them disagree.
    pub fn record(self) -> RunRecord {
        let ending = self.ending.ending();
        let (exit_code, signal) = ending.code_and_signal();
        RunRecord {
            schema: RunRecord::SCHEMA,
            run_id: self.run_id,
            backend: self.backend,
            ending,
            exit_code,
            signal,
            stdout: self.stdout,
            stderr: self.stderr,
            result: None,
            usage: self.usage,
            enforced_by: self.enforced_by,
            isolation: self.isolation,
            denials: self.denials,
            changes: self.changes,
            started_at: self.started_at,
            ended_at: self.ended_at,
            trap: self.trap,
            determinism: self.determinism,
            network: self.network,
            unrecorded: None,
            cached: self.cached,
        }
    }
}

impl CarriedEnding {
    fn of(ending: &Ending) -> Self {
        match (KeptEnding::of(ending), ending) {
            (Some(own), _) => Self::Own(own),
            (None, Ending::NeverStarted(failure)) => Self::NeverStarted(CarriedFailure {
                kind: match failure.kind {
                    SetupFailureKind::ProgramNotFound => FailureKind::NotFound,
                    SetupFailureKind::ProgramNotExecutable => FailureKind::NotExecutable,
                    SetupFailureKind::Sandbox => FailureKind::Sandbox,
                },
                step: failure.step.clone(),
                message: failure.message.clone(),
                errno: failure.errno,
            }),
            // Nothing else has no form of its own.
            (None, Ending::Stopped(_) | Ending::Exited { .. } | Ending::Signaled { .. }) => {
                Self::Canceled
            }
        }
    }

    fn ending(self) -> Ending {
        match self {
            Self::Own(own) => own.again(),
            Self::Canceled => Ending::Stopped(StopCause::Canceled),
            Self::NeverStarted(failure) => Ending::NeverStarted(SetupFailure {
                kind: match failure.kind {
                    FailureKind::NotFound => SetupFailureKind::ProgramNotFound,
                    FailureKind::NotExecutable => SetupFailureKind::ProgramNotExecutable,
                    FailureKind::Sandbox => SetupFailureKind::Sandbox,
                },
                step: failure.step,
                message: failure.message,
                errno: failure.errno,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ending::Stream;
    use crate::envelope::tests::run;
    use crate::units::Bytes;

    #[test]
    fn a_record_comes_back_as_it_was_whatever_its_ending() {
        let failure = |kind| {
            Ending::NeverStarted(SetupFailure {
                kind,
                step: "mount".into(),
                message: "no".into(),
                errno: Some(2),
            })
        };
        for ending in [
            Ending::Exited { code: 3 },
            Ending::Signaled { signal: 11 },
            Ending::Stopped(StopCause::Canceled),
            Ending::Stopped(StopCause::Output {
                limit: Bytes::new(7),
                stream: Stream::Stderr,
            }),
            failure(SetupFailureKind::Sandbox),
            failure(SetupFailureKind::ProgramNotFound),
            failure(SetupFailureKind::ProgramNotExecutable),
        ] {
            let mut finished = run(ending, b"out", b"\xff");
            finished.stdout = CapturedStream::new(b"ou", 3);
            let record = RunRecord::new(finished);
            let text = serde_json::to_string(&CarriedRecord::of(&record)).unwrap();
            let read: CarriedRecord = serde_json::from_str(&text).unwrap();
            assert_eq!(read.record(), record);
        }
    }
}
