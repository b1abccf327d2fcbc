//! Every verb that does something obeys the mode, whoever set it.

use cofferdam_testkit::desk;
use serde_json::json;

use crate::refusal::assert_refused;
use cofferdam_testkit::desk::{code, told};

#[test]
fn what_a_mode_forbids_is_refused_before_anything_runs() {
    let desk = desk!();
    let marker = desk.path("marker");
    for mode in ["local-only", "docker", "burst", "air-gapped"] {
        let line = format!(
            "--mode {mode} run --backend host -- touch {}",
            marker.display()
        );
        assert_refused(&desk.line(&line), mode, "backend");
    }
    assert!(!marker.exists());
    // The same without a mode does what it says.
    let done = desk.line(&format!("run --backend host -- touch {}", marker.display()));
    assert_eq!(code(&done), 0, "{}", told(&done));
    assert!(marker.exists());
}

#[test]
fn a_mode_beats_configuration_and_flags_wherever_it_is_named() {
    let desk = desk!();
    let file = desk.write(
        "c.yml",
        "mode: local-only\nsandbox:\n  default_runtime: host\n",
    );
    let with_file = format!("--config {} run -- true", file.display());
    assert_refused(&desk.line(&with_file), "local-only", "backend");
    let in_environment = desk
        .command()
        .env("COFFERDAM_MODE", "air-gapped")
        .args(["run", "--backend", "host", "--", "true"])
        .output()
        .unwrap();
    assert_refused(&in_environment, "air-gapped", "backend");
    // What the mode allows, runs.
    let done = desk.line("run --mode air-gapped -- echo fine");
    assert_eq!((code(&done), told(&done).as_str()), (0, "fine\n"));
    let unknown = desk.line("run --mode airgapped -- true");
    assert_eq!(code(&unknown), 125);
    assert!(told(&unknown).contains("write local-only, docker, burst or air-gapped"));
    let bad_file = desk.write("bad.yml", "mode: offline\n");
    let done = desk.line(&format!("--config {} run -- true", bad_file.display()));
    assert!(
        told(&done).contains("bad.yml:1: mode: `offline` is not a mode"),
        "{}",
        told(&done)
    );
}

#[test]
fn in_mode_docker_nothing_runs_outside_containers() {
    let desk = desk!();
    let nobody = format!("unix://{}", desk.path("no.sock").display());
    let run = |args: &[&str]| {
        let mut command = desk.command();
        command.env("DOCKER_HOST", &nobody).args(args);
        command.output().unwrap()
    };
    // Nobody chose a backend, so that it is the mode's; there is no daemon, and no other backend takes its place.
    let done = run(&[
        "--mode", "docker", "run", "--image", "x", "--", "echo", "outside",
    ]);
    assert_eq!(code(&done), 125, "{}", told(&done));
    assert!(
        told(&done).contains("[backend.unavailable]"),
        "{}",
        told(&done)
    );
    let done = run(&[
        "--mode",
        "docker",
        "run",
        "--language",
        "shell",
        "--code",
        "echo x",
    ]);
    assert_refused(&done, "docker", "backend");
    let done = run(&[
        "--mode",
        "docker",
        "run",
        "--backend",
        "native",
        "--",
        "true",
    ]);
    assert_refused(&done, "docker", "backend");
    assert_refused(&run(&["--mode", "docker", "serve"]), "docker", "backend");
    let cases = desk.path("cases/one");
    desk.write("cases/one/command", "true");
    let done = run(&[
        "--mode",
        "docker",
        "golden",
        "run",
        cases.parent().unwrap().to_str().unwrap(),
    ]);
    assert_refused(&done, "docker", "backend");
}

#[test]
fn images_are_not_fetched_where_a_mode_says_so() {
    let desk = desk!();
    assert_refused(
        &desk.line("--mode air-gapped images pull x:1"),
        "air-gapped",
        "pull",
    );
    let done = desk.line("--mode air-gapped run --backend docker --image x --pull missing -- true");
    assert_refused(&done, "air-gapped", "pull");
    let with_daemon_at = |place: &str| {
        let line = "--mode air-gapped run --backend docker --image x -- true";
        let mut command = desk.command();
        command.env("DOCKER_HOST", place).args(line.split(' '));
        command.output().unwrap()
    };
    let far = with_daemon_at("tcp://192.0.2.1:2375");
    assert_refused(&far, "air-gapped", "daemon");
    // Without a word about it nothing is fetched either, and what is here could be used.
    let here = with_daemon_at("unix:///nowhere/d.sock");
    assert!(
        told(&here).contains("[backend.unavailable]"),
        "{}",
        told(&here)
    );
}

#[test]
fn a_payload_that_wants_a_network_is_refused_by_rule() {
    let desk = desk!();
    let draft = json!({
        "contract_id": "c", "scope": "s", "network_allowed": true,
        "task": {"kind": "command", "argv": ["true"]},
    });
    let payload = desk.seal("payload.json", &draft);
    for verb in ["execute", "policy validate"] {
        let done = desk.line(&format!("--mode air-gapped {verb} {}", payload.display()));
        let line = "mode air-gapped, rule `network`: ";
        assert!(told(&done).contains(line), "{verb}: {}", told(&done));
        assert_ne!(code(&done), 0);
    }
    let host = desk.line(&format!(
        "--mode local-only execute --backend host {}",
        payload.display()
    ));
    assert_refused(&host, "local-only", "backend");
    assert_refused(&host, "local-only", "network");
}

#[test]
fn fetching_for_a_project_takes_a_network_that_no_mode_gives_without_walls() {
    let desk = desk!();
    desk.write(
        "project/package.json",
        r#"{"name": "x", "scripts": {"build": "touch built"}}"#,
    );
    let project = desk.path("project");
    for verb in ["restore", "build", "test"] {
        let line = format!(
            "--mode air-gapped {verb} --backend host {}",
            project.display()
        );
        assert_refused(&desk.line(&line), "air-gapped", "backend");
    }
    assert!(!project.join("built").exists());
}

#[test]
fn work_is_not_sent_elsewhere_where_a_mode_keeps_it_here() {
    let desk = desk!();
    desk.write("run.json", r#"{"command": ["true"]}"#);
    let line = "--mode local-only submit run.json --server http://192.0.2.1:1";
    assert_refused(&desk.line(line), "local-only", "daemon");
    let line =
        "--mode air-gapped watch 019a8c3e-7f2b-7abc-8def-0123456789ab --server http://a.example";
    assert_refused(&desk.line(line), "air-gapped", "daemon");
    // Here is here: nobody listens, and that is another failure.
    let done = desk.line("--mode air-gapped submit run.json --server http://127.0.0.1:1");
    assert!(
        told(&done).contains("[server.unreachable]"),
        "{}",
        told(&done)
    );
}
