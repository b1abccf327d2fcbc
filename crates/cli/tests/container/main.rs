//! The binary inside a real container, started by a Docker daemon of its own, as people run it there: an ordinary user or a root without privileges, no
//! control groups to write, and a /proc that Docker has masked or not. The daemon, its files and its control groups are gone afterwards.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "the functions beside a test are as much test as it is"
)]

mod docker;
mod image;
mod serve;

use std::process::Output;

use serde_json::{Value, json};

use docker::{BARE_ROOT, Docker, NO_SECCOMP, ROOT, USER};

#[test]
fn container_without_privileges_holds_every_limit() {
    let Some(docker) = Docker::start() else {
        return;
    };
    let inside = |args: &[&str]| docker.run(USER, &[NO_SECCOMP], args);

    let record = exited(
        0,
        &inside(&["--", "sh", "-c", "id -u; echo $HOME; ls /proc"]),
    );
    assert_eq!(record["stdout"]["data"], "1000\n/home/sandbox\n");
    assert_eq!(record["isolation"]["proc"], "absent");
    assert_eq!(record["isolation"]["uid"], "1000 (outside 1000)");
    let expected = json!({
        "wall_time": "supervisor",
        "cpu_time": "poll",
        "memory": "poll",
        "output": "supervisor",
        "processes": "rlimit",
        "disk": "tmpfs+rlimit",
        "open_files": "rlimit",
        "cpus": "unlimited",
        "disk_io": "unlimited",
    });
    assert_eq!(record["enforced_by"], expected);

    stopped_by(
        "wall_time",
        124,
        &inside(&["--timeout", "300ms", "--", "sleep", "1000"]),
    );
    stopped_by(
        "cpu_time",
        152,
        &inside(&["--cpu-time", "300ms", "--", "actor", "burn", "3", "0"]),
    );
    stopped_by(
        "memory",
        137,
        &inside(&["--memory", "64m", "--", "actor", "memory-held", "256"]),
    );
    stopped_by(
        "output",
        153,
        &inside(&["--output-limit", "64k", "--", "yes"]),
    );
    let flood = ["dd", "if=/dev/zero", "of=/tmp/file", "bs=64k", "count=512"];
    stopped_by(
        "disk",
        153,
        &inside(&[&["--disk", "2m", "--"], &flood[..]].concat()),
    );
    let record = exited(3, &inside(&["--pids", "8", "--", "actor", "forks", "32"]));
    assert_eq!(record["stdout"]["data"], "made 7\n");
    let record = exited(0, &inside(&["--cpus", "1", "--", "nproc"]));
    assert_eq!(record["enforced_by"]["cpus"], "affinity");
    assert_eq!(record["stdout"]["data"], "1\n");
    refused(
        "limit.unenforceable",
        &inside(&["--cpus", "0.5", "--", "true"]),
    );
}

#[test]
fn container_setting_decides_what_is_seen_and_whether_anything_runs() {
    let Some(docker) = Docker::start() else {
        return;
    };
    let id = ["--", "id", "-u"];

    let unmasked = docker.run(USER, &[NO_SECCOMP, "systempaths=unconfined"], &id);
    assert_eq!(exited(0, &unmasked)["isolation"]["proc"], "own");

    // Docker's own filter forbids new namespaces to whoever has no CAP_SYS_ADMIN.
    refused("backend.unavailable", &docker.run(USER, &[], &id));
    refused("backend.unavailable", &docker.run(ROOT, &[], &id));

    let root = exited(0, &docker.run(ROOT, &[NO_SECCOMP], &id));
    assert_eq!(root["stdout"]["data"], "1000\n");
    assert_eq!(root["isolation"]["uid"], "1000 (outside 0)");
    assert_eq!(root["enforced_by"]["memory"], "poll");

    // The kernel lets nobody give root's id to a user namespace without CAP_SETFCAP.
    refused(
        "backend.unavailable",
        &docker.run(BARE_ROOT, &[NO_SECCOMP], &id),
    );
}

/// The first process of a container is often an application that waits for its own children only: what is orphaned there stays until the container ends.
#[test]
fn container_whose_first_process_reaps_nothing_fills_with_nothing() {
    let Some(docker) = Docker::start() else {
        return;
    };
    let again = ["actor", "again", "8", "cofferdam", "run", "--", "true"];
    let output = docker.start_container(USER, &[NO_SECCOMP], &again);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "left 0\n");
}

fn record(output: &Output) -> Value {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((stdout.lines().count(), &*stderr), (1, ""), "{stdout}");
    serde_json::from_str(&stdout).unwrap()
}

fn exited(code: i32, output: &Output) -> Value {
    let record = record(output);
    let ending = (&record["ending"]["kind"], &record["exit_code"]);
    assert_eq!(ending, (&json!("exited"), &json!(code)), "{record}");
    assert_eq!(output.status.code(), Some(code));
    record
}

fn stopped_by(cause: &str, code: i32, output: &Output) {
    let record = record(output);
    let ending = (&record["ending"]["kind"], &record["ending"]["cause"]);
    assert_eq!(ending, (&json!("stopped"), &json!(cause)), "{record}");
    assert_eq!(output.status.code(), Some(code));
}

/// One line with a stable code, and nothing ran.
fn refused(code: &str, output: &Output) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(output.stdout.is_empty());
    let is_clear = stderr.starts_with("cofferdam: ") && stderr.ends_with(&format!(" [{code}]\n"));
    assert!(is_clear && stderr.lines().count() == 1, "{stderr}");
}
