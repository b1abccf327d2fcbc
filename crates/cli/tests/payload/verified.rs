//! Lies about a payload or its answer are found.

use std::fs;

use cofferdam_testkit::desk;
use cofferdam_testkit::desk::{code, stderr};
use serde_json::{Value, json};

use crate::exchange::{Exchange as _, assert_refused, cofferdam, shell, sum, with};

#[test]
fn a_rerun_agrees_with_the_truth_and_not_with_a_lie() {
    let desk = desk!();
    let mut envelope = desk.execute(&sum());
    let rerun = |name: &str| {
        let (payload, envelope) = (desk.path("payload.json"), desk.path(name));
        let done = cofferdam(&[
            "verify".as_ref(),
            payload.as_ref(),
            envelope.as_ref(),
            "--rerun".as_ref(),
            "--json".as_ref(),
        ]);
        let findings: Value = serde_json::from_slice(&done.stdout).unwrap();
        (code(&done), findings)
    };
    let (exit, findings) = rerun("envelope.json");
    let agreed = json!({ "agrees": true, "outcome": "same", "output_class": "canonical_json", "deadline_passed": false, "status": "SUCCESS", "violation": null, "differences": [] });
    assert_eq!((exit, &findings["rerun"]), (0, &agreed));
    // A worker who never did the work, and whose envelope is right in every other way.
    envelope["output"] = json!({ "sum": 7 });
    let proof = cofferdam_contract::envelope::proof_of_work(
        envelope["payload_id"].as_str().unwrap(),
        b"{\"sum\":7}",
    );
    envelope["proof_of_work"] = json!(proof);
    desk.assert_holds(&envelope);
    let (exit, findings) = rerun("claimed.json");
    assert_eq!(
        (exit, &findings["holds"], &findings["problems"]),
        (1, &json!(false), &json!([]))
    );
    let differences = findings["rerun"]["differences"].as_array().unwrap();
    assert_eq!(differences.len(), 1, "{findings:#}");
    assert_eq!(differences[0]["field"], "output");
    assert_eq!(findings["rerun"]["outcome"], "different");
    let first = json!({ "pointer": "/output/sum", "claimed": 7, "found": 6, "missing": null });
    assert_eq!(findings["rerun"]["first_difference"], first);
}

#[test]
fn whoever_changes_a_field_after_sealing_is_noticed_before_anything_runs() {
    let desk = desk!();
    let mark = desk.path("mark");
    let payload = desk.sealed(&with(
        shell("echo ran > /work/mark"),
        "filesystem_write",
        true,
    ));
    let sealed: Value = serde_json::from_slice(&fs::read(payload).unwrap()).unwrap();
    for field in sealed.as_object().unwrap().keys() {
        let mut changed = sealed.clone();
        changed[field] = match &sealed[field] {
            Value::Bool(flag) => json!(!flag),
            Value::Number(number) => json!(number.as_u64().unwrap() + 1),
            Value::String(text) if field == "digest" => json!(text.replace(['0', '1'], "2")),
            Value::String(text) => json!(format!("{text}x")),
            Value::Object(_) => {
                json!({ "kind": "command", "argv": ["/bin/sh", "-c", "echo no > /work/mark"] })
            }
            other => panic!("{field}: {other}"),
        };
        let path = desk.write("changed.json", changed.to_string());
        let done = cofferdam(&[
            "execute".as_ref(),
            path.as_ref(),
            "--workspace".as_ref(),
            desk.root().as_ref(),
        ]);
        assert_refused(&done, "payload.digest_mismatch");
    }
    assert!(!mark.exists(), "something ran");
}

#[test]
fn whoever_changes_an_envelope_is_noticed() {
    let desk = desk!();
    let envelope = desk.execute(&sum());
    let long_line = "x".repeat(1025);
    for (field, lie, complaint) in [
        ("proof_of_work", json!("0".repeat(64)), "proof_of_work"),
        ("proof_of_work", json!("short"), "proof_of_work"),
        ("output", json!({ "sum": 5 }), "proof_of_work"),
        ("output", json!({ "sum": "6" }), "output: sum"),
        ("payload_id", json!("PAYLOAD-1-other"), "payload_id"),
        ("runtime_seconds", json!(301), "runtime_seconds"),
        ("runtime_seconds", json!(-1), "runtime_seconds"),
        ("cpu_seconds", json!(61), "cpu_seconds"),
        ("memory_used_mb", json!(514), "memory_used_mb"),
        ("output_size_kb", json!(0), "output_size_kb"),
        ("status", json!("ERROR"), "error_message"),
        ("status", json!("FINE"), "status"),
        ("error_message", json!("oh"), "error_message"),
        ("completed_at", json!("yesterday"), "completed_at"),
        ("worker_id", json!("../me"), "worker_id"),
        ("logs", json!([long_line]), "logs"),
        ("logs", json!(vec!["x"; 101]), "logs"),
        ("enforced_by", json!({ "memory": "magic" }), "enforced_by"),
        ("surprise", json!(1), "surprise"),
        (
            "verdict",
            json!({ "violation": "TIMEOUT", "limit": null, "evidence": "" }),
            "verdict",
        ),
    ] {
        let mut changed = envelope.clone();
        changed[field] = lie;
        let (exit, findings) = desk.verify(&changed);
        assert_eq!(
            (exit, &findings["holds"]),
            (1, &json!(false)),
            "{field}: {findings:#}"
        );
        let named = findings["problems"]
            .as_array()
            .unwrap()
            .iter()
            .any(|problem| {
                problem["field"].as_str().unwrap().contains(complaint)
                    || problem["fix"].as_str().unwrap().contains(complaint)
                    || problem["value"].as_str().unwrap().contains(complaint)
            });
        assert!(named, "{field}: {findings:#}");
    }
}

#[test]
fn what_a_person_reads_has_a_line_for_each_problem_and_no_control_characters() {
    let desk = desk!();
    let mut envelope = desk.execute(&sum());
    envelope["error_message"] = json!("\u{1b}[2J\nholds");
    envelope["cpu_seconds"] = json!(1e9);
    let claimed = desk.write("claimed.json", envelope.to_string());
    let payload = desk.path("payload.json");
    let done = cofferdam(&["verify".as_ref(), payload.as_ref(), claimed.as_ref()]);
    let text = String::from_utf8(done.stdout.clone()).unwrap();
    assert_eq!((code(&done), text.lines().count()), (1, 2), "{text}");
    assert!(!text.lines().any(|line| line == "holds"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn an_envelope_that_is_none_does_not_hold() {
    let desk = desk!();
    desk.sealed(&sum());
    for text in [
        "",
        "null",
        "{}",
        "[1]",
        "{\"output\":1,\"output\":1}",
        "\u{0}",
        &"[".repeat(100_000),
    ] {
        let claimed = desk.write("claimed.json", text);
        let payload = desk.path("payload.json");
        let done = cofferdam(&["verify".as_ref(), payload.as_ref(), claimed.as_ref()]);
        assert_eq!(code(&done), 1, "{}", stderr(&done));
        assert!(!done.stdout.is_empty());
    }
}

#[test]
fn an_expired_payload_is_not_run_but_can_be_verified_again() {
    let desk = desk!();
    let mut draft = with(shell("echo 1"), "created_at", "2020-01-01T00:00:00Z");
    draft["deadline"] = json!("2020-01-01T00:05:00Z");
    let payload = desk.sealed(&draft);
    assert_refused(
        &cofferdam(&["execute".as_ref(), payload.as_ref()]),
        "payload.expired",
    );
    let fresh = desk!();
    let mut envelope = fresh.execute(&shell("echo 1"));
    let sealed: Value = serde_json::from_slice(&fs::read(&payload).unwrap()).unwrap();
    let canonical = serde_json::to_vec(&json!({ "exit_code": 0, "stdout": "1\n" })).unwrap();
    let id = sealed["payload_id"].as_str().unwrap();
    envelope["payload_id"] = json!(id);
    envelope["proof_of_work"] = json!(cofferdam_contract::envelope::proof_of_work(id, &canonical));
    let claimed = desk.write("claimed.json", envelope.to_string());
    let done = cofferdam(&[
        "verify".as_ref(),
        payload.as_ref(),
        claimed.as_ref(),
        "--rerun".as_ref(),
    ]);
    let text = String::from_utf8_lossy(&done.stdout);
    assert_eq!(code(&done), 0, "{text}{}", stderr(&done));
    assert!(text.contains("the deadline has passed"), "{text}");
    assert!(text.ends_with("holds\n"), "{text}");
}
