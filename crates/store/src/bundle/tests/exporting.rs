//! What is written, and what is left when writing fails.

use std::fs;
use std::io::{self, Cursor, Seek, SeekFrom, Write};
use std::path::Path;

use crate::bundle::export::write_bundle;
use crate::bundle::{
    Artifacts, EntryName, ExportOptions, IfPresent, InspectOptions, Limits, Progress, export,
    inspect, inspect_bytes,
};
use crate::database::KeptOutput;
use crate::error::StoreError;
use crate::id::RunId;
use crate::model::Digest;

use super::samples::{
    FIRST, INTERRUPTED, RUNNING, SECOND, SHORT, TEXT, at, bundle, log, options, signed, store,
};
use super::zipped::{look, unzip};

#[test]
fn the_same_runs_give_the_same_bytes() {
    let ids = [FIRST, SECOND, INTERRUPTED];
    let once = bundle(&ids, &signed()).unwrap();
    assert_eq!(once, bundle(&ids, &signed()).unwrap());
    let mut later = signed();
    later.provenance.exported_at = at(101);
    assert_ne!(once, bundle(&ids, &later).unwrap());
}

#[test]
fn another_reader_finds_the_documented_files() {
    let bytes = bundle(&[FIRST, SECOND], &signed()).unwrap();
    let found = unzip(&bytes);
    let mut expected = vec![
        format!("artifacts/{}", Digest::of(TEXT)),
        format!("artifacts/{}", Digest::of(SHORT)),
        format!("output/{FIRST}.log"),
        format!("output/{SECOND}.log"),
        format!("runs/{FIRST}.json"),
        format!("runs/{SECOND}.json"),
        "manifest.json".to_owned(),
        "provenance.json".to_owned(),
        "signature.json".to_owned(),
    ];
    expected.sort();
    assert_eq!(found.keys().cloned().collect::<Vec<_>>(), expected);
    assert_eq!(found[&format!("artifacts/{}", Digest::of(TEXT))], TEXT);
    assert_eq!(found[&format!("output/{FIRST}.log")], log(b"one"));
    for (name, facts) in &look(&bytes).unwrap().manifest.files {
        assert_eq!(Digest::of(&found[&name.to_string()]), facts.sha256);
    }
    let provenance = String::from_utf8(found["provenance.json"].clone()).unwrap();
    assert!(provenance.contains("https://host/r.git"), "{provenance}");
    assert!(!provenance.contains("hunter2"));
}

#[test]
fn runs_that_go_on_are_skipped_and_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("b.cofferdam.zip");
    let mut seen = Vec::new();
    let ids = [SECOND, RUNNING, FIRST, FIRST];
    let done = export(&store(), &ids, &options(), &to, &mut |p| seen.push(p)).unwrap();
    assert_eq!(done.runs, [FIRST, SECOND]);
    assert_eq!(done.skipped.len(), 1);
    assert_eq!(done.skipped[0].run_id, RUNNING);
    assert_eq!(done.bytes, fs::metadata(&to).unwrap().len());
    assert_eq!(done.missing, []);
    assert!(seen.is_sorted_by_key(|p: &Progress| (p.files, p.bytes)));
    assert_eq!(seen.last().map(|p| (p.files, p.of_files)), Some((8, 8)));
    let read = inspect(&to, &InspectOptions::default()).unwrap();
    assert_eq!(read.runs.len(), 2);

    let none = export(
        &store(),
        &[RUNNING],
        &options(),
        &dir.path().join("c"),
        &mut |_| (),
    );
    assert!(none.unwrap_err().to_string().contains("has ended"));
    let none = export(
        &store(),
        &[],
        &options(),
        &dir.path().join("c"),
        &mut |_| (),
    );
    assert!(none.unwrap_err().to_string().contains("no run"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn what_is_missing_or_damaged_is_noted_and_the_rest_exported() {
    let mut source = store();
    source.objects.remove(&Digest::of(SHORT));
    source
        .objects
        .insert(Digest::of(TEXT), b"something else".to_vec());
    let KeptOutput::Object(long) = source.runs[&SECOND].1.clone() else {
        panic!("the second run has a long output");
    };
    source.unreadable.insert(long);
    source.runs.get_mut(&FIRST).unwrap().1 = KeptOutput::Inline(b"torn".to_vec());
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("b");
    let done = export(&source, &[FIRST, SECOND], &options(), &to, &mut |_| ()).unwrap();
    let mut found: Vec<_> = done
        .missing
        .iter()
        .map(|one| (one.path, one.digest, one.why.as_str()))
        .collect();
    found.sort();
    let mut expected = [
        (
            EntryName::Artifact(Digest::of(SHORT)),
            Digest::of(SHORT),
            "not in the store",
        ),
        (
            EntryName::Artifact(Digest::of(TEXT)),
            Digest::of(TEXT),
            "damaged in the store",
        ),
        (
            EntryName::Output(FIRST),
            Digest::of(b"torn"),
            "damaged in the history",
        ),
        (
            EntryName::Output(SECOND),
            long,
            "cannot be read in the store",
        ),
    ];
    expected.sort();
    assert_eq!(found, expected);
    let read = inspect(&to, &InspectOptions::default()).unwrap();
    assert_eq!(read.manifest.missing, done.missing);
    assert_eq!(read.runs.len(), 2);
}

#[test]
fn without_artifacts_there_are_none() {
    let options = ExportOptions {
        artifacts: Artifacts::Without,
        ..options()
    };
    let read = look(&bundle(&[FIRST], &options).unwrap()).unwrap();
    assert_eq!(read.manifest.artifact_bytes, 0);
    assert_eq!(read.manifest.missing.len(), 2);
    assert_eq!(read.runs[0], store().runs[&FIRST].0);
}

#[test]
fn a_file_that_is_there_stays_unless_it_may_be_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("b");
    fs::write(&to, "mine").unwrap();
    let refused = export(&store(), &[FIRST], &options(), &to, &mut |_| ());
    assert!(matches!(refused, Err(StoreError::Io { .. })));
    assert_eq!(fs::read(&to).unwrap(), b"mine");
    let replace = ExportOptions {
        if_present: IfPresent::Replace,
        ..options()
    };
    export(&store(), &[FIRST], &replace, &to, &mut |_| ()).unwrap();
    inspect(&to, &InspectOptions::default()).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn an_export_that_fails_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("b");
    let unknown = RunId::from_bytes([7; 16]);
    let failed = export(&store(), &[FIRST, unknown], &options(), &to, &mut |_| ());
    assert!(matches!(failed, Err(StoreError::NoSuchRun { .. })));
    let small = Limits {
        total_bytes: 1000,
        ..Limits::default()
    };
    let limited = ExportOptions {
        limits: small,
        ..options()
    };
    let failed = export(&store(), &[SECOND], &limited, &to, &mut |_| ());
    let failed = failed.unwrap_err().to_string();
    assert!(failed.contains("a bundle takes at most 1000"), "{failed}");
    // What would have to be held to read it, and no import would take.
    let limited = ExportOptions {
        limits: Limits {
            held_bytes: 100,
            ..Limits::default()
        },
        ..options()
    };
    let failed = export(&store(), &[SECOND], &limited, &to, &mut |_| ());
    assert!(failed.unwrap_err().to_string().contains("in parts"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let nowhere = dir.path().join("no/such/b");
    assert!(export(&store(), &[FIRST], &options(), &nowhere, &mut |_| ()).is_err());
}

/// A disk that takes so many bytes.
struct Disk {
    file: Cursor<Vec<u8>>,
    room: u64,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let after = self.file.position() + u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if after > self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Disk {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[test]
fn a_disk_that_is_full_at_any_byte_is_reported() {
    let source = store();
    let runs = [source.runs[&FIRST].0.clone()];
    let whole = bundle(&[FIRST], &options()).unwrap();
    let whole = u64::try_from(whole.len()).unwrap();
    let to = Path::new("b");
    // Every part is longer than the step, and the end is tried byte by byte.
    for room in (0..whole).step_by(17).chain(whole - 22..whole) {
        let disk = Disk {
            file: Cursor::default(),
            room,
        };
        match write_bundle(&source, &runs, &options(), to, disk, &mut |_| ()) {
            Err(StoreError::Io { source, path, .. }) => {
                assert_eq!((source.kind(), &*path), (io::ErrorKind::StorageFull, to));
            }
            other => panic!("room for {room} bytes: {other:?}"),
        }
    }
}

#[test]
fn contents_that_do_not_shrink_are_stored() {
    let mut noise = vec![0_u8; 4000];
    let mut state = 1_u32;
    for byte in &mut noise {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = state.to_be_bytes()[0];
    }
    let mut source = store();
    source.runs.get_mut(&FIRST).unwrap().1 = KeptOutput::Inline(log(&noise));
    let runs = [source.runs[&FIRST].0.clone()];
    let mut bytes = Cursor::new(Vec::new());
    write_bundle(
        &source,
        &runs,
        &options(),
        Path::new("b"),
        &mut bytes,
        &mut |_| (),
    )
    .unwrap();
    let bytes = bytes.into_inner();
    assert!(bytes.windows(noise.len()).any(|window| window == noise));
    inspect_bytes(&bytes, &InspectOptions::default()).unwrap();
}

#[test]
fn long_contents_are_read_twice_and_written_whole() {
    let mut source = store();
    let long = source.keep(&log(&vec![7; (8 << 20) + 100_000]));
    source.runs.get_mut(&FIRST).unwrap().1 = KeptOutput::Object(long);
    let runs = [source.runs[&FIRST].0.clone()];
    let mut bytes = Cursor::new(Vec::new());
    write_bundle(
        &source,
        &runs,
        &options(),
        Path::new("b"),
        &mut bytes,
        &mut |_| (),
    )
    .unwrap();
    let read = look(&bytes.into_inner()).unwrap();
    let facts = read.manifest.files[&EntryName::Output(FIRST)];
    assert_eq!((facts.sha256, facts.bytes), (long, (8 << 20) + 100_013));
}
