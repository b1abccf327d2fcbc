//! What arrives: all of it, or nothing.

use std::fs;
use std::path::PathBuf;

use crate::bundle::{
    Existing, ExportOptions, ImportMode, ImportOptions, Imported, InspectOptions, SigningKey,
    Trust, export, import, inspect,
};
use crate::database::KeptOutput;
use crate::error::StoreError;

use super::memory::Memory;
use super::samples::{
    FIRST, INTERRUPTED, SECOND, SHORT, TEXT, bundle, key, options, signed, store,
};
use crate::model::Digest;

struct Here {
    dir: tempfile::TempDir,
    path: PathBuf,
}

fn here(options: &ExportOptions) -> Option<Here> {
    let dir = tempfile::tempdir().ok()?;
    let path = dir.path().join("b.cofferdam.zip");
    let ids = [FIRST, SECOND, INTERRUPTED];
    export(&store(), &ids, options, &path, &mut |_| ()).ok()?;
    Some(Here { dir, path })
}

fn take(target: &mut Memory, here: &Here, options: &ImportOptions) -> Result<Imported, StoreError> {
    import(target, &here.path, options, &mut |_| ())
}

fn why(result: Result<Imported, StoreError>) -> String {
    match result {
        Err(StoreError::BundleRefused { why }) => why,
        other => format!("{other:?}"),
    }
}

#[test]
fn what_is_imported_is_what_was_exported() {
    let here = here(&signed()).unwrap();
    let mut target = Memory::default();
    let done = take(&mut target, &here, &ImportOptions::default()).unwrap();
    assert_eq!(done.added, [FIRST, SECOND, INTERRUPTED]);
    assert_eq!(done.objects, 3);
    assert_eq!(done.bundle.signed_by, Some(key().public_key()));
    let mut expected = store();
    expected.runs.remove(&super::samples::RUNNING);
    assert_eq!(target, expected);

    let again = here.dir.path().join("again");
    export(&target, &target.ids(), &signed(), &again, &mut |_| ()).unwrap();
    assert_eq!(fs::read(&again).unwrap(), fs::read(&here.path).unwrap());
}

#[test]
fn what_is_known_and_the_same_is_skipped() {
    let here = here(&options()).unwrap();
    let mut target = store();
    target.objects.remove(&Digest::of(TEXT));
    let done = take(&mut target, &here, &ImportOptions::default()).unwrap();
    assert_eq!(done.added, []);
    assert_eq!(done.same, [FIRST, SECOND, INTERRUPTED]);
    // What was lost here is brought back.
    assert_eq!(done.objects, 1);
    assert_eq!(target, store());
}

#[test]
fn what_is_known_and_differs_is_refused_or_left() {
    let here = here(&options()).unwrap();
    let mut other_record = store();
    let (run, _) = other_record.runs.get_mut(&SECOND).unwrap();
    run.opening.command = vec!["other".into()];
    let mut other_output = store();
    let (_, output) = other_output.runs.get_mut(&SECOND).unwrap();
    *output = KeptOutput::Inline(Vec::new());
    for mut target in [other_record, other_output] {
        target.runs.remove(&FIRST);
        let before = target.clone();
        let refused = why(take(&mut target, &here, &ImportOptions::default()));
        assert!(refused.contains("with other contents"), "{refused}");
        assert_eq!(target, before);
        let skip = ImportOptions {
            existing: Existing::Skip,
            ..ImportOptions::default()
        };
        let done = take(&mut target, &here, &skip).unwrap();
        assert_eq!(done.added, [FIRST]);
        assert_eq!(done.kept_ours, [SECOND]);
        assert_eq!(target.runs[&SECOND], before.runs[&SECOND]);
        assert_eq!(target.runs[&FIRST], store().runs[&FIRST]);
    }
}

#[test]
fn a_dry_run_writes_nothing() {
    let here = here(&options()).unwrap();
    let mut target = Memory::default();
    let dry = ImportOptions {
        mode: ImportMode::DryRun,
        ..ImportOptions::default()
    };
    let said = take(&mut target, &here, &dry).unwrap();
    assert_eq!(target, Memory::default());
    let done = take(&mut target, &here, &ImportOptions::default()).unwrap();
    assert_eq!(said, done);
}

#[test]
fn when_recording_fails_no_run_is_there() {
    let here = here(&options()).unwrap();
    let mut target = Memory {
        refuses_to_record: true,
        ..Memory::default()
    };
    assert!(take(&mut target, &here, &ImportOptions::default()).is_err());
    assert!(target.runs.is_empty());
    // The contents that came first are in nobody's way at the next attempt.
    target.refuses_to_record = false;
    take(&mut target, &here, &ImportOptions::default()).unwrap();
    assert_eq!(target.runs.len(), 3);
}

#[test]
fn what_is_missing_stays_missing() {
    let mut source = store();
    source.objects.remove(&Digest::of(SHORT));
    let KeptOutput::Object(long) = source.runs[&SECOND].1.clone() else {
        panic!("the second run has a long output");
    };
    source.objects.remove(&long);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("b");
    export(&source, &[FIRST, SECOND], &options(), &path, &mut |_| ()).unwrap();
    let mut target = Memory::default();
    import(&mut target, &path, &ImportOptions::default(), &mut |_| ()).unwrap();
    for id in [FIRST, SECOND] {
        assert_eq!(target.runs[&id], source.runs[&id]);
    }
    assert_eq!(target.objects, source.objects);
}

#[test]
fn only_trusted_keys_are_taken() {
    let trusting = |trust| ImportOptions {
        trust,
        ..ImportOptions::default()
    };
    let ours = key().public_key();
    let theirs = SigningKey::from_seed(&[8; 32]).public_key();
    let (unsigned, signed) = (here(&options()).unwrap(), here(&signed()).unwrap());
    let target = &mut Memory::default();
    let not_signed = "not signed";
    for trust in [Trust::Signed, Trust::Keys(vec![ours])] {
        let refused = why(take(target, &unsigned, &trusting(trust)));
        assert!(refused.contains(not_signed), "{refused}");
    }
    for keys in [vec![], vec![theirs]] {
        let refused = why(take(target, &signed, &trusting(Trust::Keys(keys))));
        assert!(refused.contains("not a trusted key"), "{refused}");
    }
    assert_eq!(*target, Memory::default());
    for trust in [
        Trust::Anybody,
        Trust::Signed,
        Trust::Keys(vec![theirs, ours]),
    ] {
        let mut target = Memory::default();
        take(&mut target, &signed, &trusting(trust)).unwrap();
    }
}

#[test]
fn what_is_no_file_is_refused_without_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    for path in [dir.path(), pipe.as_path()] {
        let error = inspect(path, &InspectOptions::default()).unwrap_err();
        assert!(error.to_string().contains("not a file"), "{error}");
    }
    let gone = inspect(&dir.path().join("gone"), &InspectOptions::default());
    assert!(matches!(gone, Err(StoreError::Io { .. })));
}

#[test]
fn a_bundle_that_changes_while_it_is_imported_brings_no_run() {
    struct Swapping {
        memory: Memory,
        path: PathBuf,
    }
    impl crate::bundle::Target for Swapping {
        fn existing(
            &self,
            _: crate::id::RunId,
        ) -> Result<Option<(crate::model::StoredRun, KeptOutput)>, StoreError> {
            let bytes = fs::read(&self.path).unwrap_or_default();
            let at = bytes.windows(2).position(|pair| pair == [SHORT[0], b'P']);
            let mut changed = bytes;
            if let Some(byte) = at.and_then(|at| changed.get_mut(at)) {
                *byte ^= 1;
            }
            fs::write(&self.path, changed)
                .map(|()| None)
                .map_err(StoreError::io("write", &self.path))
        }
        fn contains(&self, digest: &Digest) -> Result<bool, StoreError> {
            self.memory.contains(digest)
        }
        fn put(
            &mut self,
            digest: &Digest,
            bytes: u64,
            contents: &mut dyn std::io::Read,
        ) -> Result<(), StoreError> {
            self.memory.put(digest, bytes, contents)
        }
        fn record(&mut self, runs: &[crate::database::NewRun]) -> Result<(), StoreError> {
            self.memory.record(runs)
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("b");
    fs::write(&path, bundle(&[FIRST], &options()).unwrap()).unwrap();
    let mut target = Swapping {
        memory: Memory::default(),
        path: path.clone(),
    };
    let failed = import(&mut target, &path, &ImportOptions::default(), &mut |_| ());
    assert!(failed.is_err());
    assert!(target.memory.runs.is_empty());
    assert!(!target.memory.objects.contains_key(&Digest::of(SHORT)));
}
