//! The whole way of a payload: sealed, executed, verified; and every way in which a stranger can get it wrong or lie about it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test file: what fails here fails the test"
)]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with the files of one exchange.
struct Desk {
    dir: TempDir,
}

impl Desk {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Seals a draft, which must be good, into a file.
    fn seal(&self, draft: &Value) -> PathBuf {
        let draft = self.write("draft.json", draft.to_string());
        let sealed = cofferdam(&["seal".as_ref(), draft.as_ref()]);
        assert_eq!(code(&sealed), 0, "{}", stderr(&sealed));
        assert!(sealed.stdout.ends_with(b"}\n"));
        self.write("payload.json", sealed.stdout)
    }

    /// Seals and executes; the exit code must fit the status.
    fn execute(&self, draft: &Value) -> Value {
        let payload = self.seal(draft);
        let done = cofferdam(&["execute".as_ref(), payload.as_ref()]);
        let envelope: Value = serde_json::from_slice(&done.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", stderr(&done)));
        let expected = if envelope["status"] == "SUCCESS" {
            0
        } else {
            1
        };
        assert_eq!(code(&done), expected, "{envelope:#}");
        self.write("envelope.json", done.stdout);
        envelope
    }

    /// What `verify --json` says about the payload and this envelope.
    fn verify(&self, envelope: &Value) -> (i32, Value) {
        let envelope = self.write("claimed.json", envelope.to_string());
        let payload = self.path("payload.json");
        let done = cofferdam(&[
            "verify".as_ref(),
            payload.as_ref(),
            envelope.as_ref(),
            "--json".as_ref(),
        ]);
        let findings = serde_json::from_slice(&done.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", stderr(&done)));
        (code(&done), findings)
    }

    fn assert_holds(&self, envelope: &Value) {
        let good = json!({ "holds": true, "problems": [], "rerun": null });
        assert_eq!(self.verify(envelope), (0, good));
    }

    /// The one verdict, and that the envelope which carries it holds.
    fn assert_violates(&self, envelope: &Value, violation: &str) {
        assert_eq!(envelope["status"], "ERROR", "{envelope:#}");
        assert_eq!(envelope["verdict"]["violation"], violation, "{envelope:#}");
        assert_eq!(envelope["output"], Value::Null);
        self.assert_holds(envelope);
    }
}

/// What these tests run is nobody's history.
fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
    command.env("COFFERDAM_HISTORY", "off");
    command
}

fn cofferdam(args: &[&std::ffi::OsStr]) -> Output {
    binary().args(args).stdin(Stdio::null()).output().unwrap()
}

fn cofferdam_fed(args: &[&str], input: &[u8]) -> Output {
    let mut child = binary()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // Whoever refuses early closes early: a broken pipe is no failure of the test.
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let done = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    done
}

fn code(done: &Output) -> i32 {
    done.status
        .code()
        .expect("cofferdam ends by itself, never by a signal")
}

fn stderr(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

/// Refused with this code on every line, exit code 125, nothing on stdout, and no panic.
fn assert_refused(done: &Output, error_code: &str) {
    let said = stderr(done);
    assert_eq!(code(done), 125, "{said}");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "");
    assert!(!said.is_empty() && !said.contains("panicked"), "{said}");
    for line in said.lines() {
        assert!(line.starts_with("cofferdam: "), "{said}");
        assert!(line.ends_with(&format!("[{error_code}]")), "{said}");
    }
}

fn shell(script: &str) -> Value {
    json!({
        "contract_id": "CONTRACT-1",
        "scope": "a test",
        "task": { "kind": "command", "argv": ["/bin/sh", "-c", script] },
    })
}

fn with(mut draft: Value, field: &str, value: impl Into<Value>) -> Value {
    draft[field] = value.into();
    draft
}

/// Adds the numbers that it reads, and says so in six lines.
fn sum() -> Value {
    let script = "read -r a b c; for i in 1 2 3 4 5 6; do echo step $i >&2; done; echo \"{\\\"sum\\\": $((a+b+c))}\"";
    let mut draft = with(
        shell(script),
        "expected_output_format",
        json!({ "type": "object", "properties": { "sum": { "type": "integer" } }, "required": ["sum"] }),
    );
    draft["task"]["stdin"] = json!("1 2 3\n");
    draft
}

fn has_memory_group() -> bool {
    let done = cofferdam(&["doctor".as_ref(), "--json".as_ref()]);
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    let limits = report["limits"].as_array().unwrap();
    let memory = limits.iter().find(|limit| limit["limit"] == "memory");
    memory.unwrap()["exactness"] == "kernel"
}

#[test]
fn a_sum_is_a_success_with_its_log_and_its_proof() {
    let desk = Desk::new();
    let envelope = desk.execute(&sum());
    assert_eq!(envelope["status"], "SUCCESS", "{envelope:#}");
    assert_eq!(envelope["output"], json!({ "sum": 6 }));
    let logs: Vec<String> = (1..=6).map(|i| format!("step {i}")).collect();
    assert_eq!(envelope["logs"], json!(logs));
    assert_eq!(envelope["worker_id"], "local");
    assert_eq!(envelope["verdict"], Value::Null);
    assert_eq!(envelope["partial_output"], Value::Null);
    desk.assert_holds(&envelope);
}

#[test]
fn a_rerun_agrees_with_the_truth_and_not_with_a_lie() {
    let desk = Desk::new();
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
    let desk = Desk::new();
    let mark = desk.path("mark");
    let payload = desk.seal(&with(
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
            desk.dir.path().as_ref(),
        ]);
        assert_refused(&done, "payload.digest_mismatch");
    }
    assert!(!mark.exists(), "something ran");
}

#[test]
fn a_workspace_is_writable_only_if_the_payload_says_so() {
    let desk = Desk::new();
    let run = |draft: &Value| {
        let payload = desk.seal(draft);
        let done = cofferdam(&[
            "execute".as_ref(),
            payload.as_ref(),
            "--workspace".as_ref(),
            desk.dir.path().as_ref(),
        ]);
        code(&done)
    };
    let draft = shell("echo made > /work/made");
    assert_eq!(run(&draft), 1);
    assert!(!desk.path("made").exists());
    assert_eq!(run(&with(draft, "filesystem_write", true)), 0);
    assert_eq!(fs::read_to_string(desk.path("made")).unwrap(), "made\n");
}

#[test]
fn whoever_changes_an_envelope_is_noticed() {
    let desk = Desk::new();
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
    let desk = Desk::new();
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
    let desk = Desk::new();
    desk.seal(&sum());
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
    let desk = Desk::new();
    let mut draft = with(shell("echo 1"), "created_at", "2020-01-01T00:00:00Z");
    draft["deadline"] = json!("2020-01-01T00:05:00Z");
    let payload = desk.seal(&draft);
    assert_refused(
        &cofferdam(&["execute".as_ref(), payload.as_ref()]),
        "payload.expired",
    );
    let fresh = Desk::new();
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

#[test]
fn all_problems_of_a_draft_are_named_at_once() {
    let draft = json!({ "scope": " ", "task": { "kind": "command", "argv": [] }, "max_memory_mb": 0, "max_cpus": 1e300, "colour": "red" });
    let done = cofferdam_fed(&["seal", "-"], draft.to_string().as_bytes());
    assert_refused(&done, "payload.invalid");
    let said = stderr(&done);
    for field in [
        "contract_id",
        "scope",
        "task.argv",
        "max_memory_mb",
        "max_cpus",
        "colour",
    ] {
        assert!(said.contains(&format!("cofferdam: {field}")), "{said}");
    }
}

#[test]
fn json_that_two_readers_could_read_differently_is_refused_with_its_place() {
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    for (text, place) in [
        (
            "{\n  \"scope\": \"a\",\n  \"scope\": \"b\"\n}",
            "line 3, column",
        ),
        ("{\"max_memory_mb\": 9007199254740993}", "line 1, column"),
        (
            "{\"max_memory_mb\": 123456789012345678901234567890}",
            "line 1, column",
        ),
        ("{\"scope\": \"\\ud800\"}", "line 1, column"),
        ("{} {}", "line 1, column 4"),
        ("{\"a\": NaN}", "line 1, column"),
        ("{\"a\": 1,}", "line 1, column"),
        ("", "line 1, column 1"),
        (&deep, "more than 64 deep"),
    ] {
        for verb in ["seal", "execute"] {
            let done = cofferdam_fed(&[verb, "-"], text.as_bytes());
            assert_refused(&done, "input.malformed_json");
            assert!(stderr(&done).contains(place), "{}", stderr(&done));
        }
    }
    let done = cofferdam_fed(&["seal", "-"], b"{\"scope\": \"\xff\"}");
    assert_refused(&done, "input.malformed_json");
}

#[test]
fn what_cannot_be_read_is_said_and_never_waited_for() {
    let desk = Desk::new();
    let large = desk.path("large.json");
    fs::File::create(&large).unwrap().set_len(20 << 20).unwrap();
    let seal = |path: &Path| {
        let begun = Instant::now();
        let done = cofferdam(&["seal".as_ref(), path.as_ref()]);
        assert!(begun.elapsed() < Duration::from_secs(10));
        done
    };
    assert_refused(&seal(&large), "input.malformed_json");
    assert_refused(&seal(Path::new("/dev/zero")), "input.malformed_json");
    assert_refused(&seal(desk.dir.path()), "input.unreadable");
    assert_refused(&seal(&desk.path("absent")), "input.unreadable");
    let fifo = desk.path("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
    assert_refused(&seal(&fifo), "input.unreadable");
    let done = cofferdam_fed(&["seal", "-"], &vec![b' '; 17 << 20]);
    assert_refused(&done, "input.malformed_json");
}

#[test]
fn a_pipe_with_a_writer_is_read() {
    let desk = Desk::new();
    let fifo = desk.path("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
    let (path, text) = (fifo.clone(), sum().to_string());
    let writer = std::thread::spawn(move || fs::write(path, text).unwrap());
    let done = cofferdam(&["seal".as_ref(), fifo.as_ref()]);
    writer.join().unwrap();
    assert_eq!(code(&done), 0, "{}", stderr(&done));
}

#[test]
fn output_that_breaks_its_schema_is_malformed() {
    let desk = Desk::new();
    let mut draft = sum();
    for script in [
        "echo '{\"sum\": \"six\"}'",
        "echo '{}'",
        "echo not json",
        "true",
        "echo '{\"sum\":1,\"sum\":1}'",
    ] {
        draft["task"]["argv"][2] = json!(script);
        let envelope = desk.execute(&draft);
        desk.assert_violates(&envelope, "MALFORMED_RESULT");
    }
}

#[test]
fn wall_time_ends_in_a_timeout_with_what_was_written_so_far() {
    let desk = Desk::new();
    let draft = with(
        shell("echo begun; exec sleep 5"),
        "max_runtime_seconds",
        0.4,
    );
    let begun = Instant::now();
    let envelope = desk.execute(&draft);
    assert!(begun.elapsed() < Duration::from_secs(3));
    desk.assert_violates(&envelope, "TIMEOUT");
    assert_eq!(envelope["partial_output"]["stdout"]["data"], "begun\n");
    assert_eq!(
        envelope["verdict"]["limit"],
        json!({ "value": 0.4, "unit": "seconds" })
    );
}

#[test]
fn cpu_time_of_the_whole_tree_is_bounded() {
    let desk = Desk::new();
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
    let desk = Desk::new();
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
    let desk = Desk::new();
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
    let desk = Desk::new();
    let script = "i=0; while [ $i -lt 100 ]; do printf '\\001\\001\\001\\001\\001\\001\\001\\001'; i=$((i+1)); done";
    let envelope = desk.execute(&with(shell(script), "max_output_size_kb", 1));
    desk.assert_violates(&envelope, "OUTPUT_TOO_LARGE");
}

#[test]
fn processes_are_bounded() {
    let desk = Desk::new();
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
    let desk = Desk::new();
    let script = "while echo 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef; do :; done > /tmp/f; exit 1";
    let envelope = desk.execute(&with(shell(script), "max_disk_mb", 1));
    desk.assert_violates(&envelope, "DISK_LIMIT_EXCEEDED");
}

#[test]
fn a_program_that_fails_or_is_missing_is_an_answer() {
    let desk = Desk::new();
    let envelope = desk.execute(&shell("echo why >&2; exit 3"));
    assert_eq!(envelope["error_message"], "the program returned 3");
    assert_eq!(envelope["logs"], json!(["why"]));
    desk.assert_holds(&envelope);
    for argv in [json!(["no-such-program"]), json!(["/etc/passwd"])] {
        let mut draft = shell("");
        draft["task"]["argv"] = argv;
        let envelope = desk.execute(&draft);
        assert_eq!(envelope["status"], "ERROR");
        assert!(
            envelope["error_message"]
                .as_str()
                .unwrap()
                .contains("never started (program."),
            "{envelope:#}"
        );
        desk.assert_holds(&envelope);
    }
}

#[test]
fn a_person_who_ends_it_gets_an_answer_that_says_so() {
    let desk = Desk::new();
    let draft = with(
        shell("echo begun; echo > /work/begun; exec sleep 30"),
        "filesystem_write",
        true,
    );
    let payload = desk.seal(&draft);
    let child = binary()
        .args(["execute".as_ref(), payload.as_os_str()])
        .args(["--workspace".as_ref(), desk.dir.path().as_os_str()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !desk.path("begun").exists() {
        assert!(begun.elapsed() < Duration::from_secs(10));
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let done = child.wait_with_output().unwrap();
    let envelope: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(code(&done), 1);
    assert_eq!(envelope["partial_output"]["stdout"]["data"], "begun\n");
    desk.assert_violates(&envelope, "CANCELED");
}

#[test]
fn a_project_task_is_carried_out_and_its_results_are_the_output() {
    let desk = Desk::new();
    let project = desk.path("project");
    fs::create_dir(&project).unwrap();
    let tests = |second: &str| {
        format!(
            "import unittest\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        open('made', 'w').close()\n    def test_b(self):\n        {second}\n"
        )
    };
    fs::write(project.join("setup.cfg"), "").unwrap();
    fs::write(project.join("test_x.py"), tests("pass")).unwrap();
    let task = json!({ "kind": "project", "action": "test" });
    let draft = with(shell(""), "task", task);
    let form = json!({ "type": "object" });
    let payload = desk.seal(&with(draft, "expected_output_format", form));
    let execute = |more: &[&str]| {
        let mut args = vec!["execute".as_ref(), payload.as_os_str()];
        args.extend(more.iter().map(std::ffi::OsStr::new));
        cofferdam(&args)
    };
    let place = project.to_str().unwrap();
    let done = execute(&["--workspace", place]);
    let envelope: Value = serde_json::from_slice(&done.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&done)));
    assert_eq!(
        (code(&done), &envelope["status"]),
        (0, &json!("SUCCESS")),
        "{envelope:#}"
    );
    let output = &envelope["output"];
    assert_eq!(
        output["counts"],
        json!({"total": 2, "passed": 2, "failed": 0, "skipped": 0})
    );
    assert_eq!(
        output["projects"][0]["tests"][1]["status"], "passed",
        "{output:#}"
    );
    // The payload does not allow writing: what the tests wrote is gone.
    assert!(!project.join("made").exists());
    desk.assert_holds(&envelope);
    let claimed = desk.write("claimed.json", envelope.to_string());
    let again = cofferdam(&[
        "verify".as_ref(),
        payload.as_ref(),
        claimed.as_ref(),
        "--rerun".as_ref(),
        "--workspace".as_ref(),
        project.as_ref(),
    ]);
    assert_eq!(code(&again), 0, "{}", stderr(&again));
    fs::write(project.join("test_x.py"), tests("self.fail('no')")).unwrap();
    let failed = execute(&["--workspace", place]);
    let envelope: Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!(
        (code(&failed), &envelope["status"]),
        (1, &json!("ERROR")),
        "{envelope:#}"
    );
    let told = envelope["partial_output"]["stdout"]["data"]
        .as_str()
        .unwrap();
    assert!(told.contains(r#""failed":1"#), "{told}");
    assert_refused(&execute(&[]), "input.invalid");
    assert_refused(
        &execute(&["--workspace", place, "--backend", "host"]),
        "backend.unsupported_task",
    );
}

#[test]
fn what_this_version_cannot_do_is_refused_and_not_tried() {
    let desk = Desk::new();
    let execute = |draft: &Value| {
        let payload = desk.seal(draft);
        cofferdam(&["execute".as_ref(), payload.as_ref()])
    };
    for task in [
        json!({ "kind": "project", "action": "run" }),
        json!({ "kind": "source", "language": "cobol", "code": "1" }),
    ] {
        let draft = with(shell(""), "task", task);
        assert_refused(&execute(&draft), "backend.unsupported_task");
    }
    assert_refused(
        &execute(&with(shell("true"), "network_allowed", true)),
        "payload.invalid",
    );
    assert_refused(
        &execute(&with(shell("true"), "max_output_size_kb", 1 << 20)),
        "limit.unenforceable",
    );
    let payload = desk.seal(&shell("true"));
    let done = cofferdam(&[
        "execute".as_ref(),
        payload.as_ref(),
        "--backend".as_ref(),
        "wasm".as_ref(),
    ]);
    assert_refused(&done, "backend.unsupported_task");
    let done = cofferdam(&[
        "execute".as_ref(),
        payload.as_ref(),
        "--worker".as_ref(),
        "not a name".as_ref(),
    ]);
    assert_eq!(code(&done), 125);
}

/// Names that the command line accepts are names that an envelope's reader accepts.
#[test]
fn a_worker_can_have_any_name_that_verifies() {
    let desk = Desk::new();
    let payload = desk.seal(&sum());
    for name in ["w", "_w", ":", "A.b-c_d:9", &"x".repeat(128)] {
        let done = cofferdam(&[
            "execute".as_ref(),
            payload.as_ref(),
            "--worker".as_ref(),
            name.as_ref(),
        ]);
        let envelope: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(envelope["worker_id"], name);
        desk.assert_holds(&envelope);
    }
}

#[test]
fn a_partial_output_that_json_makes_longer_still_fits_into_what_can_be_read() {
    let desk = Desk::new();
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

#[test]
fn garbage_of_every_kind_is_refused_without_a_panic() {
    let desk = Desk::new();
    let good = fs::read(desk.seal(&sum())).unwrap();
    let mut inputs: Vec<Vec<u8>> = [0, 1, 17, good.len() / 2, good.len() - 3]
        .map(|cut| good[..cut].to_vec())
        .into();
    for at in (0..good.len()).step_by(good.len() / 12) {
        let mut broken = good.clone();
        broken[at] ^= 0x55;
        inputs.push(broken);
    }
    inputs.extend(
        ["null", "0", "\"\"", "{\"digest\":1}", "[]", "1e999", "-"].map(|t| t.as_bytes().to_vec()),
    );
    for input in inputs {
        let done = cofferdam_fed(&["execute", "-"], &input);
        assert_eq!(code(&done), 125, "{}", String::from_utf8_lossy(&input));
        assert!(!stderr(&done).contains("panicked"), "{}", stderr(&done));
        assert!(!stderr(&done).is_empty());
    }
}

#[test]
fn doctor_reports_every_limit_in_a_versioned_form_and_leaves_nothing_behind() {
    let place = tempfile::tempdir().unwrap();
    let done = binary()
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
    let done = binary()
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

#[test]
fn source_code_is_executed_in_its_language_and_what_does_not_compile_is_an_answer() {
    let desk = Desk::new();
    let execute = |task: Value| {
        let payload = desk.seal(&with(shell(""), "task", task));
        let done = cofferdam(&["execute".as_ref(), payload.as_ref()]);
        serde_json::from_slice::<Value>(&done.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&done.stderr)))
    };
    let python = "import json\nprint(json.dumps({'sum': 1 + 2}))";
    let envelope = execute(json!({ "kind": "source", "language": "python", "code": python }));
    assert_eq!(envelope["status"], "SUCCESS", "{envelope}");
    assert!(envelope.to_string().contains("sum"), "{envelope}");
    if !std::path::Path::new("/usr/bin/cc").exists() {
        return;
    }
    let bad = "int main(void) { return oops; }";
    let envelope = execute(json!({ "kind": "source", "language": "c", "code": bad }));
    assert_eq!(envelope["status"], "ERROR", "{envelope}");
    assert!(envelope.to_string().contains("oops"), "{envelope}");
}
