//! Which answers are refused.

use proptest::prelude::*;

use super::*;

/// The fields that are wrong with it.
fn wrong(envelope: &ResultEnvelope, sealed: &Sealed) -> Vec<String> {
    let problems = envelope.check(sealed).err();
    let problems = problems.iter().flat_map(|problems| problems.iter());
    problems.map(|problem| problem.field.clone()).collect()
}

fn ended(envelope: &mut ResultEnvelope, how: &str) {
    if let Some(by) = &mut envelope.produced_by {
        by.ending = how.to_owned();
    }
}

#[test]
fn every_lie_is_found_alone() {
    type Lie = fn(&mut ResultEnvelope);
    let sealed = sealed(sum_schema());
    let honest = envelope(&sealed, &run(OK, b"{\"sum\": 3}", b"x"));
    let lies: [(Lie, &[&str]); 27] = [
        (|e| e.result_id = "".into(), &["result_id"]),
        (|e| e.worker_id = "a b".into(), &["worker_id"]),
        (
            |e| e.payload_id = "PAYLOAD-2".into(),
            &["payload_id", "proof_of_work"],
        ),
        (|e| e.output = json!({"sum": 4}), &["proof_of_work"]),
        (|e| e.proof_of_work = "0".repeat(64), &["proof_of_work"]),
        (
            |e| e.proof_of_work.make_ascii_uppercase(),
            &["proof_of_work"],
        ),
        (|e| e.runtime_seconds = 2.6, &["runtime_seconds"]),
        (|e| e.runtime_seconds = -1.0, &["runtime_seconds"]),
        (|e| e.runtime_seconds = f64::NAN, &["runtime_seconds"]),
        (|e| e.cpu_seconds = 1.6, &["cpu_seconds"]),
        (|e| e.memory_used_mb = Some(65.1), &["memory_used_mb"]),
        (|e| e.memory_used_mb = Some(-1.0), &["memory_used_mb"]),
        (|e| e.output_size_kb = 0.5, &["output_size_kb"]),
        (
            |e| e.output_size_kb = 2.0,
            &["output_size_kb", "output_size_kb"],
        ),
        (
            |e| e.output_size_kb = f64::NAN,
            &["output_size_kb", "output_size_kb"],
        ),
        (|e| e.logs = vec![String::new(); 101], &["logs"]),
        (|e| e.logs = vec!["é".repeat(1025)], &["logs[0]"]),
        (|e| e.error_message = Some("x".into()), &["error_message"]),
        (|e| e.completed_at = "now".into(), &["completed_at"]),
        (
            |e| e.status = Status::Error,
            &["error_message", "output", "produced_by.ending"],
        ),
        (|e| ended(e, "stopped:memory"), &["produced_by.ending"]),
        (|e| ended(e, "stopped:boredom"), &["produced_by.ending"]),
        (
            |e| ended(e, "never_started:sandbox"),
            &["produced_by.ending"],
        ),
        (|e| ended(e, "signaled:9"), &["produced_by.ending"]),
        (|e| ended(e, "exited:1"), &["produced_by.ending"]),
        (|e| ended(e, ""), &["produced_by.ending"]),
        (
            |e| {
                let limit = None;
                e.verdict = Some(Verdict {
                    violation: Violation::Timeout,
                    limit,
                    evidence: String::new(),
                });
            },
            &["verdict"],
        ),
    ];
    for (i, (lie, expected)) in lies.iter().enumerate() {
        let mut lying = honest.clone();
        lie(&mut lying);
        let problems = lying
            .check(&sealed)
            .expect_err(&format!("lie {i} to {expected:?} passed"));
        let found: Vec<_> = problems.iter().map(|p| p.field.as_str()).collect();
        assert_eq!(&found, expected, "lie {i}");
    }
}

#[test]
fn figures_within_the_tolerance_pass() {
    let sealed = sealed(sum_schema());
    let mut honest = envelope(&sealed, &run(OK, b"{\"sum\": 3}", b"x"));
    honest.runtime_seconds = 2.5;
    honest.cpu_seconds = 1.5;
    honest.memory_used_mb = Some(65.0);
    assert_eq!(honest.check(&sealed), Ok(()));
    honest.memory_used_mb = None;
    assert_eq!(honest.check(&sealed), Ok(()));
}

#[test]
fn a_proof_over_output_that_breaks_the_schema_or_the_size_is_refused() {
    let sealed = sealed(sum_schema());
    let mut lying = envelope(&sealed, &run(OK, b"{\"sum\": 3}", b"x"));
    lying.output = json!({"sum": "x".repeat(2000)});
    let canonical = canonical::to_bytes(&lying.output).unwrap();
    lying.proof_of_work = proof_of_work("PAYLOAD-1", &canonical);
    let found = |e: &ResultEnvelope| -> Vec<String> {
        e.check(&sealed)
            .unwrap_err()
            .iter()
            .map(|p| p.field.clone())
            .collect()
    };
    // The size is a lie as well, which alone refuses it.
    assert_eq!(found(&lying), ["output_size_kb", "output: sum"]);
    lying.output_size_kb = per_unit(byte_count(&canonical), 10);
    assert_eq!(found(&lying), ["output_size_kb", "output: sum"]);
}

#[test]
fn a_stream_in_a_broken_encoding_is_refused() {
    let any = sealed(json!(true));
    let mut envelope = envelope(&any, &run(Ending::Exited { code: 1 }, b"\xff", b""));
    envelope.partial_output.as_mut().unwrap().stdout.data = "!".into();
    assert_eq!(wrong(&envelope, &any), ["partial_output.stdout"]);
}

#[test]
fn the_wrong_verdict_excuses_nothing() {
    let any = sealed(json!(true));
    let memory = StopCause::Memory {
        limit: Bytes::new(64 << 20),
    };
    let mut envelope = envelope(&any, &run(Ending::Stopped(memory), b"", b""));
    envelope.runtime_seconds = 100.0;
    assert_eq!(wrong(&envelope, &any), ["runtime_seconds"]);
}

/// Otherwise whoever is caught with a wrong answer says that a limit ended it.
#[test]
fn an_error_has_the_verdict_that_its_ending_gives() {
    let any = sealed(json!(true));
    let memory = StopCause::Memory {
        limit: Bytes::new(64 << 20),
    };
    let stopped = envelope(&any, &run(Ending::Stopped(memory), b"", b""));
    let failed = envelope(&any, &run(Ending::Exited { code: 1 }, b"", b""));
    for (honest, claims) in [
        (&stopped, ["stopped:wall_time", "exited:0", "signaled:9"]),
        (&failed, ["stopped:memory", "exited:0", "boredom:1"]),
    ] {
        for claim in claims {
            let mut lying = honest.clone();
            ended(&mut lying, claim);
            assert_eq!(wrong(&lying, &any), ["produced_by.ending"], "{claim}");
        }
    }
}

#[test]
fn strangers_envelopes_are_read_strictly() {
    let sealed = sealed(sum_schema());
    let honest = serde_json::to_value(envelope(&sealed, &run(OK, b"{\"sum\": 3}", b"x"))).unwrap();
    let parse = |value: &Value| ResultEnvelope::parse(value.to_string().as_bytes());
    assert!(parse(&honest).is_ok());
    for (field, value) in [
        ("status", json!("MAYBE")),
        ("status", json!("success")),
        ("logs", json!("x")),
        ("logs", json!([1])),
        ("runtime_seconds", json!("1")),
        ("runtime_seconds", json!(null)),
        (
            "verdict",
            json!({"violation": "BOREDOM", "limit": null, "evidence": ""}),
        ),
        ("enforced_by", json!({"memory": "magic"})),
        ("enforced_by", json!({"luck": "cgroup2"})),
        ("partial_output", json!({"stdout": "x"})),
        ("bonus", json!(1)),
    ] {
        let mut changed = honest.clone();
        changed[field] = value.clone();
        assert!(parse(&changed).is_err(), "{field} = {value}");
    }
    let mut twice = honest.to_string();
    twice.insert_str(1, "\"status\":\"ERROR\",");
    assert!(ResultEnvelope::parse(twice.as_bytes()).is_err());
    let mut two_wrong = honest;
    two_wrong["status"] = json!(1);
    two_wrong["logs"] = json!(2);
    let problems = parse(&two_wrong).unwrap_err();
    let named = |field: &str| problems.iter().any(|p| p.field == field);
    assert!(named("status") && named("logs"), "{problems}");
}

proptest! {
    #[test]
    fn whatever_the_program_prints_the_envelope_passes_its_own_check(
        stdout: Vec<u8>, stderr: Vec<u8>, code in 0i32..3, with_schema: bool,
    ) {
        let sealed = sealed(if with_schema { sum_schema() } else { json!(true) });
        envelope(&sealed, &run(Ending::Exited { code }, &stdout, &stderr));
    }

    #[test]
    fn no_bytes_make_reading_an_envelope_panic(bytes: Vec<u8>) {
        prop_assert!(ResultEnvelope::parse(&bytes).is_err());
    }
}
