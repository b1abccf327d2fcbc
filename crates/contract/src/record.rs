//! The whole record of a run as `cofferdam run --json` prints it. Holds what the engine measured; decides nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use data_encoding::BASE64;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ending::Ending;
use crate::enforcement::Enforcement;
use crate::envelope::CachedFrom;
use crate::network_record::NetworkRecord;
use crate::request::BackendName;
use crate::units::Bytes;
use crate::usage::Usage;

/// The record of one run.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RunRecord {
    /// The version of this format.
    #[schemars(extend("const" = RunRecord::SCHEMA))]
    pub schema: &'static str,
    pub run_id: String,
    pub backend: String,
    pub ending: Ending,
    /// What the program returned, when it ended by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended the program, such as `SIGKILL`, when no limit of ours sent it.
    pub signal: Option<String>,
    pub stdout: CapturedStream,
    pub stderr: CapturedStream,
    /// What the program said over its result channel; null where it had none.
    pub result: Option<CapturedStream>,
    pub usage: UsageRecord,
    /// Per limit, what enforced it.
    pub enforced_by: Enforcement,
    /// Per part of the isolation, what provides it: `network` by `netns`.
    pub isolation: BTreeMap<String, String>,
    pub denials: Vec<Denial>,
    /// What a copy-on-write workspace would have changed; null without one.
    pub changes: Option<Vec<Change>>,
    /// RFC 3339, UTC.
    #[schemars(extend("format" = "date-time"))]
    pub started_at: String,
    /// RFC 3339, UTC.
    #[schemars(extend("format" = "date-time"))]
    pub ended_at: String,
    /// What a WebAssembly program was stopped by when it did what no program may: `integer divide by zero`; null otherwise.
    pub trap: Option<String>,
    /// What was fixed for a run that was asked to be deterministic, and how; null otherwise.
    pub determinism: Option<BTreeMap<String, String>>,
    /// What went out and came in, and what was turned away; null for a run without network.
    pub network: Option<NetworkRecord>,
    /// Why this run is not in the history, or not whole; null when it is there, and when none was to be kept.
    pub unrecorded: Option<String>,
    /// The run that gave this answer first, where it is given again; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<CachedFrom>,
}

/// What the engine has in hand when a run is over; [`RunRecord::new`] derives the rest from it.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedRun {
    pub run_id: String,
    pub backend: BackendName,
    pub ending: Ending,
    pub stdout: CapturedStream,
    pub stderr: CapturedStream,
    pub result: Option<CapturedStream>,
    pub usage: Usage,
    pub enforced_by: Enforcement,
    pub isolation: BTreeMap<String, String>,
    pub denials: Vec<Denial>,
    pub changes: Option<Vec<Change>>,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
}

/// What a stream carried, without loss: text when it is text, base64 when it is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CapturedStream {
    pub data: String,
    pub encoding: Encoding,
    /// Whether the program wrote more than was kept.
    pub truncated: bool,
    /// How many bytes the program wrote, kept or not.
    pub original_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Encoding {
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

/// What a run used. A figure that nothing measured is null, never invented.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageRecord {
    pub wall_ms: f64,
    /// Of the whole process tree.
    pub cpu_ms: f64,
    pub memory_peak_bytes: Option<u64>,
    /// Processes and threads alive at once, at most.
    pub processes_peak: Option<u64>,
    /// Written to stdout and stderr, kept or not.
    pub output_bytes: u64,
    /// Scratch space in use at the end.
    pub disk_bytes: Option<u64>,
}

/// Something the program tried and was not allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Denial {
    pub kind: DenialKind,
    /// What was tried: `connect 10.0.0.1:80`, `ptrace`, `write /etc/passwd`.
    pub what: String,
    pub count: u64,
}

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum DenialKind {
    Syscall,
    Network,
    Filesystem,
}

/// One path that a copy-on-write workspace would have changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Relative to the workspace. Bytes that are not UTF-8 are written as `\xff`.
    pub path: String,
    pub kind: ChangeKind,
}

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

impl RunRecord {
    pub const SCHEMA: &'static str = "cofferdam.run/1";

    /// Exit code and signal come from the ending, so that they cannot disagree with it.
    pub fn new(run: FinishedRun) -> Self {
        let (exit_code, signal) = run.ending.code_and_signal();
        Self {
            schema: Self::SCHEMA,
            run_id: run.run_id,
            backend: run.backend.as_str().to_owned(),
            ending: run.ending,
            exit_code,
            signal,
            stdout: run.stdout,
            stderr: run.stderr,
            result: run.result,
            usage: run.usage.into(),
            enforced_by: run.enforced_by,
            isolation: run.isolation,
            denials: run.denials,
            changes: run.changes,
            started_at: run.started_at.to_string(),
            ended_at: run.ended_at.to_string(),
            trap: None,
            determinism: None,
            network: None,
            unrecorded: None,
            cached: None,
        }
    }
}

impl CapturedStream {
    /// `kept` is the beginning of the `original_bytes` that the program wrote.
    pub fn new(kept: &[u8], original_bytes: u64) -> Self {
        let (data, encoding) = match std::str::from_utf8(kept) {
            Ok(text) => (text.to_owned(), Encoding::Utf8),
            Err(_) => (BASE64.encode(kept), Encoding::Base64),
        };
        let truncated = u64::try_from(kept.len()).is_ok_and(|kept| kept < original_bytes);
        Self {
            data,
            encoding,
            truncated,
            original_bytes,
        }
    }

    /// A stream of which everything was kept.
    pub fn whole(bytes: &[u8]) -> Self {
        Self::new(bytes, u64::try_from(bytes.len()).unwrap_or(u64::MAX))
    }

    /// The bytes that were kept; `None` when `data` is not in the encoding that it claims.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match self.encoding {
            Encoding::Utf8 => Some(self.data.clone().into_bytes()),
            Encoding::Base64 => BASE64.decode(self.data.as_bytes()).ok(),
        }
    }
}

impl From<Usage> for UsageRecord {
    fn from(usage: Usage) -> Self {
        Self {
            wall_ms: milliseconds(usage.wall),
            cpu_ms: milliseconds(usage.cpu),
            memory_peak_bytes: usage.memory_peak.map(Bytes::get),
            processes_peak: usage.processes_peak,
            output_bytes: usage.output.get(),
            disk_bytes: usage.disk.map(Bytes::get),
        }
    }
}

/// Whole microseconds: more digits would be noise, and fewer would make short runs look equal.
fn milliseconds(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ending::StopCause;
    use crate::enforcement::{EnforcedBy, Enforcer, LimitName};
    use proptest::prelude::*;
    use serde_json::json;

    pub(crate) fn finished(ending: Ending) -> FinishedRun {
        FinishedRun {
            run_id: "run-1".into(),
            backend: BackendName::Native,
            ending,
            stdout: CapturedStream::whole(b"hi\n"),
            stderr: CapturedStream::new(&[0xff, 0xfe], 10),
            result: None,
            usage: Usage {
                wall: Duration::from_micros(1_234_567),
                cpu: Duration::from_nanos(1_500_999),
                memory_peak: Some(Bytes::new(4096)),
                processes_peak: None,
                output: Bytes::new(13),
                disk: None,
            },
            enforced_by: [(
                LimitName::Disk,
                EnforcedBy(vec![Enforcer::Tmpfs, Enforcer::Poll]),
            )]
            .into(),
            isolation: [("network".to_owned(), "netns".to_owned())].into(),
            denials: vec![Denial {
                kind: DenialKind::Syscall,
                what: "ptrace".into(),
                count: 2,
            }],
            changes: Some(vec![Change {
                path: "a/b".into(),
                kind: ChangeKind::Added,
            }]),
            started_at: Timestamp::from_millisecond(1_700_000_000_000).unwrap(),
            ended_at: Timestamp::from_millisecond(1_700_000_001_234).unwrap(),
        }
    }

    #[test]
    fn a_record_serializes_whole() {
        let record = RunRecord::new(finished(Ending::Exited { code: 3 }));
        assert_eq!(
            serde_json::to_value(&record).unwrap(),
            json!({
                "schema": "cofferdam.run/1",
                "run_id": "run-1",
                "backend": "native",
                "ending": {"kind": "exited"},
                "exit_code": 3,
                "signal": null,
                "stdout": {"data": "hi\n", "encoding": "utf-8", "truncated": false, "original_bytes": 3},
                "stderr": {"data": "//4=", "encoding": "base64", "truncated": true, "original_bytes": 10},
                "result": null,
                "usage": {
                    "wall_ms": 1234.567,
                    "cpu_ms": 1.5,
                    "memory_peak_bytes": 4096,
                    "processes_peak": null,
                    "output_bytes": 13,
                    "disk_bytes": null,
                },
                "enforced_by": {"disk": "tmpfs+poll"},
                "isolation": {"network": "netns"},
                "denials": [{"kind": "syscall", "what": "ptrace", "count": 2}],
                "changes": [{"path": "a/b", "kind": "added"}],
                "started_at": "2023-11-14T22:13:20Z",
                "ended_at": "2023-11-14T22:13:21.234Z",
                "trap": null,
                "determinism": null,
                "network": null,
                "unrecorded": null,
            })
        );
    }

    #[test]
    fn exit_code_and_signal_follow_the_ending() {
        let of = |ending| {
            let record = RunRecord::new(finished(ending));
            (record.exit_code, record.signal)
        };
        assert_eq!(of(Ending::Exited { code: 0 }), (Some(0), None));
        assert_eq!(
            of(Ending::Signaled { signal: 11 }),
            (None, Some("SIGSEGV".to_owned()))
        );
        assert_eq!(of(Ending::Stopped(StopCause::Canceled)), (None, None));
    }

    proptest! {
        #[test]
        fn captured_bytes_come_back_without_loss(bytes: Vec<u8>) {
            let stream = CapturedStream::whole(&bytes);
            prop_assert!(!stream.truncated);
            prop_assert_eq!(stream.bytes(), Some(bytes));
        }
    }
}
