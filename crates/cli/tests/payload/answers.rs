//! What a payload that is executed is answered with.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use cofferdam_testkit::desk::{code, stderr};
use cofferdam_testkit::{Desk, desk};
use serde_json::{Value, json};

use crate::exchange::{Exchange as _, assert_refused, cofferdam, shell, sum, with};

#[test]
fn a_sum_is_a_success_with_its_log_and_its_proof() {
    let desk = desk!();
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
fn an_empty_variable_counts_as_unset() {
    let desk = desk!();
    let payload = desk.sealed(&sum());
    let mut command = desk.command();
    command.env("COFFERDAM_WORKER_ID", "").arg("execute");
    let done = command.arg(payload).output().unwrap();
    let (exit, envelope) = cofferdam_testkit::desk::json(&done);
    assert_eq!((exit, &envelope["worker_id"]), (0, &json!("local")));
}

#[test]
fn output_that_is_long_when_indented_makes_an_envelope_that_can_be_read() {
    let desk = desk!();
    let script = "awk 'BEGIN { for (i = 0; i < 55; i++) printf \"[\"; for (i = 0; i < 150000; i++) printf \"1,\"; printf \"1\"; for (i = 0; i < 55; i++) printf \"]\" }'";
    let draft = with(
        shell(script),
        "expected_output_format",
        json!({ "type": "array" }),
    );
    let envelope = desk.execute(&with(draft, "max_output_size_kb", 400));
    assert_eq!(envelope["status"], "SUCCESS");
    let (payload, written) = (desk.path("payload.json"), desk.path("envelope.json"));
    let verified = desk.run(["verify".as_ref(), payload.as_os_str(), written.as_os_str()]);
    assert_eq!(code(&verified), 0, "{}", stderr(&verified));
}

#[test]
fn output_that_breaks_its_schema_is_malformed() {
    let desk = desk!();
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
fn a_program_that_fails_or_is_missing_is_an_answer() {
    let desk = desk!();
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
fn a_payload_gets_the_gpus_that_are_given_to_it_and_is_refused_otherwise() {
    let desk = desk!();
    // No machine has that many.
    let payload = desk.sealed(&with(shell("true"), "gpus", "63"));
    let payload = payload.to_str().unwrap();
    for (more, word) in [
        (vec![], "is not given here"),
        (vec!["--gpu", "0,1"], "is not given here"),
        (vec!["--gpu", "63"], "there is no GPU 63"),
        (vec!["--gpu", "none"], "names no GPU"),
    ] {
        let done = desk.run([vec!["execute", payload], more].concat());
        let told = cofferdam_testkit::desk::stderr(&done);
        assert!(code(&done) == 125 && told.contains(word), "{word}: {told}");
    }
    let worker = ["worker", "--nats", "nats://127.0.0.1:1", "--name", "w"];
    let done = desk.run([&worker[..], &["--gpu", "63"]].concat());
    let told = cofferdam_testkit::desk::stderr(&done);
    assert!(told.contains("there is no GPU 63"), "{told}");
}

#[test]
fn a_person_who_ends_it_gets_an_answer_that_says_so() {
    let desk = desk!();
    let draft = with(
        shell("echo begun; echo > /work/begun; exec sleep 100"),
        "filesystem_write",
        true,
    );
    let payload = desk.sealed(&draft);
    let job = desk.path("job");
    fs::create_dir(&job).unwrap();
    let child = desk
        .command()
        .args(["execute".as_ref(), payload.as_os_str()])
        .args(["--workspace".as_ref(), job.as_os_str()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !job.join("begun").exists() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let done = child.wait_with_output().unwrap();
    let envelope: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(code(&done), 1);
    assert_eq!(envelope["partial_output"]["stdout"]["data"], "begun\n");
    desk.assert_violates(&envelope, "CANCELED");
}

/// Executes the program of a project, with one more member in its payload: the exit code and the answer.
fn run_project(desk: &Desk, program: &str, (member, value): (&str, Value)) -> (i32, Value) {
    let project = desk.path("project");
    fs::create_dir(&project).expect("a new directory");
    for (name, content) in [("setup.cfg", ""), ("main.py", program)] {
        fs::write(project.join(name), content).expect("a new file");
    }
    let task = json!({ "kind": "project", "action": "run" });
    let draft = with(shell(""), "task", task);
    let payload = desk.sealed(&with(draft, member, value));
    desk::json(&cofferdam(&[
        "execute".as_ref(),
        payload.as_os_str(),
        "--workspace".as_ref(),
        project.as_os_str(),
    ]))
}

#[test]
fn the_program_of_a_project_answers_as_a_command_does() {
    let desk = desk!();
    let program =
        "import json, sys\nprint('a word', file=sys.stderr)\nprint(json.dumps({'sum': 3}))\n";
    let form = ("expected_output_format", json!({ "type": "object" }));
    let (code, envelope) = run_project(&desk, program, form);
    assert_eq!(
        (code, &envelope["output"], &envelope["logs"]),
        (0, &json!({ "sum": 3 }), &json!(["a word"])),
        "{envelope:#}"
    );
    desk.assert_holds(&envelope);
}

#[test]
fn what_the_program_of_a_project_prints_beyond_a_mebibyte_is_told_as_cut_and_is_no_answer() {
    let desk = desk!();
    let program = "print('x' * (2 << 20), end='')\n";
    let limit = ("max_output_size_kb", json!(4096));
    let (code, envelope) = run_project(&desk, program, limit);
    assert_eq!(code, 1, "{}", envelope["error_message"]);
    let kept = &envelope["partial_output"]["stdout"];
    assert_eq!(
        (&kept["truncated"], &kept["original_bytes"]),
        (&json!(true), &json!(2 << 20)),
        "{}",
        envelope["error_message"]
    );
    assert_eq!(kept["data"].as_str().map(str::len), Some(1 << 20));
    // The limit was higher, so that raising it would not help.
    let told = envelope["error_message"].as_str().unwrap();
    assert!(
        told.contains("wrote 2097152 bytes") && told.contains("write less"),
        "{told}"
    );
    desk.assert_violates(&envelope, "OUTPUT_TOO_LARGE");
}

#[test]
fn a_project_task_is_carried_out_and_its_results_are_the_output() {
    let desk = desk!();
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
    let payload = desk.sealed(&with(draft, "expected_output_format", form));
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

/// Names that the command line accepts are names that an envelope's reader accepts.
#[test]
fn a_worker_can_have_any_name_that_verifies() {
    let desk = desk!();
    let payload = desk.sealed(&sum());
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
fn a_workspace_is_writable_only_if_the_payload_says_so() {
    let desk = desk!();
    let run = |draft: &Value| {
        let payload = desk.sealed(draft);
        let done = cofferdam(&[
            "execute".as_ref(),
            payload.as_ref(),
            "--workspace".as_ref(),
            desk.root().as_ref(),
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
fn source_code_is_executed_in_its_language_and_what_does_not_compile_is_an_answer() {
    let desk = desk!();
    let execute = |task: Value| {
        let payload = desk.sealed(&with(shell(""), "task", task));
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
