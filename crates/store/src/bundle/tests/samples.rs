//! Runs to export, and the bundle that they make.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use cofferdam_contract::ending::{EndingRecord, Stream};
use cofferdam_contract::record::UsageRecord;
use jiff::Timestamp;
use serde_json::json;

use crate::bundle::export::write_bundle;
use crate::bundle::{
    Artifacts, ExportOptions, GitProvenance, IfPresent, Limits, Provenance, SigningKey,
};
use crate::database::KeptOutput;
use crate::error::StoreError;
use crate::id::RunId;
use crate::log::{Chunk, encode};
use crate::model::{
    Artifact, ArtifactKind, Closing, Digest, HostFacts, LogFacts, Opening, Outcome, RunKind,
    StoredRun, StreamSeen,
};

use super::memory::Memory;

pub(super) const FIRST: RunId = RunId::from_bytes([1; 16]);
pub(super) const SECOND: RunId = RunId::from_bytes([2; 16]);
pub(super) const INTERRUPTED: RunId = RunId::from_bytes([3; 16]);
pub(super) const RUNNING: RunId = RunId::from_bytes([4; 16]);

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap_or_default()
}

fn opening(run_id: RunId) -> Opening {
    Opening {
        run_id,
        started_at: at(0),
        command: vec!["sh".into(), "-c".into(), "true; echo ünï".into()],
        cwd: None,
        environment: vec!["PATH".into()],
        kind: RunKind::Command,
        backend: "native".into(),
        tags: BTreeMap::from([("why".into(), "test".into())]),
        parent: None,
        sender: None,
        execution_id: None,
        policy: json!({"memory": 1.1, "network": "denied", "z": [1, null], "a": u64::MAX}),
        payload: None,
        host: HostFacts {
            name: "here".into(),
            kernel: "6.1".into(),
            uid: 7,
        },
        version: "0.1.0".into(),
    }
}

pub(super) fn closing(artifacts: Vec<Artifact>) -> Closing {
    Closing {
        results: None,
        network: None,
        determinism: None,
        ended_at: at(1),
        ending: EndingRecord::Exited,
        exit_code: Some(0),
        signal: None,
        usage: UsageRecord {
            wall_ms: 1.000_000_000_000_000_2,
            cpu_ms: 0.1 + 0.2,
            memory_peak_bytes: None,
            processes_peak: Some(2),
            output_bytes: 3,
            disk_bytes: None,
        },
        enforced_by: BTreeMap::new(),
        isolation: BTreeMap::new(),
        denials: Vec::new(),
        changes: None,
        redactions: 0,
        stdout: StreamSeen { bytes: 3, lost: 0 },
        stderr: StreamSeen::default(),
        artifacts,
        left_out: Vec::new(),
    }
}

pub(super) fn artifact(path: &str, contents: &[u8]) -> Artifact {
    Artifact {
        path: path.into(),
        digest: Digest::of(contents),
        bytes: u64::try_from(contents.len()).unwrap_or_default(),
        media_type: "text/plain".into(),
        kind: ArtifactKind::Added,
        mode: 0o644,
    }
}

pub(super) fn run(id: RunId, outcome: Outcome) -> StoredRun {
    StoredRun {
        opening: opening(id),
        status: outcome.status(),
        outcome,
        log: LogFacts::default(),
    }
}

pub(super) fn log(bytes: &[u8]) -> Vec<u8> {
    encode(&[Chunk {
        stream: Stream::Stdout,
        at_micros: 5,
        bytes: bytes.to_vec(),
    }])
}

pub(super) const TEXT: &[u8] = b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
pub(super) const SHORT: &[u8] = b"x";

/// Two runs that share an artifact, one with a long output; one that was interrupted; one that goes on.
pub(super) fn store() -> Memory {
    let mut store = Memory::default();
    store.keep(TEXT);
    store.keep(SHORT);
    let long = store.keep(&log(&vec![b'o'; 40_000]));
    let both = vec![artifact("a", TEXT), artifact("b/c", SHORT)];
    let one = vec![artifact("other", TEXT)];
    let interrupted = Outcome::Interrupted { noticed_at: at(9) };
    let inline = |bytes| KeptOutput::Inline(log(bytes));
    for (id, outcome, output) in [
        (
            FIRST,
            Outcome::Ended(Box::new(closing(both))),
            inline(b"one"),
        ),
        (
            SECOND,
            Outcome::Ended(Box::new(closing(one))),
            KeptOutput::Object(long),
        ),
        (INTERRUPTED, interrupted, KeptOutput::Inline(Vec::new())),
        (RUNNING, Outcome::Running, inline(b"")),
    ] {
        store.runs.insert(id, (run(id, outcome), output));
    }
    store
}

pub(super) fn key() -> SigningKey {
    SigningKey::from_seed(&[9; 32])
}

pub(super) fn options() -> ExportOptions {
    ExportOptions {
        artifacts: Artifacts::With,
        sign: None,
        provenance: Provenance {
            host: "here".into(),
            user: None,
            exported_at: at(100),
            cofferdam_version: "0.1.0".into(),
            git: Some(GitProvenance {
                remote_url: Some("https://me:hunter2@host/r.git".into()),
                commit: None,
                branch: Some("main".into()),
            }),
        },
        if_present: IfPresent::Refuse,
        limits: Limits::default(),
    }
}

pub(super) fn signed() -> ExportOptions {
    ExportOptions {
        sign: Some(key()),
        ..options()
    }
}

/// The bytes of a bundle with these runs of [`store`].
pub(super) fn bundle(ids: &[RunId], options: &ExportOptions) -> Result<Vec<u8>, StoreError> {
    let store = store();
    let runs: Vec<StoredRun> = ids
        .iter()
        .filter_map(|id| store.runs.get(id).map(|(run, _)| run.clone()))
        .collect();
    let mut bytes = Cursor::new(Vec::new());
    let to = Path::new("x.cofferdam.zip");
    write_bundle(&store, &runs, options, to, &mut bytes, &mut |_| ())?;
    Ok(bytes.into_inner())
}
