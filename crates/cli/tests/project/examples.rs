//! The step of continuous integration in `examples/ci`, as a runner starts it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cofferdam_testkit::desk::told;
use cofferdam_testkit::{Desk, desk};
use serde_json::Value;

fn clone() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A line of shell, started in a clone by a runner that has our binary.
fn step(desk: &Desk, line: &str) -> Output {
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .current_dir(clone())
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", desk.root())
        .env("RUNNER_TEMP", desk.root())
        .env("COFFERDAM", env!("CARGO_BIN_EXE_cofferdam"));
    command.output().unwrap()
}

#[test]
fn the_step_of_the_workflow_builds_and_tests_and_leaves_junit() {
    let desk = desk!();
    let workflow = std::fs::read_to_string(clone().join("examples/ci/workflow.yml")).unwrap();
    let workflow: Value = serde_saphyr::from_str(&workflow).unwrap();
    let steps = workflow["jobs"]["test"]["steps"].as_array().unwrap();
    let lines: Vec<&str> = steps
        .iter()
        .filter_map(|step| step["run"].as_str())
        .filter(|line| line.contains("ci.sh"))
        .collect();
    assert_eq!(lines.len(), 1);

    let done = step(&desk, lines[0]);
    assert_eq!(done.status.code(), Some(0), "{}", told(&done));
    let junit = std::fs::read_to_string(desk.path("reports/junit.xml")).unwrap();
    for sign in [
        "tests=\"3\"",
        "failures=\"0\"",
        "test_nothing_stands_at_the_ends",
    ] {
        assert!(junit.contains(sign), "{sign}: {junit}");
    }
    let sarif = std::fs::read(desk.path("reports/build.sarif")).unwrap();
    let sarif: Value = serde_json::from_slice(&sarif).unwrap();
    assert_eq!(sarif["version"], "2.1.0");
    let project = clone().join("examples/ci/project");
    let found = std::fs::read_dir(&project).unwrap().count();
    assert_eq!(found, 3, "the project was written to");
}

#[test]
fn the_step_fails_with_the_project_and_says_in_junit_why() {
    let desk = desk!();
    let project = clone().join("examples/ci/project");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(project)
        .arg(desk.path("copy"))
        .status();
    assert!(copied.unwrap().success());
    desk.write(
        "copy/slug/__init__.py",
        "def slug(text):\n    return text\n",
    );
    let copy = desk.path("copy").display().to_string();
    let reports = desk.path("reports").display().to_string();
    let done = step(&desk, &format!("examples/ci/ci.sh {copy} {reports}"));
    assert_eq!(done.status.code(), Some(1), "{}", told(&done));
    let junit = std::fs::read_to_string(desk.path("reports/junit.xml")).unwrap();
    for sign in ["failures=\"2\"", "test_words_are_joined", "a-fine-day"] {
        assert!(junit.contains(sign), "{sign}: {junit}");
    }

    // What does not compile is not tested.
    desk.write("copy/slug/__init__.py", "def slug(text:\n");
    let done = step(&desk, &format!("examples/ci/ci.sh {copy} {reports}-2"));
    assert_eq!(done.status.code(), Some(1), "{}", told(&done));
    assert!(!desk.path("reports-2/junit.xml").exists());
}
