//! Every limit of a payload, and the answer of a run that reached it.

use std::time::{Duration, Instant};

use cofferdam_testkit::desk;
use serde_json::{Value, json};

use crate::exchange::{Exchange as _, cofferdam, shell, with};

#[test]
fn wall_time_ends_in_a_timeout_with_what_was_written_so_far() {
    let desk = desk!();
    let draft = with(
        shell("echo begun; exec sleep 60"),
        "max_runtime_seconds",
        4.5,
    );
    let begun = Instant::now();
    let envelope = desk.execute(&draft);
    assert!(begun.elapsed() < Duration::from_secs(40));
    desk.assert_violates(&envelope, "TIMEOUT");
    assert_eq!(envelope["partial_output"]["stdout"]["data"], "begun\n");
    assert_eq!(
        envelope["verdict"]["limit"],
        json!({ "value": 4.5, "unit": "seconds" })
    );
}

#[test]
fn cpu_time_of_the_whole_tree_is_bounded() {
    let desk = desk!();
    let draft = with(
        shell("while :; do :; done & while :; do :; done"),
        "max_cpu_seconds",
        0.2,
    );
    let envelope = desk.execute(&draft);
    desk.assert_violates(&envelope, "CPU_LIMIT_EXCEEDED");
    assert!(
        envelope["cpu_seconds"].as_f64().unwrap() >= 0.2,
        "{envelope:#}"
    );
}

#[test]
fn memory_of_the_whole_tree_is_bounded() {
    let desk = desk!();
    let draft = with(
        shell("echo begun; x=0123456789abcdef; while :; do x=$x$x; done"),
        "max_memory_mb",
        32,
    );
    let envelope = desk.execute(&draft);
    assert_eq!(envelope["partial_output"]["stdout"]["data"], "begun\n");
    assert_eq!(
        envelope["verdict"]["violation"], "MEMORY_LIMIT_EXCEEDED",
        "{envelope:#}"
    );
    desk.assert_holds(&envelope);
    if has_memory_group() {
        assert!(
            envelope["memory_used_mb"].as_f64().unwrap() <= 33.0,
            "{envelope:#}"
        );
    }
}

#[test]
fn two_kilobytes_are_too_large_for_one_and_the_first_one_survives() {
    let desk = desk!();
    let kilobyte = "0123456789abcde\n".repeat(64);
    let script = "i=0; while [ $i -lt 128 ]; do echo 0123456789abcde; i=$((i+1)); done";
    let envelope = desk.execute(&with(shell(script), "max_output_size_kb", 1));
    desk.assert_violates(&envelope, "OUTPUT_TOO_LARGE");
    let stdout = &envelope["partial_output"]["stdout"];
    assert_eq!(stdout["data"], json!(kilobyte));
    assert_eq!(stdout["truncated"], true);
}

#[test]
fn an_output_that_grows_over_its_limit_only_as_json_is_too_large_too() {
    let desk = desk!();
    let script = "i=0; while [ $i -lt 100 ]; do printf '\\001\\001\\001\\001\\001\\001\\001\\001'; i=$((i+1)); done";
    let envelope = desk.execute(&with(shell(script), "max_output_size_kb", 1));
    desk.assert_violates(&envelope, "OUTPUT_TOO_LARGE");
}

#[test]
fn processes_are_bounded() {
    let desk = desk!();
    let script = "i=0; while [ $i -lt 20 ]; do sleep 3 & i=$((i+1)); echo $i; done";
    let envelope = desk.execute(&with(shell(script), "max_processes", 5));
    assert_eq!(envelope["status"], "ERROR", "{envelope:#}");
    let started = envelope["partial_output"]["stdout"]["data"]
        .as_str()
        .unwrap()
        .lines()
        .count();
    assert!(started < 5, "{envelope:#}");
    if envelope["enforced_by"]["processes"] != "rlimit" {
        desk.assert_violates(&envelope, "PROCESS_LIMIT_EXCEEDED");
    }
}

#[test]
fn scratch_space_is_bounded() {
    let desk = desk!();
    let script = "while echo 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef; do :; done > /tmp/f; exit 1";
    let envelope = desk.execute(&with(shell(script), "max_disk_mb", 1));
    desk.assert_violates(&envelope, "DISK_LIMIT_EXCEEDED");
}

#[test]
fn a_partial_output_that_json_makes_longer_still_fits_into_what_can_be_read() {
    let desk = desk!();
    // 8 MB of control characters are 48 MB of JSON.
    let script = "head -c 8000000 /dev/zero | tr '\\0' '\\001'; exit 1";
    let envelope = desk.execute(&with(shell(script), "max_output_size_kb", 8192));
    assert_eq!(envelope["status"], "ERROR");
    let stdout = &envelope["partial_output"]["stdout"];
    assert_eq!(
        (&stdout["truncated"], &stdout["original_bytes"]),
        (&json!(true), &json!(8_000_000))
    );
    desk.assert_holds(&envelope);
}

fn has_memory_group() -> bool {
    let done = cofferdam(&["doctor".as_ref(), "--json".as_ref()]);
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    let limits = report["limits"].as_array().unwrap();
    let memory = limits.iter().find(|limit| limit["limit"] == "memory");
    memory.unwrap()["exactness"] == "kernel"
}
