//! The messages, as documented JSON, with their addresses and keys.
//!
//! | message | path | key |
//! | --- | --- | --- |
//! | result | `/executions/ID/result` | `ID` |
//! | status | `/executions/ID/status` | `ID:status:STATUS` |
//! | heartbeat | `/executions/ID/heartbeat` | `ID:heartbeat:TIMESTAMP` |
//! | artifacts | `/executions/ID/artifacts` | `ID:artifacts` |
//! | container_ready | `/sessions/SID/container_ready` | `SID:container_ready:TIMESTAMP` |
//! | container_exited | `/sessions/SID/container_exited` | `SID:container_exited:TIMESTAMP` |
//!
//! The key of the result is the execution's id, as the protocol has it. A peer that remembers keys must not take the others for the result that it already has, so each has a key of its own,
//! which stays the same however often it is made: made again after a crash, it is the same message.
//!
//! No number here can be NaN or infinite: times are durations, sizes are integers, and a JSON value has no place for either.

use std::time::Duration;

use cofferdam_store::outbox::{Kind, Message, Peer};
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::Value;
use url::Url;

use crate::policy::{Policy, Refused, usable};

/// How an execution ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResultReport {
    pub status: ResultStatus,
    pub stdout: String,
    pub stderr: String,
    /// -1 where there is none.
    #[serde(serialize_with = "at_least_minus_one")]
    pub exit_code: i32,
    #[serde(serialize_with = "seconds")]
    pub execution_time: Duration,
    pub return_value: Option<Value>,
    pub metrics: Metrics,
    /// Paths relative to the workspace.
    pub artifacts: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultStatus {
    Success,
    Failed,
    Timeout,
    Crashed,
}

/// What was not measured is left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Metrics {
    #[serde(rename = "duration_ms", serialize_with = "milliseconds")]
    pub duration: Duration,
    #[serde(
        rename = "cpu_time_ms",
        serialize_with = "some_milliseconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub cpu_time: Option<Duration>,
    #[serde(
        rename = "peak_memory_mb",
        serialize_with = "some_mebibytes",
        skip_serializing_if = "Option::is_none"
    )]
    pub peak_memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_read_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_write_bytes: Option<u64>,
}

/// Where an execution stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum StatusReport {
    Running {
        started_at: Timestamp,
    },
    Timeout {
        timeout_at: Timestamp,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    Crashed {
        crashed_at: Timestamp,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeartbeatReport {
    pub timestamp: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArtifactsReport {
    pub artifacts: Vec<Artifact>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Artifact {
    pub path: String,
    pub size: u64,
    pub mime_type: String,
    #[serde(rename = "type")]
    pub kind: ArtifactKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub download_url: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactKind {
    Artifact,
    Log,
    Output,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContainerReady {
    pub container_id: String,
    pub pod_name: String,
    pub executor_port: u16,
    pub ready_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContainerExited {
    pub exit_code: i32,
    pub exited_at: Timestamp,
    pub exit_reason: ExitReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    Normal,
    Sigterm,
    Sigkill,
    OomKilled,
    Error,
}

/// Why no message could be made.
#[derive(Debug, thiserror::Error)]
pub enum BadMessage {
    #[error(
        "{field}: `{value}` cannot stand in a URL; 1 to 128 letters, digits, `_`, `-`, `.` can, beginning with a letter or digit"
    )]
    Id { field: &'static str, value: String },
    #[error("the message is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// The operator's control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlane {
    /// Ends with the prefix, and no slash.
    base: String,
    token: Option<String>,
}

impl ControlPlane {
    pub const PREFIX: &'static str = "/internal";

    /// `url` may have a path of its own, which the prefix follows. `token` is the name of a token.
    pub fn new(url: &str, prefix: &str, token: Option<&str>) -> Result<Self, Refused> {
        let mut parsed: Url = usable(url)?;
        let refused = |why: &str| Refused::Unusable {
            url: url.to_owned(),
            why: why.to_owned(),
        };
        if parsed.query().is_some() {
            return Err(refused("a query cannot be followed by a path"));
        }
        if !prefix.is_empty() && !prefix.starts_with('/') || prefix.contains(['?', '#']) {
            return Err(refused(
                "the prefix must be empty or begin with `/`, without `?` and `#`",
            ));
        }
        let path = format!("{}{prefix}", parsed.path().trim_end_matches('/'));
        parsed.set_path(path.trim_end_matches('/'));
        Ok(Self {
            base: parsed.as_str().trim_end_matches('/').to_owned(),
            token: token.map(str::to_owned),
        })
    }

    pub fn result(&self, execution: &str, report: &ResultReport) -> Result<Message, BadMessage> {
        self.of_execution(execution, Kind::Result, report, None)
    }

    pub fn status(&self, execution: &str, report: &StatusReport) -> Result<Message, BadMessage> {
        let status = match report {
            StatusReport::Running { .. } => "running",
            StatusReport::Timeout { .. } => "timeout",
            StatusReport::Crashed { .. } => "crashed",
        };
        let rest = format!("status:{status}");
        self.of_execution(execution, Kind::Status, report, Some(rest))
    }

    pub fn heartbeat(
        &self,
        execution: &str,
        report: &HeartbeatReport,
    ) -> Result<Message, BadMessage> {
        let rest = format!("heartbeat:{}", report.timestamp);
        self.of_execution(execution, Kind::Heartbeat, report, Some(rest))
    }

    pub fn artifacts(
        &self,
        execution: &str,
        report: &ArtifactsReport,
    ) -> Result<Message, BadMessage> {
        let rest = Some("artifacts".to_owned());
        self.of_execution(execution, Kind::Artifacts, report, rest)
    }

    pub fn container_ready(
        &self,
        session: &str,
        report: &ContainerReady,
    ) -> Result<Message, BadMessage> {
        let rest = format!("container_ready:{}", report.ready_at);
        self.of_session(session, Kind::ContainerReady, report, rest)
    }

    pub fn container_exited(
        &self,
        session: &str,
        report: &ContainerExited,
    ) -> Result<Message, BadMessage> {
        let rest = format!("container_exited:{}", report.exited_at);
        self.of_session(session, Kind::ContainerExited, report, rest)
    }

    fn of_execution(
        &self,
        id: &str,
        kind: Kind,
        report: &impl Serialize,
        key: Option<String>,
    ) -> Result<Message, BadMessage> {
        check_id("execution_id", id)?;
        let key = key.map_or_else(|| id.to_owned(), |rest| format!("{id}:{rest}"));
        self.message("executions", id, kind, report, key)
    }

    fn of_session(
        &self,
        id: &str,
        kind: Kind,
        report: &impl Serialize,
        key: String,
    ) -> Result<Message, BadMessage> {
        check_id("session_id", id)?;
        self.message("sessions", id, kind, report, format!("{id}:{key}"))
    }

    fn message(
        &self,
        collection: &str,
        id: &str,
        kind: Kind,
        report: &impl Serialize,
        idempotency_key: String,
    ) -> Result<Message, BadMessage> {
        Ok(Message {
            run: id.to_owned(),
            kind,
            url: format!("{}/{collection}/{id}/{}", self.base, kind.as_str()),
            idempotency_key,
            body: serde_json::to_vec(report)?,
            authorization: self.token.clone(),
            peer: Peer::ControlPlane,
            trace: None,
        })
    }
}

/// The result, to an address that the client gave with the run. Refused here when it is given, and checked again whenever it is used. No token is shown to it.
pub fn to_client(
    policy: &Policy,
    url: &str,
    execution: &str,
    report: &ResultReport,
) -> Result<Message, BadMessage> {
    check_id("execution_id", execution)?;
    Ok(Message {
        run: execution.to_owned(),
        kind: Kind::Result,
        url: policy.check(url)?.into(),
        idempotency_key: execution.to_owned(),
        body: serde_json::to_vec(report)?,
        authorization: None,
        peer: Peer::Client,
        trace: None,
    })
}

/// It becomes a part of a path and of a header.
pub fn check_id(field: &'static str, id: &str) -> Result<(), BadMessage> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let begins = id
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && id.len() <= 128 && id.bytes().all(fits) {
        return Ok(());
    }
    Err(BadMessage::Id {
        field,
        value: id.chars().take(140).collect(),
    })
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn at_least_minus_one<S: Serializer>(code: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i32((*code).max(-1))
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

fn milliseconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn some_milliseconds<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => milliseconds(time, serializer),
        None => serializer.serialize_none(),
    }
}

fn some_mebibytes<S: Serializer>(bytes: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        // In thousandths, so that the double has few digits.
        Some(bytes) => {
            let thousandths = u128::from(*bytes) * 1000 / (1 << 20);
            let thousandths = u64::try_from(thousandths).unwrap_or(u64::MAX);
            let whole = Duration::from_millis(thousandths);
            serializer.serialize_f64(whole.as_secs_f64())
        }
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
