//! Runs for tests: what the history would give.

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::ending::{Ending, EndingRecord, StopCause, Stream};
use cofferdam_contract::enforcement::{EnforcedBy, Enforcer, LimitName};
use cofferdam_contract::record::{Denial, DenialKind, UsageRecord};
use cofferdam_contract::units::Bytes;
use cofferdam_store::RunId;
use cofferdam_store::database::RunSummary;
use cofferdam_store::log::Chunk;
use cofferdam_store::model::{
    Artifact, ArtifactKind, Closing, Digest, HostFacts, LeftOut, LogFacts, Opening, Outcome,
    RunKind, StoredRun, StreamKept, StreamSeen,
};
use jiff::Timestamp;
use serde_json::json;

pub(crate) const STARTED: Timestamp = Timestamp::constant(1_763_200_000, 0);
pub(crate) const ENDED: Timestamp = Timestamp::constant(1_763_200_001, 234_000_000);
/// Three minutes after the start.
pub(crate) const NOW: Timestamp = Timestamp::constant(1_763_200_180, 0);

pub(crate) fn id(last: u8) -> RunId {
    let mut bytes = *RunId::floor(STARTED).as_bytes();
    bytes[6] = 0x70;
    bytes[8] = 0x80;
    bytes[15] = last;
    RunId::from_bytes(bytes)
}

pub(crate) fn opening() -> Opening {
    Opening {
        run_id: id(1),
        started_at: STARTED,
        command: ["sh", "-c", "make all"].map(str::to_owned).to_vec(),
        cwd: Some("/work".to_owned()),
        environment: ["CI", "LANG"].map(str::to_owned).to_vec(),
        kind: RunKind::Command,
        backend: "native".to_owned(),
        tags: [("branch".to_owned(), "main".to_owned())].into(),
        parent: Some(id(0)),
        sender: None,
        execution_id: None,
        policy: json!({"limits": {"memory_bytes": 64 << 20}, "network": "denied", "mounts": []}),
        payload: None,
        host: HostFacts {
            name: "box".to_owned(),
            kernel: "6.1.0".to_owned(),
            uid: 1000,
        },
        version: "0.1.0".to_owned(),
    }
}

pub(crate) fn closing(ending: EndingRecord) -> Closing {
    Closing {
        ended_at: ENDED,
        ending,
        exit_code: None,
        signal: None,
        usage: UsageRecord {
            wall_ms: 1234.0,
            cpu_ms: 900.0,
            memory_peak_bytes: Some(12 << 20),
            processes_peak: Some(7),
            output_bytes: 2048,
            disk_bytes: None,
        },
        enforced_by: [(LimitName::Memory, EnforcedBy(vec![Enforcer::Cgroup2]))].into(),
        isolation: [("network".to_owned(), "netns".to_owned())].into(),
        denials: vec![Denial {
            kind: DenialKind::Syscall,
            what: "ptrace".to_owned(),
            count: 2,
        }],
        changes: None,
        redactions: 1,
        stdout: StreamSeen {
            bytes: 2000,
            lost: 0,
        },
        stderr: StreamSeen { bytes: 48, lost: 0 },
        artifacts: vec![artifact("dist/app.js", b"1")],
        results: None,
        network: None,
        determinism: None,
        left_out: vec![LeftOut {
            path: "big.bin".to_owned(),
            why: "larger than 10 MiB".to_owned(),
        }],
    }
}

pub(crate) fn artifact(path: &str, contents: &[u8]) -> Artifact {
    Artifact {
        path: path.to_owned(),
        digest: Digest::of(contents),
        bytes: 1536,
        media_type: "text/javascript".to_owned(),
        kind: ArtifactKind::Added,
        mode: 0o644,
    }
}

pub(crate) fn stored(outcome: Outcome) -> StoredRun {
    StoredRun {
        opening: opening(),
        status: outcome.status(),
        outcome,
        log: LogFacts {
            stdout: StreamKept {
                bytes: 2000,
                removed: 0,
                binary: false,
            },
            stderr: StreamKept {
                bytes: 48,
                removed: 0,
                binary: false,
            },
        },
    }
}

fn ended(closing: Closing) -> StoredRun {
    stored(Outcome::Ended(Box::new(closing)))
}

pub(crate) fn exited(code: i32) -> StoredRun {
    ended(Closing {
        exit_code: Some(code),
        ..closing(EndingRecord::Exited)
    })
}

pub(crate) fn signaled() -> StoredRun {
    ended(Closing {
        signal: Some("SIGSEGV".to_owned()),
        ..closing(EndingRecord::Signaled)
    })
}

pub(crate) fn out_of_memory() -> StoredRun {
    let limit = Bytes::new(64 << 20);
    let ending = Ending::Stopped(StopCause::Memory { limit });
    ended(closing(EndingRecord::from(&ending)))
}

pub(crate) fn never_started() -> StoredRun {
    ended(closing(EndingRecord::NeverStarted {
        code: ErrorCode::ProgramNotFound,
        step: "execve nope".to_owned(),
        message: "`nope` is not found".to_owned(),
        errno: Some(2),
    }))
}

pub(crate) fn running() -> StoredRun {
    stored(Outcome::Running)
}

pub(crate) fn interrupted() -> StoredRun {
    stored(Outcome::Interrupted { noticed_at: NOW })
}

pub(crate) fn summary(run: &StoredRun, command: &str) -> RunSummary {
    let closing = match &run.outcome {
        Outcome::Ended(closing) => Some(closing),
        Outcome::Running | Outcome::Interrupted { .. } => None,
    };
    RunSummary {
        run_id: run.opening.run_id,
        short_id: run.opening.run_id.to_string().chars().take(13).collect(),
        status: run.status,
        cause: run.outcome.cause().map(str::to_owned),
        exit_code: closing.and_then(|closing| closing.exit_code),
        signal: closing.and_then(|closing| closing.signal.clone()),
        started_at: run.opening.started_at,
        duration_ms: closing.map(|closing| closing.usage.wall_ms),
        kind: run.opening.kind,
        backend: run.opening.backend.clone(),
        command: command.to_owned(),
        tags: run.opening.tags.clone(),
        parent: run.opening.parent,
        artifacts: closing.map_or(0, |closing| closing.artifacts.len() as u64),
        output_bytes: 2048,
    }
}

pub(crate) fn out(at_micros: u64, bytes: &[u8]) -> Chunk {
    Chunk {
        stream: Stream::Stdout,
        at_micros,
        bytes: bytes.to_vec(),
    }
}

pub(crate) fn err(at_micros: u64, bytes: &[u8]) -> Chunk {
    Chunk {
        stream: Stream::Stderr,
        ..out(at_micros, bytes)
    }
}
