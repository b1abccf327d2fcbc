//! Projects sent to a daemon by the command line, which shows what came of them as the verbs do that work here.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cofferdam_testkit::{Finished, Host, Need, Way, host, maven, shape};
use rustix::process::Signal;
use serde_json::json;

use crate::daemon::Daemon;

/// An interpreter on a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);

fn project(host: &Host, way: Way, tests: &str) -> PathBuf {
    let dir = host.workspace(way);
    for (name, text) in [
        ("setup.cfg", ""),
        ("test_x.py", tests),
        (".gitignore", "secret\n"),
        ("secret", "x"),
    ] {
        std::fs::write(dir.join(name), text).unwrap();
        host.give(&dir.join(name), way);
    }
    dir
}

fn submit(host: &Host, way: Way, daemon: &Daemon<'_>, dir: &Path, more: &[&str]) -> Finished {
    let server = format!("http://{}", daemon.address);
    let args = [
        "submit",
        "--server",
        &server,
        "--project",
        dir.to_str().unwrap(),
    ];
    let args = [&args, more].concat();
    host.launch(args).way(way).start().finish_within(PATIENCE)
}

#[test]
fn a_project_that_is_sent_is_told_as_one_that_is_tested_here() {
    let host = host!(Need::Python);
    let tests = "import os, unittest\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertFalse(os.path.exists('secret'))\n    def test_b(self):\n        self.assertEqual(1, 2)\n";
    for way in Way::all() {
        let daemon = Daemon::start(&host, way, &[]);
        let dir = project(&host, way, tests);
        let sent = submit(&host, way, &daemon, &dir, &["--json"]);
        assert_eq!(sent.code(), 1, "{sent:#?}");
        let told = sent.told();
        assert_eq!(told["schema"], "cofferdam.project/1", "{told:#}");
        assert_eq!(
            told["counts"],
            json!({"total": 2, "passed": 1, "failed": 1, "skipped": 0})
        );
        let junit = dir.join("out.xml");
        let sent = submit(
            &host,
            way,
            &daemon,
            &dir,
            &["--filter", "test_a", "--junit", junit.to_str().unwrap()],
        );
        assert_eq!(sent.code(), 0, "{sent:#?}");
        assert!(
            sent.out().contains("1 test: 1 passed, 0 failed, 0 skipped"),
            "{sent:#?}"
        );
        // What the tools say comes as it is said.
        assert!(sent.err().contains("test_a"), "{sent:#?}");
        assert!(std::fs::read_to_string(&junit).unwrap().contains("test_a"));
        let refused = submit(
            &host,
            way,
            &daemon,
            &dir,
            &["--action", "task", "--task", "x"],
        );
        refused.assert_refused(125, "server.refused");
        assert!(refused.err().contains(".agent/config.yml"), "{refused:#?}");
        let refused = submit(
            &host,
            way,
            &daemon,
            &dir,
            &["--filter", "x", "--action", "build"],
        );
        refused.assert_refused(125, "server.refused");
        daemon.end();
    }
    host.assert_clean();
}

#[test]
fn a_program_of_maven_that_is_sent_is_compiled_from_what_the_operator_fetched_and_started() {
    let host = host!(maven::NEEDS[0], maven::NEEDS[1], maven::NEEDS[2]);
    let way = Way::all()[0];
    let dir = host.workspace(way);
    for (name, text) in maven::PROGRAM {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let cache = host.workspace(way);
    let (place, fetched_to) = (dir.to_str().unwrap(), cache.to_str().unwrap());
    let fetch = ["build", place, "--cache-dir", fetched_to, "--json"];
    let fetched = host.launch(fetch).way(way).start().finish_within(PATIENCE);
    assert_eq!(fetched.code(), 0, "{fetched:#?}");
    let caches = host.history(way).join("caches");
    std::fs::create_dir(&caches).unwrap();
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(cache.join("maven")).arg(&caches);
    assert!(copy.status().unwrap().success());
    std::fs::write(dir.join(maven::SETTINGS), maven::NOWHERE).unwrap();
    std::fs::remove_dir_all(dir.join("target")).unwrap();
    let daemon = Daemon::start(&host, way, &[]);
    let asked = ["--action", "run", "--arg", "a", "--arg", "b c"];
    let sent = submit(&host, way, &daemon, &dir, &asked);
    assert_eq!(
        (sent.code(), sent.out().as_str()),
        (7, "java a|b c \n"),
        "{sent:#?}"
    );
    daemon.end();
    host.assert_clean();
}

#[test]
fn ending_the_client_ends_the_run_of_its_project() {
    let host = host!(Need::Python);
    let way = Way::all()[0];
    let daemon = Daemon::start(&host, way, &[]);
    let tests = "import time, unittest\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        time.sleep(600)\n";
    let dir = project(&host, way, tests);
    let server = format!("http://{}", daemon.address);
    let args = [
        "submit",
        "--server",
        &server,
        "--project",
        dir.to_str().unwrap(),
        "--json",
    ];
    let client = host.launch(args).way(way).start();
    let running = daemon.until("/v1/runs?kind=test&status=running", |list| {
        list["runs"].as_array().is_some_and(|runs| runs.len() == 2)
    });
    client.signal(Signal::INT);
    let ended = client.finish_within(PATIENCE);
    assert_eq!(ended.code(), 130, "{ended:#?}");
    assert_eq!(ended.told()["verdict"], "stopped");
    for run in running["runs"].as_array().unwrap() {
        let path = format!("/v1/runs/{}", run["run_id"].as_str().unwrap());
        daemon.until(&path, |run| run["status"] == "canceled");
    }
    daemon.end();
    host.assert_clean();
}

#[test]
fn what_happens_to_a_run_is_told_as_the_page_says() {
    let host = host!();
    let way = Way::all()[0];
    let daemon = Daemon::start(&host, way, &[]);
    let work = json!({"command": ["sh", "-c", "echo out; echo aside >&2; exit 3"], "wait": false});
    let run = daemon.post("/v1/runs", &work).json();
    let server = format!("http://{}", daemon.address);
    let args = [
        "watch",
        run["run_id"].as_str().unwrap(),
        "--server",
        &server,
    ];
    let told = [&args[..], &["--json"]].concat();
    let watched = host.launch(&told).way(way).start().finish_within(PATIENCE);
    assert_eq!(
        (watched.code(), watched.err().as_str()),
        (1, ""),
        "{watched:#?}"
    );
    let text = String::from_utf8(watched.stdout.clone()).unwrap();
    let events: Vec<_> = text
        .lines()
        .filter_map(|line| shape::read(&told, line.as_bytes()))
        .collect();
    let end = events.last().unwrap();
    assert_eq!(
        (&end["event"], &end["data"]["exit_code"]),
        (&json!("end"), &json!(3)),
        "{watched:#?}"
    );
    let said = events.iter().filter(|event| event["event"] == "output");
    assert!(said.count() >= 2, "{watched:#?}");
    daemon.end();
    host.assert_clean();
}
