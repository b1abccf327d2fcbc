//! Projects that clients send: as archives and as bundles, with results, reports and progress back.

use std::io::BufReader;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Daemon, Outcome, Reply, read_event, read_head};

const PASSES: &str =
    "import unittest\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        pass\n";

fn send(daemon: &Daemon, request: &Value, archive: &[u8]) -> Outcome<Reply> {
    const BOUNDARY: &str = "xXxboundaryxXx";
    let mut body = Vec::new();
    for (name, contents) in [
        ("request", request.to_string().as_bytes()),
        ("project", archive),
    ] {
        let head =
            format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        body.extend(head.as_bytes());
        body.extend(contents);
        body.extend(b"\r\n");
    }
    body.extend(format!("--{BOUNDARY}--\r\n").as_bytes());
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    daemon.send("POST", "/v1/runs", &[("Content-Type", &kind)], &body)
}

fn tar(files: &[(&str, &str)]) -> Outcome<Vec<u8>> {
    let dir = tempfile::tempdir()?;
    for (path, content) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().ok_or("no parent")?)?;
        std::fs::write(path, content)?;
    }
    let made = Command::new("tar")
        .args(["--create", "--gzip", "--directory"])
        .arg(dir.path())
        .arg(".")
        .output()?;
    Ok(made.stdout)
}

fn git(dir: &Path, args: &[&str]) -> Outcome<()> {
    let done = Command::new("git")
        .args([
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(args)
        .current_dir(dir)
        .output()?;
    if !done.status.success() {
        return Err(format!("{args:?}: {}", String::from_utf8_lossy(&done.stderr)).into());
    }
    Ok(())
}

/// The events of a run, from the first on.
fn followed(daemon: &Daemon, id: &str) -> Outcome<BufReader<TcpStream>> {
    let mut events = daemon.open("GET", &format!("/v1/runs/{id}/events"), &[], b"")?;
    read_head(&mut events)?;
    Ok(events)
}

/// Cancels the run. What its last event says.
fn canceled(daemon: &Daemon, id: &str, events: &mut BufReader<TcpStream>) -> Outcome<Value> {
    daemon.send("DELETE", &format!("/v1/runs/{id}"), &[], b"")?;
    loop {
        let (_, name, data) = read_event(events)?.ok_or("no end came")?;
        if name == "end" {
            return Ok(data);
        }
    }
}

fn nothing_is_left(daemon: &Daemon) -> bool {
    let work = daemon.dir.path().join("data/work");
    std::fs::read_dir(work).map_or(true, |mut entries| entries.next().is_none())
}

#[test]
fn a_project_in_an_archive_is_tested_and_its_results_come_back() {
    let mut daemon = Daemon::start(|_| {}).unwrap();
    let tests = "import os, unittest\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(os.environ['WORD'], 'yes')\n    def test_b(self):\n        self.assertEqual(1, 2)\n    @unittest.skip('later')\n    def test_c(self):\n        pass\n";
    let archive = tar(&[
        ("pyproject.toml", "[project]\nname = \"x\"\n"),
        ("test_x.py", tests),
    ])
    .unwrap();
    let request = json!({"project": {"action": "test", "retries": 1}, "env": {"WORD": "yes"}, "tags": {"ci": "1"}});
    let reply = send(&daemon, &request, &archive).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let run = reply.json();
    let id = run["run_id"].as_str().unwrap().to_owned();
    assert_eq!(
        (&run["kind"], &run["status"], &run["exit_code"]),
        (&json!("test"), &json!("failure"), &json!(1)),
        "{run:#}"
    );
    let project = &run["project"];
    assert_eq!(project["schema"], "cofferdam.project/1");
    assert_eq!(project["verdict"], "failed");
    let counts = json!({"total": 3, "passed": 1, "failed": 1, "skipped": 1});
    assert_eq!(project["counts"], counts, "{project:#}");
    let steps = project["projects"][0]["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 2, "the failure is tried again: {project:#}");
    let failed = |project: &Value| {
        let steps = project["projects"][0]["steps"].as_array().unwrap().clone();
        let cases = steps[1]["tests"]["cases"].as_array().unwrap().clone();
        cases
            .into_iter()
            .find(|case| case["status"] == "failed")
            .unwrap()
    };
    assert_eq!(
        (&failed(project)["name"], &failed(project)["line"]),
        (&json!("test_b"), &json!(7))
    );
    assert!(
        run["stderr"]["data"].as_str().unwrap().contains("test_b"),
        "{run:#}"
    );
    // The reports are files of the run.
    let junit = format!("/v1/runs/{id}/artifacts/cofferdam-reports/junit.xml");
    let junit = daemon.get(&junit).unwrap().text();
    assert!(
        junit.contains("<testsuites") && junit.contains("test_b"),
        "{junit}"
    );
    // Each step is a run of its own below it: unpacking, and two attempts.
    let parts = daemon.get(&format!("/v1/runs?parent={id}")).unwrap().json();
    let kinds: Vec<&str> = parts["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["test", "test", "build"], "{parts:#}");
    assert!(nothing_is_left(&daemon));
    // The history has it as well.
    daemon.restart().unwrap();
    let kept = daemon.get(&format!("/v1/runs/{id}")).unwrap().json();
    assert_eq!(kept["source"], "history");
    assert_eq!(
        (&kept["kind"], &kept["status"]),
        (&json!("test"), &json!("failure"))
    );
    assert_eq!(kept["project"]["counts"], counts, "{kept:#}");
    assert_eq!(failed(&kept["project"])["name"], "test_b");
    assert!(kept["stderr"]["data"].as_str().unwrap().contains("test_b"));
}

#[test]
fn tests_are_counted_for_whoever_follows_and_cancelling_keeps_what_was_told() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let tests = "import time, unittest\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        pass\n    def test_b(self):\n        time.sleep(600)\n";
    let files =
        json!([{"path": "setup.cfg", "content": ""}, {"path": "test_x.py", "content": tests}]);
    let request = json!({"project": {"action": "test"}, "files": files, "wait": false});
    let reply = daemon.post("/v1/runs", &request).unwrap();
    assert_eq!(reply.status, 202, "{}", reply.text());
    let id = reply.json()["run_id"].as_str().unwrap().to_owned();
    let mut events = followed(&daemon, &id).unwrap();
    let progress = loop {
        let (_, name, data) = read_event(&mut events).unwrap().expect("it goes on");
        if name == "progress" && data["counts"]["passed"] == 1 {
            break data;
        }
        assert_ne!(name, "end", "{data:#}");
    };
    assert_eq!(
        (&progress["step"], &progress["attempt"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(progress["project"], "setup.cfg");
    let end = canceled(&daemon, &id, &mut events).unwrap();
    assert_eq!(end["status"], "canceled", "{end:#}");
    assert_eq!(end["project"]["verdict"], "stopped");
    let first = &end["project"]["projects"][0]["steps"][0]["tests"]["cases"][0];
    assert_eq!(
        (&first["name"], &first["status"]),
        (&json!("test_a"), &json!("passed")),
        "{end:#}"
    );
    daemon
        .until("/v1/runs", |_| nothing_is_left(&daemon))
        .unwrap();
}

#[test]
fn the_program_of_a_project_that_was_sent_answers_with_its_output_and_its_own_exit_code() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let program = "import os, sys\nprint('given', sys.argv[1:], os.environ['WORD'])\nprint('aside', file=sys.stderr)\nsys.exit(7)\n";
    let archive = tar(&[("setup.cfg", ""), ("main.py", program)]).unwrap();
    let project = json!({"action": "run", "args": ["a", "b c"]});
    let request = json!({"project": project, "env": {"WORD": "yes"}});
    let reply = send(&daemon, &request, &archive).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let run = reply.json();
    assert_eq!(
        (&run["kind"], &run["status"], &run["exit_code"]),
        (&json!("command"), &json!("failure"), &json!(7)),
        "{run:#}"
    );
    // Nothing of ours stands between what the program prints.
    assert_eq!(
        (&run["stdout"]["data"], &run["stderr"]["data"]),
        (&json!("given ['a', 'b c'] yes\n"), &json!("aside\n")),
        "{run:#}"
    );
    assert_eq!(
        (&run["project"]["action"], &run["project"]["exit_code"]),
        (&json!("run"), &json!(7)),
        "{run:#}"
    );
    // What has no program says so, in the words of the API.
    let none = tar(&[("setup.cfg", ""), ("test_x.py", PASSES)]).unwrap();
    let refused = send(&daemon, &json!({"project": {"action": "run"}}), &none).unwrap();
    assert_eq!(refused.error(), (400, "input.invalid".to_owned()));
    assert!(
        refused.text().contains("there is no program here"),
        "{}",
        refused.text()
    );
    assert!(nothing_is_left(&daemon));
}

#[test]
fn what_the_program_of_a_project_prints_is_followed_while_it_runs() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let program = "import time\nprint('begun', flush=True)\ntime.sleep(600)\n";
    let archive = tar(&[("setup.cfg", ""), ("main.py", program)]).unwrap();
    let request = json!({"project": {"action": "run"}, "wait": false});
    let reply = send(&daemon, &request, &archive).unwrap();
    assert_eq!(reply.status, 202, "{}", reply.text());
    let id = reply.json()["run_id"].as_str().unwrap().to_owned();
    let mut events = followed(&daemon, &id).unwrap();
    // Which of the two comes first is nobody's promise.
    let (mut said, mut step) = (String::new(), None);
    while said != "begun\n" || step.is_none() {
        let (_, name, data) = read_event(&mut events).unwrap().expect("it goes on");
        match name.as_str() {
            "output" => said.push_str(data["data"].as_str().unwrap()),
            "progress" => step = Some(data),
            _ => assert_ne!(name, "end", "{data:#}"),
        }
    }
    let step = step.unwrap();
    assert_eq!(step["project"], "setup.cfg", "{step:#}");
    let end = canceled(&daemon, &id, &mut events).unwrap();
    assert_eq!(end["status"], "canceled", "{end:#}");
    let run = daemon.get(&format!("/v1/runs/{id}")).unwrap().json();
    assert_eq!(run["stdout"]["data"], "begun\n", "{run:#}");
    daemon
        .until("/v1/runs", |_| nothing_is_left(&daemon))
        .unwrap();
}

#[test]
fn a_git_bundle_is_cloned_inside_the_sandbox() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let repository = tempfile::tempdir().unwrap();
    let dir = repository.path();
    git(dir, &["init", "--quiet", "."]).unwrap();
    std::fs::write(dir.join("setup.cfg"), "").unwrap();
    std::fs::write(dir.join("test_x.py"), PASSES).unwrap();
    git(dir, &["add", "."]).unwrap();
    git(dir, &["commit", "--quiet", "--message", "x"]).unwrap();
    git(
        dir,
        &[
            "bundle",
            "create",
            "--quiet",
            "whole.bundle",
            "HEAD",
            "main",
        ],
    )
    .unwrap();
    git(
        dir,
        &["bundle", "create", "--quiet", "headless.bundle", "main"],
    )
    .unwrap();
    let whole = std::fs::read(dir.join("whole.bundle")).unwrap();
    let headless = std::fs::read(dir.join("headless.bundle")).unwrap();
    let run = send(&daemon, &json!({"project": {"action": "test"}}), &whole).unwrap();
    assert_eq!(
        run.json()["project"]["counts"]["passed"],
        1,
        "{}",
        run.text()
    );
    let named = json!({"project": {"action": "test", "ref": "main"}});
    let run = send(&daemon, &named, &headless).unwrap();
    assert_eq!(
        run.json()["project"]["counts"]["passed"],
        1,
        "{}",
        run.text()
    );
    let refused = send(&daemon, &json!({"project": {"action": "test"}}), &headless).unwrap();
    assert_eq!(refused.error(), (400, "input.invalid".to_owned()));
    assert!(refused.text().contains("project.ref"), "{}", refused.text());
    let refused = send(
        &daemon,
        &json!({"project": {"action": "test", "ref": "no"}}),
        &whole,
    )
    .unwrap();
    assert!(refused.text().contains("git says"), "{}", refused.text());
}

/// One entry of a tar archive, written by hand: no tool would write these.
fn entry(name: &str, kind: u8, link: &str, content: &[u8]) -> Vec<u8> {
    let mut head = vec![0_u8; 512];
    let mut put = |at: usize, text: &[u8]| head[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link.as_bytes());
    put(257, b"ustar\x0000");
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    head.extend(content);
    head.resize(head.len().next_multiple_of(512), 0);
    head
}

#[test]
fn an_archive_that_reaches_outside_changes_nothing_there() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap().to_owned();
    let mut archive = Vec::new();
    archive.extend(entry("setup.cfg", b'0', "", b""));
    archive.extend(entry("test_x.py", b'0', "", PASSES.as_bytes()));
    archive.extend(entry("link", b'2', &target, b""));
    archive.extend(entry("link/planted", b'0', "", b"x"));
    archive.extend(entry(&format!("{target}/absolute"), b'0', "", b"x"));
    archive.extend(entry("../../above", b'0', "", b"x"));
    archive.extend(entry("dist", b'2', "/etc", b""));
    archive.resize(archive.len() + 1024, 0);
    let request = json!({"project": {"action": "test", "keep": ["dist"]}});
    let reply = send(&daemon, &request, &archive).unwrap();
    // Whether tar passes it by or refuses the whole: nothing is written outside, and no link is followed.
    assert!([200, 400].contains(&reply.status), "{}", reply.text());
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    let data = daemon.dir.path().join("data");
    assert!(!data.join("above").exists() && !data.join("work/above").exists());
    let run = reply.json();
    let kept = run["artifacts"].as_array().cloned().unwrap_or_default();
    assert!(
        kept.iter()
            .all(|file| !file["path"].as_str().unwrap().starts_with("dist")),
        "{run:#}"
    );
}

#[test]
fn a_link_to_a_directory_outside_is_not_kept_as_an_artifact() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let config =
        "commands:\n  make: mkdir out && echo hello > out/a.txt && ln -s /etc dist && echo done\n";
    let archive = tar(&[(".agent/config.yml", config)]).unwrap();
    let project = json!({"action": "task", "task": "make", "keep": ["out", "dist", "no"]});
    let reply = send(&daemon, &json!({"project": project}), &archive).unwrap();
    let run = reply.json();
    assert_eq!(
        (&run["status"], &run["kind"]),
        (&json!("success"), &json!("build")),
        "{run:#}"
    );
    let names: Vec<&str> = run["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"out/a.txt"), "{names:?}");
    assert!(
        names
            .iter()
            .all(|name| name.starts_with("out/") || name.starts_with("cofferdam-reports/")),
        "{names:?}"
    );
    let left: Vec<&str> = run["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    assert_eq!(left, ["dist", "no"], "{run:#}");
    let id = run["run_id"].as_str().unwrap();
    let content = daemon
        .get(&format!("/v1/runs/{id}/artifacts/out/a.txt"))
        .unwrap();
    assert_eq!(content.text(), "hello\n");
}

#[test]
fn a_limit_ends_a_project_and_what_its_tests_told_before_is_there() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let tests = "import time, unittest\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        pass\n    def test_b(self):\n        time.sleep(600)\n";
    let archive = tar(&[("setup.cfg", ""), ("test_x.py", tests)]).unwrap();
    let request = json!({"project": {"action": "test"}, "limits": {"wall_time_ms": 15_000}});
    let run = send(&daemon, &request, &archive).unwrap().json();
    assert_eq!(
        (&run["status"], &run["ending"]["kind"]),
        (&json!("timeout"), &json!("stopped")),
        "{run:#}"
    );
    assert_eq!(run["project"]["counts"]["passed"], 1, "{run:#}");
    // An archive that unfolds to more than the disk limit is ended while it is unpacked.
    let zeros = "0".repeat(40 << 20);
    let bomb = tar(&[("setup.cfg", ""), ("zeros", &zeros)]).unwrap();
    assert!(bomb.len() < 1 << 20, "{}", bomb.len());
    let request = json!({"project": {"action": "build"}, "limits": {"disk_bytes": 8 << 20}});
    let run = send(&daemon, &request, &bomb).unwrap().json();
    assert_eq!(run["status"], "limit", "{run:#}");
    assert!(nothing_is_left(&daemon));
}

#[test]
fn a_flood_of_tests_is_counted_and_only_part_of_it_is_kept() {
    let daemon = Daemon::start(|_| {}).unwrap();
    // What a test prints may look like a thousand others.
    let tests = "import sys, unittest\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        for n in range(25000):\n            print(f't{n} (m.T) ... ok', file=sys.stderr)\n    def test_b(self):\n        self.fail('no')\n";
    let archive = tar(&[("setup.cfg", ""), ("test_x.py", tests)]).unwrap();
    let request = json!({"project": {"action": "test", "repeat": 3}});
    let run = send(&daemon, &request, &archive).unwrap().json();
    let project = &run["project"];
    let total = project["counts"]["total"].as_u64().unwrap_or_default();
    assert!((25_000..25_010).contains(&total), "{}", project["counts"]);
    assert_eq!(project["counts"]["failed"], 1, "{}", project["counts"]);
    let steps = project["projects"][0]["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 3);
    let cases = steps
        .iter()
        .map(|step| step["tests"]["cases"].as_array().map_or(0, Vec::len));
    assert!(cases.sum::<usize>() < 21_000);
    for step in steps {
        let cases = step["tests"]["cases"].as_array().unwrap();
        let failed = cases.iter().filter(|case| case["status"] == "failed");
        assert_eq!(failed.count(), 1, "failures are kept in every attempt");
        let said = step["tests"]["problems"][0].as_str().unwrap_or_default();
        assert!(said.contains("kept one by one"), "{said}");
    }
    assert!(nothing_is_left(&daemon));
}

#[test]
fn what_cannot_be_done_is_said_with_a_way_out() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let empty = tar(&[("README", "x")]).unwrap();
    let project = tar(&[("setup.cfg", ""), ("test_x.py", PASSES)]).unwrap();
    let cases: [(Value, &[u8], &str); 6] = [
        (
            json!({"project": {"action": "test"}}),
            &empty,
            "there is no project here",
        ),
        (
            json!({"project": {"action": "test"}}),
            b"PK\x03\x04",
            "neither a tar archive",
        ),
        (
            json!({"project": {"action": "test"}}),
            b"\x1f\x8bnonsense",
            "tar says",
        ),
        (
            json!({"project": {"action": "test", "only": ["x"]}}),
            &project,
            "project.only: there is no such project",
        ),
        (
            json!({"project": {"action": "task", "task": "x"}}),
            &project,
            ".agent/config.yml",
        ),
        (
            json!({"project": {"action": "test"}, "command": ["true"]}),
            &project,
            "is given beside project",
        ),
    ];
    for (request, archive, words) in cases {
        let reply = send(&daemon, &request, archive).unwrap();
        assert_eq!(
            reply.error(),
            (400, "input.invalid".to_owned()),
            "{request} {}",
            reply.text()
        );
        assert!(reply.text().contains(words), "{words}: {}", reply.text());
    }
    let alone = daemon
        .post("/v1/runs", &json!({"project": {"action": "test"}}))
        .unwrap();
    assert!(alone.text().contains("send an archive"), "{}", alone.text());
    let unwanted = send(&daemon, &json!({"command": ["true"]}), &project).unwrap();
    assert_eq!(unwanted.error().0, 400);
    let began = std::time::Instant::now();
    while !nothing_is_left(&daemon) {
        assert!(began.elapsed() < crate::support::PATIENCE);
        std::thread::sleep(crate::support::AGAIN);
    }
}

#[test]
fn two_runs_of_tests_are_compared_and_all_tests_are_counted() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let run = |body: &str| {
        let tests = format!(
            "import unittest\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        {body}\n    def test_b(self):\n        pass\n"
        );
        let archive = tar(&[("setup.cfg", ""), ("test_x.py", &tests)]).unwrap();
        let run = send(&daemon, &json!({"project": {"action": "test"}}), &archive)
            .unwrap()
            .json();
        run["run_id"].as_str().unwrap().to_owned()
    };
    let (good, bad) = (run("pass"), run("self.fail()"));
    let diff = daemon
        .get(&format!("/v1/runs/{good}/diff/{bad}"))
        .unwrap()
        .json();
    assert_eq!(
        diff["newly_failing"],
        json!(["test_x.T › test_a"]),
        "{diff:#}"
    );
    let diff = daemon
        .get(&format!("/v1/runs/{bad}/diff/{good}"))
        .unwrap()
        .json();
    assert_eq!(
        (&diff["fixed"], &diff["newly_failing"]),
        (&json!(["test_x.T › test_a"]), &json!([])),
        "{diff:#}"
    );
    let plain = daemon
        .post("/v1/runs", &json!({"command": ["true"]}))
        .unwrap()
        .json();
    let plain = plain["run_id"].as_str().unwrap();
    let refused = daemon
        .get(&format!("/v1/runs/{good}/diff/{plain}"))
        .unwrap();
    assert_eq!(refused.error(), (400, "input.invalid".to_owned()));
    let unknown = daemon.get(&format!("/v1/runs/{good}/diff/none")).unwrap();
    assert_eq!(unknown.status, 404);
    let metrics = daemon.get("/metrics").unwrap().text();
    for line in [
        "project_tests_total{status=\"passed\"} 3",
        "project_tests_total{status=\"failed\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}
