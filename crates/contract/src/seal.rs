//! Sealing: a draft becomes a payload with every limit spelled out and a digest over its canonical JSON. A [`Sealed`] can only be
//! made by sealing or by opening what somebody sealed, and opening refuses a payload that was changed on the way.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::canonical::{self, Digest};
use crate::codes::ErrorCode;
use crate::enforcement::LimitName;
use crate::ids::{self, Entropy};
use crate::limits::Limits;
use crate::payload::{ExecutionPayload, FilesystemWrite, WIRE_FIELDS, parse_utc};
use crate::problem::{Problem, Problems};
use crate::request::{BackendName, Request, Root, Workspace, WorkspaceAccess};
use crate::strict_json::{self, BadJson};
use crate::task::Task;
use crate::units::{Cap, parse_duration};

/// A payload in the making: an object that may leave out ids, times, digest and limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    map: Map<String, Value>,
}

/// A payload that passed validation and whose digest is right.
#[derive(Debug, Clone, PartialEq)]
pub struct Sealed {
    payload: ExecutionPayload,
    digest: Digest,
    /// As it was sealed, with the digest; what travels on.
    json: Value,
}

/// Why a payload could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Malformed(#[from] BadJson),
    #[error(
        "digest: the payload says {claimed} and its content gives {actual}: it was changed after sealing; get it again or seal it anew"
    )]
    DigestMismatch { claimed: Digest, actual: Digest },
    #[error(transparent)]
    Invalid(#[from] Problems),
}

/// The payload's deadline has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "deadline: {deadline} has passed (it is {now}); seal the payload again with a later deadline"
)]
pub struct Expired {
    pub deadline: Timestamp,
    pub now: Timestamp,
}

/// This kind of task does not become a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "task.kind: a task of kind `{kind}` cannot be run by this backend; use a backend that can, or write it as a command"
)]
pub struct UnsupportedTask {
    pub kind: &'static str,
}

/// Where a payload runs, which the payload itself does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPlace {
    pub backend: BackendName,
    pub root: Root,
    /// Writable only when the payload allows it.
    pub workspace: Option<PathBuf>,
    pub waived: Vec<LimitName>,
}

impl Draft {
    pub fn parse(bytes: &[u8]) -> Result<Self, OpenError> {
        Ok(Self::from_value(strict_json::parse(bytes)?)?)
    }

    pub fn from_value(value: Value) -> Result<Self, Problems> {
        into_object(value).map(|map| Self { map })
    }

    /// Fills in what was left out, checks everything and seals it. A digest that is already there is replaced.
    pub fn seal(self, now: Timestamp, entropy: Entropy) -> Result<Sealed, Problems> {
        // Milliseconds are what the id carries; finer times would only make payloads longer.
        let now = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
        let filled = fill(self.map, now, entropy);
        let payload = match ExecutionPayload::read(&filled) {
            Ok(payload) => payload,
            Err(found) => return Err(problems(found)),
        };
        let digest = digest_of(&filled)?;
        let mut json = filled;
        json.insert("digest".to_owned(), json!(digest));
        Ok(Sealed {
            payload,
            digest,
            json: Value::Object(json),
        })
    }
}

impl Sealed {
    /// Opens what somebody sealed. The digest is compared before anything else in the payload is believed.
    pub fn open(bytes: &[u8]) -> Result<Self, OpenError> {
        let map = into_object(strict_json::parse(bytes)?)?;
        let actual = digest_of(&map)?;
        let claimed = claimed_digest(&map);
        if let Ok(claimed) = claimed
            && claimed != actual
        {
            return Err(OpenError::DigestMismatch { claimed, actual });
        }
        match (ExecutionPayload::read(&map), claimed) {
            (Ok(payload), Ok(digest)) => Ok(Self {
                payload,
                digest,
                json: Value::Object(map),
            }),
            (read, claimed) => {
                let found = claimed
                    .err()
                    .into_iter()
                    .chain(read.err().into_iter().flatten());
                Err(OpenError::Invalid(problems(found.collect())))
            }
        }
    }

    pub fn payload(&self) -> &ExecutionPayload {
        &self.payload
    }

    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The payload as it travels, with its digest.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// What the program reads; empty when the task brings nothing.
    pub fn stdin(&self) -> &[u8] {
        match &self.payload.task {
            Task::Command(task) => task.stdin.as_deref().unwrap_or_default().as_bytes(),
            Task::Source(_) | Task::Wasm(_) | Task::Project(_) => &[],
        }
    }

    /// Everything that the program reads, of whatever kind the task is.
    pub fn input(&self) -> Vec<u8> {
        match &self.payload.task {
            Task::Wasm(task) => task.input(),
            Task::Command(_) | Task::Source(_) | Task::Project(_) => self.stdin().to_vec(),
        }
    }

    pub fn check_deadline(&self, now: Timestamp) -> Result<(), Expired> {
        let deadline = self.payload.deadline;
        if now < deadline {
            Ok(())
        } else {
            Err(Expired { deadline, now })
        }
    }

    /// The command of this payload as a request; [`Self::stdin`] goes beside it.
    pub fn to_request(&self, place: RunPlace) -> Result<Request, UnsupportedTask> {
        let request = match (&self.payload.task, place.backend) {
            (Task::Wasm(task), BackendName::Wasm) => task.to_request(),
            // A command names a program of the worker's; a stranger has no say in which of its files is read as a module.
            (Task::Command(_), BackendName::Wasm)
            | (Task::Wasm(_) | Task::Source(_) | Task::Project(_), _) => {
                return Err(UnsupportedTask {
                    kind: self.payload.task.kind(),
                });
            }
            (Task::Command(task), _) => task.to_request(),
        };
        let access = match self.payload.filesystem_write {
            FilesystemWrite::Allowed => WorkspaceAccess::ReadWrite,
            FilesystemWrite::Denied => WorkspaceAccess::ReadOnly,
        };
        Ok(Request {
            limits: self.payload.limits.clone(),
            waived: place.waived,
            network: self.payload.network.clone(),
            gpus: self.payload.gpus.clone(),
            root: place.root,
            workspace: place.workspace.map(|path| Workspace { path, access }),
            backend: place.backend,
            ..request
        })
    }
}

impl OpenError {
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Malformed(_) => ErrorCode::InputMalformedJson,
            Self::DigestMismatch { .. } => ErrorCode::PayloadDigestMismatch,
            Self::Invalid(_) => ErrorCode::PayloadInvalid,
        }
    }
}

/// The draft's own values and the defaults beside them, in the documented order. Unknown fields stay, to be reported.
fn fill(draft: Map<String, Value>, now: Timestamp, entropy: Entropy) -> Map<String, Value> {
    let created_at = draft
        .get("created_at")
        .and_then(Value::as_str)
        .and_then(parse_utc)
        .unwrap_or(now);
    let deadline = || {
        let given = draft
            .get("max_runtime_seconds")
            .and_then(|seconds| deadline_after(created_at, seconds));
        let default = || deadline_after(created_at, &default_seconds(Limits::DEFAULT.wall_time)?);
        given.or_else(default)
    };
    let default = |name: &str| match name {
        "payload_id" => Some(json!(ids::payload_id(now, entropy))),
        "expected_output_format" => Some(json!(true)),
        "max_runtime_seconds" => default_seconds(Limits::DEFAULT.wall_time),
        "max_cpu_seconds" => default_seconds(Limits::DEFAULT.cpu_time),
        "max_memory_mb" => Limits::DEFAULT
            .memory
            .at_most()
            .map(|b| json!(b.get() >> 20)),
        "max_output_size_kb" => Limits::DEFAULT
            .output
            .at_most()
            .map(|b| json!(b.get() >> 10)),
        "max_processes" => Limits::DEFAULT.processes.at_most().map(|n| json!(n)),
        "max_open_files" => Limits::DEFAULT.open_files.at_most().map(|n| json!(n)),
        "max_disk_mb" => Limits::DEFAULT.disk.at_most().map(|b| json!(b.get() >> 20)),
        "network_allowed" | "filesystem_write" => Some(json!(false)),
        "created_at" => Some(json!(now.to_string())),
        "deadline" => deadline(),
        _ => None,
    };
    let mut filled = Map::new();
    let known = WIRE_FIELDS
        .iter()
        .map(|field| field.name)
        .filter(|name| *name != "digest");
    for name in known {
        if let Some(value) = draft.get(name).cloned().or_else(|| default(name)) {
            filled.insert(name.to_owned(), value);
        }
    }
    for (name, value) in draft {
        if name != "digest" && !filled.contains_key(&name) {
            filled.insert(name, value);
        }
    }
    filled
}

fn default_seconds(cap: Cap<Duration>) -> Option<Value> {
    cap.at_most().map(|limit| json!(limit.as_secs()))
}

/// None when the seconds are unusable; that is reported once, where the limit itself is read.
fn deadline_after(created_at: Timestamp, seconds: &Value) -> Option<Value> {
    let limit = parse_duration(&seconds.as_number()?.to_string()).ok()?;
    if !Limits::WALL_TIME.contains(limit) {
        return None;
    }
    let deadline = created_at.checked_add(limit).ok()?;
    Some(json!(deadline.to_string()))
}

/// Over everything but the digest itself.
fn digest_of(map: &Map<String, Value>) -> Result<Digest, Problems> {
    let mut content = map.clone();
    content.shift_remove("digest");
    canonical::digest(&Value::Object(content)).map_err(|error| {
        Problems::one(Problem::new(
            "the payload",
            "a value without canonical JSON",
            error.to_string(),
        ))
    })
}

fn claimed_digest(map: &Map<String, Value>) -> Result<Digest, Problem> {
    const FIX: &str = "seal the payload again";
    let value = map
        .get("digest")
        .ok_or_else(|| Problem::new("digest", "nothing", format!("is missing; {FIX}")))?;
    let digest = value.as_str().and_then(|text| text.parse().ok());
    digest.ok_or_else(|| {
        Problem::new(
            "digest",
            value,
            format!("is not `sha256:` and 64 hexadecimal digits; {FIX}"),
        )
    })
}

fn into_object(value: Value) -> Result<Map<String, Value>, Problems> {
    match value {
        Value::Object(map) => Ok(map),
        other => Err(Problems::one(Problem::new(
            "the payload",
            other,
            "is not an object; write its fields in braces",
        ))),
    }
}

fn problems(found: Vec<Problem>) -> Problems {
    Problems::check(found).err().unwrap_or_else(|| {
        Problems::one(Problem::new(
            "the payload",
            "nothing",
            "was refused without a reason; please report this",
        ))
    })
}

#[cfg(test)]
#[path = "seal_tests.rs"]
mod tests;
