//! What is kept of a run. Holds data and derives a run's status from it; reads and writes nothing.
//!
//! Every text in here has been through redaction before it got here, and bytes that are not UTF-8 are written as `\xff`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use cofferdam_contract::ending::EndingRecord;
use cofferdam_contract::enforcement::Enforcement;
use cofferdam_contract::network_record::NetworkRecord;
use cofferdam_contract::record::{Change, Denial, UsageRecord};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::RunId;

/// What is known of a run when it begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opening {
    pub run_id: RunId,
    pub started_at: Timestamp,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it starts, as seen inside.
    pub cwd: Option<String>,
    /// The names of the variables that were set; never a value.
    pub environment: Vec<String>,
    pub kind: RunKind,
    pub backend: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// The id of the token that sent it to a daemon; `None` for what no daemon ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// The sender's own name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
    /// What was allowed: limits, network, root, workspace, mounts, waivers.
    pub policy: Value,
    /// The sealed payload, where one was executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    pub host: HostFacts,
    /// The version of cofferdam.
    pub version: String,
}

/// What asked for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    Command,
    Payload,
    Build,
    Test,
}

/// Where it ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    pub name: String,
    pub kernel: String,
    pub uid: u32,
}

/// What is known of a run when it has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Closing {
    pub ended_at: Timestamp,
    pub ending: EndingRecord,
    pub exit_code: Option<i32>,
    pub signal: Option<String>,
    pub usage: UsageRecord,
    pub enforced_by: Enforcement,
    pub isolation: BTreeMap<String, String>,
    pub denials: Vec<Denial>,
    pub changes: Option<Vec<Change>>,
    /// How many secrets were taken out of output, command and payload.
    pub redactions: u64,
    pub stdout: StreamSeen,
    pub stderr: StreamSeen,
    pub artifacts: Vec<Artifact>,
    /// Files that were new or changed and are not kept, with the reason.
    pub left_out: Vec<LeftOut>,
    /// What the tests of a project told, where that is what was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<serde_json::Value>,
    /// What went out and came in, where the run had a network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkRecord>,
    /// What was fixed, and how, where the run had to give the same each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub determinism: Option<BTreeMap<String, String>>,
}

/// What a program wrote to one stream, before anything was taken out or cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamSeen {
    pub bytes: u64,
    /// How many of them never reached the journal: it was full, or the disk was.
    pub lost: u64,
}

/// A file that the run left in its workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Relative to the workspace, `/` between names. Bytes that are not UTF-8 are written as `\xff`, and a backslash as `\\`.
    pub path: String,
    pub digest: Digest,
    pub bytes: u64,
    pub media_type: String,
    pub kind: ArtifactKind,
    /// Permission bits.
    pub mode: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactKind {
    Added,
    Changed,
}

/// A file that is not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub path: String,
    pub why: String,
}

/// SHA-256 of some contents, which is also their name in the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Outcome {
    Running,
    Ended(Box<Closing>),
    /// Whoever ran it was killed, or the machine was: how the program ended is not known.
    Interrupted {
        noticed_at: Timestamp,
    },
}

/// One word for how a run stands, to search by and to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Running,
    /// Exit code 0.
    Success,
    /// Another exit code, or a signal.
    Failure,
    /// Stopped by the wall time or CPU time limit.
    Timeout,
    /// Stopped by another limit.
    Limit,
    Canceled,
    /// The program never ran.
    NeverStarted,
    Interrupted,
}

/// How much of a run's output is kept, and what was done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogFacts {
    pub stdout: StreamKept,
    pub stderr: StreamKept,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamKept {
    /// What is kept, after redaction and truncation.
    pub bytes: u64,
    /// What was cut out of it.
    pub removed: u64,
    pub binary: bool,
}

/// Everything that is kept of one run, apart from its output and the contents of its artifacts. This is what `runs show --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredRun {
    #[serde(flatten)]
    pub opening: Opening,
    pub status: Status,
    #[serde(flatten)]
    pub outcome: Outcome,
    pub log: LogFacts,
}

impl Outcome {
    pub fn status(&self) -> Status {
        let closing = match self {
            Self::Running => return Status::Running,
            Self::Interrupted { .. } => return Status::Interrupted,
            Self::Ended(closing) => closing,
        };
        match &closing.ending {
            EndingRecord::Exited if closing.exit_code == Some(0) => Status::Success,
            EndingRecord::Exited | EndingRecord::Signaled => Status::Failure,
            EndingRecord::NeverStarted { .. } => Status::NeverStarted,
            EndingRecord::Stopped { cause, .. } => match cause.as_str() {
                "wall_time" | "cpu_time" => Status::Timeout,
                "canceled" => Status::Canceled,
                _ => Status::Limit,
            },
        }
    }

    /// The limit that stopped it, or `canceled`.
    pub fn cause(&self) -> Option<&str> {
        match self {
            Self::Ended(closing) => match &closing.ending {
                EndingRecord::Stopped { cause, .. } => Some(cause),
                EndingRecord::Exited
                | EndingRecord::Signaled
                | EndingRecord::NeverStarted { .. } => None,
            },
            Self::Running | Self::Interrupted { .. } => None,
        }
    }
}

impl Status {
    pub const ALL: [Self; 8] = [
        Self::Running,
        Self::Success,
        Self::Failure,
        Self::Timeout,
        Self::Limit,
        Self::Canceled,
        Self::NeverStarted,
        Self::Interrupted,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Timeout => "timeout",
            Self::Limit => "limit",
            Self::Canceled => "canceled",
            Self::NeverStarted => "never_started",
            Self::Interrupted => "interrupted",
        }
    }

    /// Failures are kept longer.
    pub const fn is_failure(self) -> bool {
        match self {
            Self::Running | Self::Success | Self::Canceled => false,
            Self::Failure
            | Self::Timeout
            | Self::Limit
            | Self::NeverStarted
            | Self::Interrupted => true,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl RunKind {
    pub const ALL: [Self; 4] = [Self::Command, Self::Payload, Self::Build, Self::Test];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Payload => "payload",
            Self::Build => "build",
            Self::Test => "test",
        }
    }
}

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// A text that is not 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a SHA-256 digest")]
pub struct NotADigest {
    pub text: String,
}

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let bytes = data_encoding::HEXLOWER.decode(text.as_bytes()).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| NotADigest {
            text: text.to_owned(),
        })
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
