//! What `doctor` says of this host.

use std::fs;

use cofferdam_testkit::desk;
use cofferdam_testkit::desk::code;
use serde_json::{Value, json};

use crate::exchange::cofferdam;

#[test]
fn doctor_reports_every_limit_in_a_versioned_form_and_leaves_nothing_behind() {
    let place = tempfile::tempdir().unwrap();
    let desk = desk!();
    let done = desk
        .command()
        .args(["doctor", "--json"])
        .env("TMPDIR", place.path())
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(report["schema"], "cofferdam.doctor/1");
    assert_eq!(code(&done), i32::from(report["works"] != true));
    let mut named: Vec<&str> = report["limits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|limit| limit["limit"].as_str().unwrap())
        .collect();
    named.dedup();
    let all = [
        "wall_time",
        "cpu_time",
        "memory",
        "output",
        "processes",
        "disk",
        "open_files",
        "cpus",
        "disk_io",
    ];
    assert_eq!(named, all);
    let findings = report["layers"].as_array().unwrap().iter();
    for finding in findings.chain(report["limits"].as_array().unwrap()) {
        let mark = finding["mark"].as_str().unwrap();
        assert!(["ok", "weaker", "missing"].contains(&mark), "{finding}");
        assert_eq!(mark == "ok", finding["why"].is_null(), "{finding}");
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    let table = cofferdam(&["doctor".as_ref()]);
    assert!(!table.stdout.contains(&0x1b), "colour without a terminal");
}

#[test]
fn doctor_says_that_switched_off_control_groups_are_switched_off() {
    let desk = desk!();
    let done = desk
        .command()
        .args(["doctor", "--json"])
        .env("COFFERDAM_NO_CGROUPS", "1")
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    let limits = report["limits"].as_array().unwrap();
    let memory = limits
        .iter()
        .find(|limit| limit["limit"] == "memory")
        .unwrap();
    assert_eq!(memory["enforced_by"], "poll", "{memory:#}");
    assert_eq!(
        (&memory["mark"], &memory["exactness"]),
        (&json!("weaker"), &json!("sampled"))
    );
    assert_eq!(memory["fix"], "unset COFFERDAM_NO_CGROUPS");
    let fraction = limits
        .iter()
        .find(|limit| limit["case"] == "fractional")
        .unwrap();
    assert_eq!(fraction["mark"], "missing");
    assert_eq!(fraction["enforced_by"], Value::Null);
}
