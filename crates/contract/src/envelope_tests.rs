//! What a run amounts to.

use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::ending::{SetupFailure, SetupFailureKind, StopCause, Stream};
use crate::enforcement::{EnforcedBy, Enforcer, LimitName};
use crate::ids::Entropy;
use crate::record::{Denial, DenialKind, FinishedRun};
use crate::request::BackendName;
use crate::seal::Draft;
use crate::units::Bytes;
use crate::usage::Usage;

#[path = "envelope_lies_tests.rs"]
mod lies;

pub(crate) fn sealed(format: Value) -> Sealed {
    let draft = json!({
        "payload_id": "PAYLOAD-1",
        "contract_id": "CONTRACT-1",
        "scope": "sum",
        "task": {"kind": "command", "argv": ["sum"]},
        "expected_output_format": format,
        "max_runtime_seconds": 2,
        "max_cpu_seconds": 1,
        "max_memory_mb": 64,
        "max_output_size_kb": 1,
    });
    let now = Timestamp::from_millisecond(1_700_000_000_000).unwrap();
    Draft::from_value(draft)
        .unwrap()
        .seal(now, Entropy([0; 16]))
        .unwrap()
}

pub(crate) fn run(ending: Ending, stdout: &[u8], stderr: &[u8]) -> FinishedRun {
    FinishedRun {
        run_id: "run-1".into(),
        backend: BackendName::Native,
        ending,
        stdout: CapturedStream::whole(stdout),
        stderr: CapturedStream::whole(stderr),
        result: None,
        usage: Usage {
            wall: Duration::from_millis(1500),
            cpu: Duration::from_millis(250),
            memory_peak: Some(Bytes::new(3 << 19)),
            processes_peak: Some(1),
            output: Bytes::new(0),
            disk: None,
        },
        enforced_by: [(LimitName::Memory, EnforcedBy(vec![Enforcer::Cgroup2]))].into(),
        isolation: Default::default(),
        denials: Vec::new(),
        changes: None,
        started_at: Timestamp::from_millisecond(1_700_000_000_000).unwrap(),
        ended_at: Timestamp::from_millisecond(1_700_000_001_500).unwrap(),
    }
}

fn by() -> Answerer {
    Answerer {
        result_id: "RESULT-1".into(),
        worker_id: "worker-1".into(),
    }
}

const OK: Ending = Ending::Exited { code: 0 };

pub(crate) fn envelope(sealed: &Sealed, run: &FinishedRun) -> ResultEnvelope {
    let record = RunRecord::new(run.clone());
    let envelope = ResultEnvelope::new(sealed, &record, by()).unwrap();
    assert_eq!(
        envelope.check(sealed),
        Ok(()),
        "what we make passes our own check"
    );
    let json = serde_json::to_vec(&envelope).unwrap();
    assert_eq!(
        ResultEnvelope::parse(&json).as_ref(),
        Ok(&envelope),
        "and reads back"
    );
    envelope
}

fn sum_schema() -> Value {
    json!({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]})
}

fn violation(envelope: &ResultEnvelope) -> Option<Violation> {
    envelope.verdict.as_ref().map(|verdict| verdict.violation)
}

#[test]
fn a_success_serializes_whole() {
    let sealed = sealed(sum_schema());
    let envelope = envelope(&sealed, &run(OK, b" {\"sum\": 3.0}\n", b"one\r\ntwo\n"));
    let proof = Digest::of(b"PAYLOAD-1{\"sum\":3}").hex();
    assert_eq!(
        serde_json::to_value(&envelope).unwrap(),
        json!({
            "result_id": "RESULT-1",
            "payload_id": "PAYLOAD-1",
            "worker_id": "worker-1",
            "status": "SUCCESS",
            "output": {"sum": 3.0},
            "proof_of_work": proof,
            "logs": ["one", "two"],
            "runtime_seconds": 1.5,
            "cpu_seconds": 0.25,
            "memory_used_mb": 1.5,
            "output_size_kb": 9.0 / 1024.0,
            "error_message": null,
            "completed_at": "2023-11-14T22:13:21.5Z",
            "verdict": null,
            "enforced_by": {"memory": "cgroup2"},
            "partial_output": null,
            "produced_by": {
                "engine_version": crate::envelope::ENGINE_VERSION,
                "backend": "native",
                "ending": "exited:0",
                "run_id": "run-1",
            },
        })
    );
}

#[test]
fn without_a_schema_stdout_is_the_output() {
    let any = sealed(json!(true));
    let text = envelope(&any, &run(OK, b"hello\n", b""));
    assert_eq!(text.output, json!({"stdout": "hello\n", "exit_code": 0}));
    let bytes = envelope(&any, &run(OK, &[0xff], b""));
    assert_eq!(
        bytes.output,
        json!({"stdout": {"base64": "/w=="}, "exit_code": 0})
    );
}

#[test]
fn output_that_breaks_the_promise_is_malformed_and_survives() {
    let sealed = sealed(sum_schema());
    for stdout in [
        "",
        "3",
        "null",
        "{\"sum\":\"3\"}",
        "{}",
        "{\"sum\":1,\"sum\":2}",
        "{\"sum\":9007199254740993}",
        "{\"sum\":1} x",
    ] {
        let envelope = envelope(&sealed, &run(OK, stdout.as_bytes(), b"log"));
        assert_eq!(envelope.status, Status::Error, "{stdout}");
        assert_eq!(
            violation(&envelope),
            Some(Violation::MalformedResult),
            "{stdout}"
        );
        assert_eq!(envelope.output, Value::Null);
        assert_eq!(
            envelope.partial_output.map(|p| p.stdout.data).as_deref(),
            Some(stdout)
        );
    }
    let not_text = envelope(&sealed, &run(OK, &[0xff, 0xfe], b""));
    assert_eq!(violation(&not_text), Some(Violation::MalformedResult));
    let evidence = envelope(&sealed, &run(OK, b"{\"sum\":\"3\"}", b""))
        .verdict
        .unwrap()
        .evidence;
    assert!(
        evidence.contains("sum") && evidence.contains("integer"),
        "{evidence}"
    );
}

#[test]
fn cut_off_json_is_malformed_even_when_its_beginning_is_json() {
    let sealed = sealed(sum_schema());
    let mut cut = run(OK, b"{\"sum\":1}", b"");
    cut.stdout.truncated = true;
    cut.stdout.original_bytes = 100;
    assert_eq!(
        violation(&envelope(&sealed, &cut)),
        Some(Violation::MalformedResult)
    );
}

#[test]
fn half_an_output_is_no_success() {
    let mut cut = run(OK, b"the beginning", b"");
    cut.stdout.truncated = true;
    cut.stdout.original_bytes = 100;
    let envelope = envelope(&sealed(json!(true)), &cut);
    assert_eq!(
        (envelope.status, &envelope.output, violation(&envelope)),
        (Status::Error, &Value::Null, Some(Violation::OutputTooLarge))
    );
}

#[test]
fn an_output_that_grows_beyond_the_limit_as_json_is_too_large() {
    let any = sealed(json!(true));
    let limit = 1024;
    let overhead = r#"{"exit_code":0,"stdout":""}"#.len();
    let fits = envelope(&any, &run(OK, "x".repeat(limit - overhead).as_bytes(), b""));
    assert_eq!(fits.status, Status::Success);
    assert_eq!(fits.output_size_kb, 1.0);
    let one_more = envelope(
        &any,
        &run(OK, "x".repeat(limit - overhead + 1).as_bytes(), b""),
    );
    assert_eq!(
        one_more.verdict,
        Some(Verdict {
            violation: Violation::OutputTooLarge,
            limit: Some(LimitValue::bytes(Bytes::new(1024))),
            evidence: "the output is 1025 bytes as canonical JSON, above the limit of 1 KiB".into(),
        })
    );
    assert_eq!(
        one_more.partial_output.map(|p| p.stdout.data.len()),
        Some(limit - overhead + 1)
    );
}

#[test]
fn failures_say_what_happened() {
    let any = sealed(json!(true));
    let setup = SetupFailure {
        kind: SetupFailureKind::ProgramNotFound,
        step: "execve sum".into(),
        message: "no such file".into(),
        errno: Some(2),
    };
    for (ending, message) in [
        (Ending::Exited { code: 3 }, "the program returned 3"),
        (Ending::Signaled { signal: 11 }, "SIGSEGV ended the program"),
        (
            Ending::NeverStarted(setup),
            "never started (program.not_found) at `execve sum`: no such file",
        ),
    ] {
        let envelope = envelope(&any, &run(ending, b"so far", b"trace"));
        assert_eq!(envelope.status, Status::Error);
        assert_eq!(envelope.error_message.as_deref(), Some(message));
        assert_eq!(envelope.verdict, None);
        assert_eq!(envelope.output, Value::Null);
        let partial = envelope.partial_output.unwrap();
        assert_eq!(
            (partial.stdout.data.as_str(), partial.stderr.data.as_str()),
            ("so far", "trace")
        );
    }
}

#[test]
fn a_stop_names_the_field_to_raise_and_excuses_its_own_figure() {
    let any = sealed(json!(true));
    let mut late = run(
        Ending::Stopped(StopCause::WallTime {
            limit: Duration::from_secs(2),
        }),
        b"part",
        b"",
    );
    late.usage.wall = Duration::from_secs(30);
    let envelope = envelope(&any, &late);
    assert_eq!(violation(&envelope), Some(Violation::Timeout));
    assert_eq!(
        envelope.error_message.as_deref(),
        Some("stopped: wall time limit of 2 s reached; raise max_runtime_seconds")
    );
    let output = StopCause::Output {
        limit: Bytes::new(1024),
        stream: Stream::Stdout,
    };
    let stopped = super::tests::envelope(&any, &run(Ending::Stopped(output), b"part", b""));
    assert_eq!(violation(&stopped), Some(Violation::OutputTooLarge));
}

#[test]
fn a_denied_connection_of_a_failed_program_is_a_network_violation() {
    let any = sealed(json!(true));
    let denial = Denial {
        kind: DenialKind::Network,
        what: "connect 1.1.1.1:80".into(),
        count: 1,
    };
    let mut failed = run(Ending::Exited { code: 1 }, b"", b"");
    failed.denials = vec![denial.clone()];
    assert_eq!(
        violation(&envelope(&any, &failed)),
        Some(Violation::NetworkViolation)
    );
    let mut managed = run(OK, b"", b"");
    managed.denials = vec![denial];
    assert_eq!(violation(&envelope(&any, &managed)), None);
}

#[test]
fn logs_are_the_first_lines_cut_between_characters() {
    let any = sealed(json!(true));
    let long = "é".repeat(2000);
    let stderr = format!("{long}\n{}", "line\n".repeat(200));
    let logs = envelope(&any, &run(OK, b"", stderr.as_bytes())).logs;
    assert_eq!(logs.len(), 100);
    assert_eq!(logs[0], "é".repeat(1024));
    assert_eq!(logs[99], "line");
    let lossy = envelope(&any, &run(OK, b"", b"a\xffb\n")).logs;
    assert_eq!(lossy, ["a\u{fffd}b"]);
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let sealed = sealed(sum_schema());
    let finished = run(OK, b"{\"sum\": 3}", b"x");
    let once = serde_json::to_vec(&envelope(&sealed, &finished)).unwrap();
    assert_eq!(
        serde_json::to_vec(&envelope(&sealed, &finished)).unwrap(),
        once
    );
}
