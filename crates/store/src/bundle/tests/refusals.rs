//! Bundles whose archive is fine and whose contents are not.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::bundle::{EntryName, InspectOptions, Limits, SigningKey, inspect_bytes};
use crate::model::Digest;

use super::samples::{FIRST, SECOND, TEXT, bundle, key, options, signed};
use super::zipped::{file, look, manifest, unzip, why, with_manifest, zip};

type Files = BTreeMap<String, Vec<u8>>;

fn files() -> Files {
    bundle(&[FIRST], &options())
        .map(|bytes| unzip(&bytes))
        .unwrap_or_default()
}

fn text_artifact() -> String {
    EntryName::Artifact(Digest::of(TEXT)).to_string()
}

fn run_file() -> String {
    EntryName::Run(FIRST).to_string()
}

/// Changes the files, lists them as they then are, and says why that is refused.
fn why_files(change: impl FnOnce(&mut Files)) -> String {
    let mut files = files();
    change(&mut files);
    why(&with_manifest(&files, &manifest(&files, &json!([]))))
}

fn why_manifest(change: impl FnOnce(&mut Value)) -> String {
    let files = files();
    let mut manifest = manifest(&files, &json!([]));
    change(&mut manifest);
    why(&with_manifest(&files, &manifest))
}

fn why_run(change: impl FnOnce(&mut Value)) -> String {
    why_files(|files| {
        let run = files
            .get(&run_file())
            .and_then(|run| serde_json::from_slice(run).ok());
        let mut run: Value = run.unwrap_or_default();
        change(&mut run);
        files.insert(run_file(), run.to_string().into_bytes());
    })
}

#[track_caller]
fn refused(why: &str, with: &str) {
    assert!(why.contains(with), "expected `{with}` in: {why}");
}

#[test]
fn the_archive_made_by_hand_is_taken() {
    let files = files();
    assert_eq!(files.len(), 6);
    let made = look(&with_manifest(&files, &manifest(&files, &json!([])))).unwrap();
    let ours = look(&bundle(&[FIRST], &options()).unwrap()).unwrap();
    assert_eq!(made, ours);
}

#[test]
fn files_and_manifest_must_agree() {
    refused(
        &why_manifest(|manifest| {
            let _ = manifest["files"]
                .as_object_mut()
                .map(|files| files.remove(&text_artifact()));
        }),
        "is not in the manifest",
    );
    let gone = Digest::of(b"gone").to_string();
    refused(
        &why_manifest(|manifest| {
            manifest["files"][format!("artifacts/{gone}")] = json!({"sha256": gone, "bytes": 4});
        }),
        "in the manifest and not there",
    );
    refused(
        &why_manifest(|manifest| manifest["files"][text_artifact()]["bytes"] = json!(3)),
        "the manifest says 3",
    );
    refused(
        &why_manifest(|manifest| {
            manifest["files"][text_artifact()]["sha256"] = json!(Digest::of(b"y").to_string());
        }),
        "not what the manifest says",
    );
    refused(
        &why_manifest(|manifest| {
            manifest["files"]["manifest.json"] = json!({"sha256": gone, "bytes": 4});
        }),
        "the manifest lists `manifest.json`",
    );
    refused(
        &why_manifest(|manifest| {
            manifest["files"]["../x"] = json!({"sha256": gone, "bytes": 4});
        }),
        "leads out",
    );
    refused(
        &why_manifest(|manifest| manifest["run_count"] = json!(2)),
        "2 runs",
    );
    refused(
        &why_manifest(|manifest| manifest["artifact_bytes"] = json!(2)),
        "2 bytes of artifacts",
    );
}

#[test]
fn a_name_that_is_listed_twice_is_refused() {
    let files = files();
    let text = manifest(&files, &json!([])).to_string();
    let twice = text.replacen("\"files\":{", "\"files\":{\"provenance.json\":{\"sha256\":\"0000000000000000000000000000000000000000000000000000000000000000\",\"bytes\":0},", 1);
    let mut raw: Vec<_> = files
        .iter()
        .filter(|(name, _)| *name != "manifest.json")
        .map(|(name, data)| file(name, data))
        .collect();
    raw.push(file("manifest.json", twice.as_bytes()));
    refused(&why(&zip(&raw)), "listed twice");
}

#[test]
fn versions_are_read_by_their_first_number() {
    refused(
        &why_manifest(|manifest| manifest["version"] = json!("2.0.0")),
        "version 2.0.0",
    );
    refused(
        &why_manifest(|manifest| manifest["version"] = json!("0.9.0")),
        "version 0.9.0",
    );
    refused(
        &why_manifest(|manifest| manifest["version"] = json!("new")),
        "not a version",
    );
    refused(
        &why_manifest(|manifest| manifest["format"] = json!("other")),
        "its format is",
    );
    let files = files();
    let mut newer = manifest(&files, &json!([]));
    newer["version"] = json!("1.7.0");
    newer["something_new"] = json!({"a": 1});
    assert_eq!(look(&with_manifest(&files, &newer)).unwrap().runs.len(), 1);
    // What a newer one looks like is not known, so its number is read before the rest.
    let only_head = json!({"format": "cofferdam.bundle", "version": "2.0.0"});
    refused(&why(&with_manifest(&files, &only_head)), "use a newer one");
}

#[test]
fn what_must_be_there_is_there() {
    refused(&why(&zip(&[])), "no manifest.json");
    refused(&why(&zip(&[file("manifest.json", b"{")])), "cannot be read");
    refused(&why(&zip(&[file("manifest.json", b"")])), "cannot be read");
    refused(
        &why_files(|files| drop(files.remove("provenance.json"))),
        "no provenance.json",
    );
    refused(
        &why_files(|files| drop(files.insert("provenance.json".into(), b"[]".to_vec()))),
        "cannot be read",
    );
}

#[test]
fn a_run_is_the_one_that_its_name_says_and_has_ended() {
    refused(
        &why_run(|run| run["run_id"] = json!(SECOND.to_string())),
        "holds the run 0202",
    );
    refused(
        &why_run(|run| {
            run["state"] = json!("running");
            run["status"] = json!("running");
        }),
        "has not ended",
    );
    refused(
        &why_run(|run| run["status"] = json!("failure")),
        "its status is failure",
    );
    refused(&why_run(|run| run["command"] = json!(5)), "cannot be read");
}

#[test]
fn an_output_log_can_be_decoded() {
    let name = EntryName::Output(FIRST).to_string();
    refused(
        &why_files(|files| drop(files.insert(name, b"not a log".to_vec()))),
        "not an output log",
    );
}

#[test]
fn what_runs_refer_to_is_there_or_said_to_be_missing() {
    let not_there = "neither there nor said to be missing";
    refused(
        &why_files(|files| drop(files.remove(&text_artifact()))),
        not_there,
    );
    let output = EntryName::Output(FIRST).to_string();
    refused(&why_files(|files| drop(files.remove(&output))), not_there);

    let mut files = files();
    files.remove(&text_artifact());
    let digest = Digest::of(TEXT).to_string();
    let missing = json!([{"path": text_artifact(), "digest": digest, "why": "lost"}]);
    let read = look(&with_manifest(&files, &manifest(&files, &missing))).unwrap();
    assert_eq!(read.manifest.missing.len(), 1);

    let other = Digest::of(b"other").to_string();
    for wrong in [
        json!([{"path": text_artifact(), "digest": other, "why": "another digest"}]),
        json!([{"path": format!("artifacts/{other}"), "digest": other, "why": "nobody refers to it"}]),
        json!([{"path": output, "digest": other, "why": "it is there"}]),
        json!([{"path": "manifest.json", "digest": other, "why": "no content"}]),
        json!([missing[0], missing[0]]),
    ] {
        let refusal = why(&with_manifest(&files, &manifest(&files, &wrong)));
        refused(&refusal, "wrongly");
    }
}

#[test]
fn what_no_run_refers_to_is_refused() {
    let name = EntryName::Artifact(Digest::of(b"extra")).to_string();
    refused(
        &why_files(|files| drop(files.insert(name, b"extra".to_vec()))),
        "no run refers to",
    );
    let name = EntryName::Output(SECOND).to_string();
    refused(
        &why_files(|files| drop(files.insert(name, Vec::new()))),
        "no run refers to",
    );
}

#[test]
fn an_artifact_is_what_its_name_says() {
    refused(
        &why_files(|files| drop(files.insert(text_artifact(), b"other".to_vec()))),
        "holds contents with the digest",
    );
}

#[test]
fn a_signature_fits_or_the_bundle_is_refused() {
    let mut files = bundle(&[FIRST], &signed())
        .map(|bytes| unzip(&bytes))
        .unwrap();
    let manifest_text = files["manifest.json"].clone();
    let mut with = |change: &dyn Fn(&mut Value)| {
        let record = SigningKey::sign(&key(), &manifest_text);
        let mut record = serde_json::to_value(record).unwrap();
        change(&mut record);
        files.insert("signature.json".into(), record.to_string().into_bytes());
        let mut raw: Vec<_> = files.iter().map(|(name, data)| file(name, data)).collect();
        raw.sort_by_key(|file| file.name.clone());
        why(&zip(&raw))
    };
    assert_eq!(with(&|_| ()), "not refused");
    let theirs = SigningKey::from_seed(&[8; 32]);
    let their_key = theirs.public_key().to_string();
    refused(
        &with(&|record| record["public_key"] = json!(their_key)),
        "does not fit",
    );
    let other = theirs.sign(b"another manifest").signature;
    refused(
        &with(&|record| record["signature"] = json!(other)),
        "does not fit",
    );
    refused(
        &with(&|record| record["signature"] = json!("AAAA")),
        "64 bytes",
    );
    refused(
        &with(&|record| record["public_key"] = json!("AAAA")),
        "not an Ed25519 key",
    );
    refused(
        &with(&|record| record["algorithm"] = json!("rsa")),
        "only ed25519",
    );
    refused(&with(&|record| *record = json!([])), "cannot be read");

    // The same files with another manifest under the old signature.
    let mut files = bundle(&[FIRST], &signed())
        .map(|bytes| unzip(&bytes))
        .unwrap();
    let changed = String::from_utf8(files["manifest.json"].clone()).unwrap();
    files.insert(
        "manifest.json".into(),
        changed.replace("0.1.0", "0.1.1").into_bytes(),
    );
    let raw: Vec<_> = files.iter().map(|(name, data)| file(name, data)).collect();
    refused(&why(&zip(&raw)), "does not fit");
}

#[test]
fn every_limit_is_held_before_anything_is_decompressed() {
    let bytes = bundle(&[FIRST, SECOND], &options()).unwrap();
    let all = Limits::default();
    for (limits, with) in [
        (
            Limits {
                total_bytes: 4000,
                ..all
            },
            "and at most 4000",
        ),
        (Limits { entries: 4, ..all }, "at most 4"),
        (
            Limits {
                manifest_bytes: 9,
                ..all
            },
            "`manifest.json` has",
        ),
        (
            Limits {
                run_bytes: 9,
                ..all
            },
            "at most 9",
        ),
        (
            Limits {
                note_bytes: 9,
                ..all
            },
            "`provenance.json` has",
        ),
        (
            Limits {
                held_bytes: 9,
                ..all
            },
            "in parts",
        ),
    ] {
        let options = InspectOptions {
            limits,
            ..InspectOptions::default()
        };
        let error = inspect_bytes(&bytes, &options).unwrap_err().to_string();
        refused(&error, with);
    }
}
