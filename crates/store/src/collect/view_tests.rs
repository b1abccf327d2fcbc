//! Views of runs with hostile artifacts, and in places that are taken.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use cofferdam_contract::ending::EndingRecord;
use jiff::Timestamp;
use serde_json::Value;

use super::*;
use crate::collect::names::escape;
use crate::data_dir::DataDir;
use crate::model::{
    ArtifactKind, Closing, Digest, HostFacts, LogFacts, Opening, RunKind, Status, StreamSeen,
};

fn run(artifacts: Vec<Artifact>) -> StoredRun {
    let usage = cofferdam_contract::record::UsageRecord {
        wall_ms: 1.0,
        cpu_ms: 1.0,
        memory_peak_bytes: None,
        processes_peak: None,
        output_bytes: 0,
        disk_bytes: None,
    };
    StoredRun {
        opening: Opening {
            run_id: RunId::new(),
            started_at: Timestamp::UNIX_EPOCH,
            command: vec!["true".to_owned()],
            cwd: None,
            environment: Vec::new(),
            kind: RunKind::Command,
            backend: "native".to_owned(),
            tags: BTreeMap::new(),
            parent: None,
            sender: None,
            execution_id: None,
            policy: Value::Null,
            payload: None,
            host: HostFacts {
                name: "host".to_owned(),
                kernel: "6".to_owned(),
                uid: 1,
            },
            version: "0".to_owned(),
        },
        status: Status::Success,
        outcome: Outcome::Ended(Box::new(Closing {
            results: None,
            network: None,
            determinism: None,
            ended_at: Timestamp::UNIX_EPOCH,
            ending: EndingRecord::Exited,
            exit_code: Some(0),
            signal: None,
            usage,
            enforced_by: BTreeMap::new(),
            isolation: BTreeMap::new(),
            denials: Vec::new(),
            changes: None,
            redactions: 0,
            stdout: StreamSeen::default(),
            stderr: StreamSeen::default(),
            artifacts,
            left_out: Vec::new(),
        })),
        log: LogFacts::default(),
    }
}

fn artifact(path: &str, digest: Digest) -> Artifact {
    Artifact {
        path: path.to_owned(),
        digest,
        bytes: 0,
        media_type: String::new(),
        kind: ArtifactKind::Added,
        mode: 0o6777,
    }
}

struct Place {
    dir: tempfile::TempDir,
    objects: Objects,
    digest: Digest,
}

impl Place {
    fn new() -> Result<Self, StoreError> {
        let dir = tempfile::tempdir().map_err(StoreError::io("make", "a place"))?;
        let objects = Objects::open(&DataDir::at(dir.path().join("data")));
        let digest = objects.put(b"contents")?.digest;
        Ok(Self {
            dir,
            objects,
            digest,
        })
    }

    fn views(&self) -> PathBuf {
        self.dir.path().join("views")
    }

    fn write(&self, run: &StoredRun) -> Result<PathBuf, StoreError> {
        let chunks = [
            (Stream::Stdout, &b"out\xff\n"[..]),
            (Stream::Stderr, b"err\n"),
        ];
        let chunks = chunks.map(|(stream, bytes)| Chunk {
            stream,
            at_micros: 1,
            bytes: bytes.to_vec(),
        });
        write_view(run, &chunks, &self.objects, &self.views())
    }

    fn entries(&self) -> Vec<String> {
        let entries = fs::read_dir(self.views()).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn a_view_holds_the_run_and_latest_leads_to_it() {
    let place = Place::new().unwrap();
    let odd = b"sub/odd\n\xff\\name";
    let first = run(vec![
        artifact("report.txt", place.digest),
        artifact(&escape(odd), place.digest),
    ]);
    let at = place.write(&first).unwrap();
    let name = first.opening.run_id.to_string();
    assert_eq!(at, place.views().join(&name));
    let read = |path: &str| fs::read(at.join(path)).unwrap();
    let record: StoredRun = serde_json::from_slice(&read("run.json")).unwrap();
    assert_eq!(record, first);
    assert_eq!(
        (read("stdout.txt"), read("stderr.txt")),
        (b"out\xff\n".to_vec(), b"err\n".to_vec())
    );
    assert_eq!(read("artifacts/report.txt"), b"contents");
    let odd = at.join("artifacts").join(OsStr::from_bytes(odd));
    assert_eq!(fs::read(&odd).unwrap(), b"contents");
    assert_eq!(
        fs::metadata(&odd).unwrap().permissions().mode() & 0o7777,
        0o755
    );
    assert_eq!(
        fs::read_link(place.views().join("latest")).unwrap(),
        Path::new(&name)
    );

    let second = run(vec![]);
    place.write(&second).unwrap();
    let second = second.opening.run_id.to_string();
    assert_eq!(
        fs::read_link(place.views().join("latest")).unwrap(),
        Path::new(&second)
    );
    let mut expected = vec![name.clone(), second, "latest".to_owned()];
    expected.sort();
    assert_eq!(place.entries(), expected);

    fs::write(at.join("stale"), "x").unwrap();
    place.write(&first).unwrap();
    assert!(!at.join("stale").exists(), "replaced as a whole");
    assert_eq!(place.entries(), expected, "nothing is left beside it");
    assert_eq!(
        fs::read_link(place.views().join("latest")).unwrap(),
        Path::new(&name)
    );
}

#[test]
fn paths_that_lead_out_are_refused_and_nothing_is_written() {
    let place = Place::new().unwrap();
    for path in [
        "../escape",
        "/etc/escape",
        "a/../../escape",
        "",
        "a//b",
        "a/",
        "./a",
        "a/.",
        "nul\\x00",
        "\\x2e./a",
        "\\q",
        "a\nb",
    ] {
        let refused = place
            .write(&run(vec![artifact(path, place.digest)]))
            .unwrap_err();
        assert!(
            matches!(refused, StoreError::Invalid { .. }),
            "{path:?}: {refused}"
        );
    }
    let both = |a, b| run(vec![artifact(a, place.digest), artifact(b, place.digest)]);
    for twice in [both("a", "a"), both("a", "a/b"), both("a/b", "a")] {
        let refused = place.write(&twice).unwrap_err();
        assert!(
            refused.to_string().contains("another artifact"),
            "{refused}"
        );
    }
    let long = place.write(&run(vec![artifact(&"n".repeat(256), place.digest)]));
    assert!(long.unwrap_err().to_string().contains("too long"));
    let missing = place.write(&run(vec![artifact("a", Digest::of(b"never stored"))]));
    missing.unwrap_err();
    assert_eq!(place.entries(), Vec::<String>::new());
    assert!(!place.dir.path().join("escape").exists());
}

#[test]
fn what_is_somebody_elses_stays() {
    let place = Place::new().unwrap();
    let run = run(vec![]);
    let at = place.views().join(run.opening.run_id.to_string());
    fs::create_dir_all(&at).unwrap();
    fs::write(at.join("mine"), "x").unwrap();
    place.write(&run).unwrap_err();
    fs::write(at.join("run.json"), "{\"run_id\":\"another\"}").unwrap();
    place.write(&run).unwrap_err();
    assert!(at.join("mine").exists());
    fs::remove_dir_all(&at).unwrap();

    let elsewhere = tempfile::tempdir().unwrap();
    let record = serde_json::to_vec(&run).unwrap();
    fs::write(elsewhere.path().join("run.json"), record).unwrap();
    symlink(elsewhere.path(), &at).unwrap();
    place.write(&run).unwrap_err();
    assert_eq!(fs::read_link(&at).unwrap(), elsewhere.path());
    fs::remove_file(&at).unwrap();

    let latest = place.views().join("latest");
    fs::write(&latest, "a file of somebody's").unwrap();
    place.write(&run).unwrap_err();
    assert_eq!(fs::read(&latest).unwrap(), b"a file of somebody's");
    assert_eq!(place.entries(), ["latest"]);
}
