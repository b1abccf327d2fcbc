//! The programs in `examples/` that talk to a daemon, as users start them: with one that runs already, and with none.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cofferdam_testkit::desk::{stderr, stdout, told};
use cofferdam_testkit::{Host, Need, Way, host};
use serde_json::Value;

use crate::daemon::Daemon;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// A program of the examples with an environment of its own; nothing is written into the tree.
fn python(host: &Host, program: &str, args: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command
        .arg(examples().join(program))
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", host.dir())
        .env("TMPDIR", host.dir())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// The same, asking this daemon.
fn ask(host: &Host, daemon: &Daemon<'_>, program: &str, args: &[&str]) -> Output {
    let url = format!("http://{}", daemon.address);
    let mut command = python(host, program, args);
    command.env("COFFERDAM_URL", url).output().unwrap()
}

fn lines(done: &Output) -> Vec<Value> {
    let text = stdout(done);
    let read = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{}", told(done)));
    text.lines().map(read).collect()
}

#[test]
fn the_agent_repairs_what_it_wrote_until_it_is_right() {
    let host = host!(Need::Python);
    let daemon = Daemon::start(&host, Way::User, &["--grace", "1s"]);
    let done = ask(&host, &daemon, "agent.py", &[]);
    assert_eq!(done.status.code(), Some(0), "{}", told(&done));
    let text = stdout(&done);
    let signs = [
        "Write handler(n)",
        "attempt 1: handler(10) raised NameError: name 'is_prime' is not defined",
        "attempt 2: handler(10) returned 18, which is wrong",
        "attempt 3: handler(100000) stopped: CPU time limit of 1 s used up",
        "attempt 4: right",
    ];
    assert_eq!(text.lines().count(), signs.len(), "{text}");
    for (line, sign) in text.lines().zip(signs) {
        assert!(line.starts_with(sign), "{sign}: {text}");
    }
    daemon.end();
}

#[test]
fn the_judge_compiles_once_and_names_verdicts_as_judges_do() {
    let host = host!(Need::Gcc, Need::Python);
    let daemon = Daemon::start(&host, Way::all()[0], &["--grace", "1s"]);
    let done = ask(&host, &daemon, "judge/judge.py", &["--json"]);
    assert_eq!(done.status.code(), Some(1), "{}", told(&done));
    let reports = lines(&done);
    let found: Vec<_> = reports.iter().map(verdicts).collect();
    let expected = [
        ("accepted.c", "AC", 100),
        ("broken.c", "CE", 0),
        ("deep.c", "RE", 98),
        ("hungry.c", "MLE", 98),
        ("slow.c", "TLE", 98),
        ("wrong.c", "WA", 0),
    ];
    for ((name, verdict, right), (expected, is, at_least)) in found.iter().zip(expected) {
        assert_eq!((name.as_str(), verdict.as_str()), (expected, is));
        assert!(*right >= at_least, "{name}: {}", told(&done));
    }
    assert_eq!(found.len(), expected.len(), "{}", told(&done));
    let detail = reports[1]["detail"].as_str().unwrap();
    assert!(detail.contains("main.c:5:"), "{detail}");
    daemon.end();
}

/// The submission, the verdict on it, and how many tests it passed.
fn verdicts(report: &Value) -> (String, String, usize) {
    let word = |field: &str| report[field].as_str().unwrap().to_owned();
    let tests = report["tests"].as_array().unwrap();
    let right = tests.iter().filter(|test| test["verdict"] == "AC").count();
    (word("submission"), word("verdict"), right)
}

#[test]
fn the_reward_worker_pays_for_tests_that_returned_and_for_nothing_else() {
    let host = host!(Need::Python);
    let daemon = Daemon::start(&host, Way::User, &["--grace", "1s"]);
    let done = ask(&host, &daemon, "reward/reward.py", &["--at-once", "4"]);
    assert_eq!(done.status.code(), Some(0), "{}", told(&done));
    let rewards = lines(&done);
    let found: Vec<_> = rewards
        .iter()
        .map(|one| {
            (
                one["reward"].as_u64().unwrap(),
                one["why"].as_str().unwrap(),
            )
        })
        .collect();
    // Right ones first; then wrong ones, an endless one, one that throws, two that end with 0 instead of answering, a right one, and a large one.
    let mut expected = vec![(1, "passed"); 6];
    expected.extend([
        (0, "AssertionError"),
        (0, "AssertionError"),
        (0, "cpu_time"),
        (0, "SyntaxError"),
        (0, "SystemExit"),
        (1, "passed"),
        (0, "memory"),
    ]);
    assert_eq!(found[..expected.len()], expected, "{}", told(&done));
    assert_eq!(found.len(), 14);
    assert_eq!(found[13].0, 0, "{}", told(&done));
    assert!(
        stderr(&done).starts_with("7 of 14 passed (50.0%)"),
        "{}",
        told(&done)
    );
    daemon.end();
}

#[test]
fn an_example_starts_a_daemon_where_there_is_none_and_leaves_nothing_of_it() {
    let host = host!(Need::Python);
    let solution = host.dir().join("one.jsonl");
    let line = r#"{"task_id": "sample/3", "completion": "    return True\n"}"#;
    std::fs::write(&solution, line).unwrap();
    let solution = solution.to_str().unwrap();
    let mut command = python(&host, "reward/reward.py", &["--completions", solution]);
    let done = command.env("COFFERDAM", host.binary()).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", told(&done));
    assert_eq!(lines(&done)[0]["why"], "AssertionError");
    let left = std::fs::read_dir(host.dir()).unwrap().flatten();
    let left: Vec<_> = left
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().starts_with("example-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");

    // And says what to do where it cannot.
    let mut command = python(&host, "agent.py", &[]);
    command.env("CARGO_TARGET_DIR", host.dir()).env("PATH", "");
    let done = command.output().unwrap();
    assert_eq!(done.status.code(), Some(1), "{}", told(&done));
    assert!(
        stderr(&done).contains("build it with `cargo build --release`"),
        "{}",
        told(&done)
    );
}
