//! Sealing and opening: what is filled in, what is refused, and that a changed payload never opens.

use super::*;
use crate::output_format::OutputFormat;
use crate::request::Network;
use crate::units::{Bytes, CpuShare};
use proptest::prelude::*;

fn now() -> Timestamp {
    Timestamp::from_microsecond(1_700_000_000_123_456).unwrap()
}

const ENTROPY: Entropy = Entropy([7; 16]);

fn small() -> Value {
    json!({
        "contract_id": "CONTRACT-1",
        "scope": "add two numbers",
        "task": {"kind": "command", "argv": ["true"]},
    })
}

fn full() -> Value {
    json!({
        "payload_id": "PAYLOAD-1",
        "contract_id": "CONTRACT-1",
        "scope": "add two numbers",
        "task": {"kind": "command", "argv": ["add", "1"], "env": {"A": "b"}, "cwd": "/work", "stdin": "hi"},
        "expected_output_format": {"type": "object"},
        "max_runtime_seconds": 2.5,
        "max_cpu_seconds": 1,
        "max_memory_mb": 64,
        "max_output_size_kb": 1,
        "max_processes": 5,
        "max_open_files": 32,
        "max_disk_mb": 10,
        "max_cpus": 1.5,
        "network_allowed": true,
        "filesystem_write": true,
        "output_class": "exact",
        "pure": false,
        "created_at": "2026-01-31T12:00:00Z",
        "deadline": "2026-02-01T12:00:00Z",
    })
}

fn seal(draft: Value) -> Result<Sealed, Problems> {
    Draft::from_value(draft)?.seal(now(), ENTROPY)
}

fn fields(problems: &Problems) -> Vec<&str> {
    problems.iter().map(|p| p.field.as_str()).collect()
}

fn open(value: &Value) -> Result<Sealed, OpenError> {
    Sealed::open(value.to_string().as_bytes())
}

/// Seals a changed payload as an attacker or a foreign tool would: with a right digest.
fn open_with_right_digest(mut value: Value) -> Result<Sealed, OpenError> {
    let map = value.as_object_mut().unwrap();
    let digest = digest_of(map).unwrap();
    map.insert("digest".into(), json!(digest));
    open(&value)
}

#[test]
fn a_small_draft_gets_every_default_spelled_out() {
    let sealed = seal(small()).unwrap();
    let mut expected = json!({
        "payload_id": ids::payload_id(now(), ENTROPY),
        "contract_id": "CONTRACT-1",
        "scope": "add two numbers",
        "task": {"kind": "command", "argv": ["true"]},
        "expected_output_format": true,
        "max_runtime_seconds": 300,
        "max_cpu_seconds": 60,
        "max_memory_mb": 512,
        "max_output_size_kb": 100,
        "max_processes": 100,
        "max_open_files": 1024,
        "max_disk_mb": 1024,
        "network_allowed": false,
        "filesystem_write": false,
        "created_at": "2023-11-14T22:13:20.123Z",
        "deadline": "2023-11-14T22:18:20.123Z",
    });
    let digest = canonical::digest(&expected).unwrap();
    assert_eq!(sealed.digest(), digest);
    expected["digest"] = json!(digest);
    assert_eq!(sealed.json().to_string(), expected.to_string());
    assert_eq!(sealed.payload().limits, Limits::DEFAULT);
    assert_eq!(
        sealed.payload().expected_output_format,
        OutputFormat::Anything
    );
}

#[test]
fn a_full_draft_keeps_its_own_values() {
    let sealed = seal(full()).unwrap();
    let payload = sealed.payload();
    assert_eq!(payload.payload_id, "PAYLOAD-1");
    assert_eq!(
        payload.limits,
        Limits {
            wall_time: Cap::AtMost(Duration::from_millis(2500)),
            cpu_time: Cap::AtMost(Duration::from_secs(1)),
            memory: Cap::AtMost(Bytes::new(64 << 20)),
            output: Cap::AtMost(Bytes::new(1 << 10)),
            processes: Cap::AtMost(5),
            disk: Cap::AtMost(Bytes::new(10 << 20)),
            open_files: Cap::AtMost(32),
            cpus: Cap::AtMost(CpuShare::from_milli(1500).unwrap()),
            disk_io: Cap::Unlimited,
        }
    );
    assert_eq!(payload.network, Network::full());
    assert_eq!(payload.filesystem_write, FilesystemWrite::Allowed);
    assert_eq!(payload.created_at.to_string(), "2026-01-31T12:00:00Z");
    assert_eq!(payload.deadline.to_string(), "2026-02-01T12:00:00Z");
    assert_eq!(sealed.stdin(), b"hi");
}

#[test]
fn the_deadline_follows_a_fractional_runtime() {
    let mut draft = small();
    draft["max_runtime_seconds"] = json!(0.25);
    let sealed = seal(draft).unwrap();
    assert_eq!(sealed.json()["deadline"], "2023-11-14T22:13:20.373Z");
}

#[test]
fn the_deadline_follows_a_creation_time_that_was_given() {
    let mut draft = small();
    draft["created_at"] = json!("2026-01-31T12:00:00Z");
    assert_eq!(
        seal(draft).unwrap().json()["deadline"],
        "2026-01-31T12:05:00Z"
    );
}

#[test]
fn sealing_is_deterministic_and_sealing_again_changes_nothing() {
    let once = seal(small()).unwrap();
    assert_eq!(seal(small()).unwrap(), once);
    assert_eq!(seal(once.json().clone()).unwrap(), once);
}

#[test]
fn what_was_sealed_opens_as_the_same() {
    for draft in [small(), full()] {
        let sealed = seal(draft).unwrap();
        assert_eq!(open(sealed.json()).unwrap(), sealed);
        let pretty = serde_json::to_string_pretty(sealed.json()).unwrap();
        assert_eq!(Sealed::open(pretty.as_bytes()).unwrap(), sealed);
        let canonical = canonical::to_bytes(sealed.json()).unwrap();
        assert_eq!(
            Sealed::open(&canonical).unwrap().payload(),
            sealed.payload()
        );
    }
}

/// Sealed before a payload could say what the same output is, and whether it is pure.
#[test]
fn a_payload_without_the_newer_fields_has_the_digest_it_always_had() {
    let mut draft = full();
    for name in ["output_class", "pure"] {
        draft.as_object_mut().unwrap().shift_remove(name);
    }
    let sealed = seal(draft).unwrap();
    assert_eq!(
        sealed.digest().to_string(),
        "sha256:4d95d8748ac33c83c3a8286e10e499e3cbd1b670afd3bc07e1613dee2bff86a7"
    );
    assert!(sealed.json().get("output_class").is_none());
    assert!(sealed.json().get("pure").is_none());
    assert_eq!(open(sealed.json()).unwrap(), sealed);
}

#[test]
fn a_deterministic_payload_has_a_seed_and_what_contradicts_it_is_named() {
    let with = |fields: Value| {
        let mut draft = small();
        for (name, value) in fields.as_object().unwrap() {
            draft[name] = value.clone();
        }
        seal(draft)
    };
    let payload = |fields: Value| with(fields).unwrap().payload().clone();
    assert_eq!(payload(json!({})).seed, None);
    assert_eq!(payload(json!({"deterministic": false})).seed, None);
    assert_eq!(payload(json!({"deterministic": true})).seed, Some(0));
    let largest = (1_u64 << 53) - 1;
    let fixed = json!({"deterministic": true, "seed": largest});
    assert_eq!(payload(fixed.clone()).seed, Some(largest));
    let sealed = with(fixed).unwrap();
    assert_eq!(open(sealed.json()).unwrap(), sealed);
    let project = json!({"kind": "project", "action": "test"});
    for (wrong, field) in [
        (json!({"seed": 7}), "seed"),
        (json!({"seed": 7, "deterministic": false}), "seed"),
        (json!({"seed": 7.5, "deterministic": true}), "seed"),
        (
            json!({"deterministic": true, "network_allowed": true}),
            "deterministic",
        ),
        (
            json!({"deterministic": true, "task": project}),
            "deterministic",
        ),
    ] {
        let found = with(wrong.clone()).unwrap_err();
        assert_eq!(fields(&found), [field], "{wrong}");
    }
    // The same each time, so one that is known will do; unless it changes something, or says otherwise.
    let again = |fields: Value| payload(fields).may_be_answered_again();
    assert!(again(json!({"deterministic": true})));
    assert!(again(json!({"pure": true})));
    assert!(!again(json!({})));
    assert!(!again(json!({"deterministic": true, "pure": false})));
    assert!(!again(
        json!({"deterministic": true, "filesystem_write": true})
    ));
}

#[test]
fn any_changed_field_is_a_digest_mismatch() {
    // Every field there is.
    let mut draft = full();
    draft["network_allowed"] = json!(false);
    draft["deterministic"] = json!(true);
    draft["seed"] = json!(7);
    draft["gpus"] = json!("0,1");
    let sealed = seal(draft).unwrap();
    for field in WIRE_FIELDS
        .iter()
        .map(|f| f.name)
        .filter(|name| *name != "digest")
    {
        let mut changed = sealed.json().clone();
        changed[field] = json!("changed");
        assert!(
            matches!(open(&changed), Err(OpenError::DigestMismatch { .. })),
            "{field} changed"
        );
        changed.as_object_mut().unwrap().shift_remove(field);
        assert!(
            matches!(open(&changed), Err(OpenError::DigestMismatch { .. })),
            "{field} removed"
        );
    }
    let mut added = sealed.json().clone();
    added["sudo"] = json!(true);
    let error = open(&added).unwrap_err();
    assert!(matches!(error, OpenError::DigestMismatch { .. }));
    assert_eq!(error.code(), ErrorCode::PayloadDigestMismatch);
}

#[test]
fn a_payload_without_a_usable_digest_does_not_open() {
    let sealed = seal(small()).unwrap();
    for digest in [
        json!(null),
        json!(1),
        json!(""),
        json!("sha256:00"),
        json!(sealed.digest().hex()),
    ] {
        let mut changed = sealed.json().clone();
        changed["digest"] = digest;
        match open(&changed) {
            Err(OpenError::Invalid(problems)) => assert_eq!(fields(&problems), ["digest"]),
            other => panic!("{other:?}"),
        }
    }
    match open(&small()) {
        Err(OpenError::Invalid(problems)) => assert_eq!(
            fields(&problems),
            [
                "digest",
                "payload_id",
                "expected_output_format",
                "max_runtime_seconds",
                "max_cpu_seconds",
                "max_memory_mb",
                "max_output_size_kb",
                "created_at",
                "deadline",
            ]
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_extensions_may_be_left_out_of_a_foreign_payload() {
    let mut foreign = seal(full()).unwrap().json().clone();
    for field in [
        "max_processes",
        "max_open_files",
        "max_disk_mb",
        "max_cpus",
        "network_allowed",
        "filesystem_write",
    ] {
        foreign.as_object_mut().unwrap().shift_remove(field);
    }
    let opened = open_with_right_digest(foreign).unwrap();
    assert_eq!(opened.payload().limits.processes, Limits::DEFAULT.processes);
    assert_eq!(opened.payload().limits.cpus, Cap::Unlimited);
    assert_eq!(opened.payload().network, Network::Denied);
}

#[test]
fn a_right_digest_does_not_excuse_a_wrong_payload() {
    let wrong = json!({
        "payload_id": "../../etc",
        "contract_id": "",
        "scope": " ",
        "task": {"kind": "command", "argv": [], "shell": true},
        "expected_output_format": "{}",
        "max_runtime_seconds": 0,
        "max_cpu_seconds": -1,
        "max_memory_mb": "512",
        "max_output_size_kb": 1e300,
        "max_processes": 1.5,
        "max_open_files": 1,
        "max_disk_mb": null,
        "max_cpus": 0,
        "network_allowed": "no",
        "filesystem_write": 1,
        "created_at": "yesterday",
        "deadline": "2026-02-01T12:00:00+01:00",
        "sudo": true,
    });
    let expected = [
        "payload_id",
        "contract_id",
        "scope",
        "task.argv",
        "task.shell",
        "expected_output_format",
        "max_cpu_seconds",
        "max_memory_mb",
        "max_output_size_kb",
        "max_processes",
        "max_disk_mb",
        "max_cpus",
        "max_runtime_seconds",
        "max_open_files",
        "network_allowed",
        "filesystem_write",
        "created_at",
        "deadline",
        "sudo",
    ];
    match open_with_right_digest(wrong.clone()) {
        Err(error @ OpenError::Invalid(_)) => {
            assert_eq!(error.code(), ErrorCode::PayloadInvalid);
            let OpenError::Invalid(problems) = error else {
                unreachable!()
            };
            assert_eq!(fields(&problems), expected);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(fields(&seal(wrong).unwrap_err()), expected);
}

#[test]
fn a_problem_with_a_limit_shows_the_value_as_it_was_written() {
    let mut draft = small();
    draft["max_memory_mb"] = json!(0.5);
    assert_eq!(
        seal(draft).unwrap_err().to_string(),
        "max_memory_mb: is below 1 MiB; ask for at least 1 MiB (got `0.5`)"
    );
}

#[test]
fn a_bad_runtime_is_one_problem_not_two() {
    for seconds in [
        json!(0),
        json!(-1),
        json!("30"),
        json!(1e300),
        json!(null),
        json!([]),
    ] {
        let mut draft = small();
        draft["max_runtime_seconds"] = seconds.clone();
        assert_eq!(
            fields(&seal(draft).unwrap_err()),
            ["max_runtime_seconds"],
            "{seconds}"
        );
    }
}

#[test]
fn a_deadline_before_creation_is_refused() {
    let mut draft = full();
    draft["deadline"] = draft["created_at"].clone();
    assert_eq!(fields(&seal(draft).unwrap_err()), ["deadline"]);
}

#[test]
fn what_is_no_object_is_refused() {
    for text in ["null", "[]", "\"x\"", "1"] {
        assert!(
            matches!(Sealed::open(text.as_bytes()), Err(OpenError::Invalid(_))),
            "{text}"
        );
        assert!(Draft::parse(text.as_bytes()).is_err(), "{text}");
    }
    let error = Sealed::open(b"{\"a\":1,\"a\":2}").unwrap_err();
    assert_eq!(error.code(), ErrorCode::InputMalformedJson);
}

#[test]
fn the_deadline_is_a_hard_border() {
    let sealed = seal(full()).unwrap();
    let deadline = sealed.payload().deadline;
    let millisecond = Duration::from_millis(1);
    assert_eq!(
        sealed.check_deadline(deadline.checked_sub(millisecond).unwrap()),
        Ok(())
    );
    assert_eq!(
        sealed.check_deadline(deadline),
        Err(Expired {
            deadline,
            now: deadline
        })
    );
}

#[test]
fn a_command_becomes_a_request_with_the_payloads_bounds() {
    let place = RunPlace {
        backend: BackendName::Host,
        root: Root::HostUsr,
        workspace: Some("/srv/w".into()),
        waived: vec![LimitName::Disk],
    };
    let sealed = seal(full()).unwrap();
    assert_eq!(
        sealed.to_request(place.clone()).unwrap(),
        Request {
            argv: vec!["add".into(), "1".into()],
            env: vec![("A".into(), "b".into())],
            cwd: Some("/work".into()),
            limits: sealed.payload().limits.clone(),
            waived: vec![LimitName::Disk],
            network: Network::full(),
            root: Root::HostUsr,
            workspace: Some(Workspace {
                path: "/srv/w".into(),
                access: WorkspaceAccess::ReadWrite
            }),
            mounts: Vec::new(),
            backend: BackendName::Host,
            gpus: crate::request::Gpus::None,
        }
    );
    let read_only = seal(small()).unwrap().to_request(place.clone()).unwrap();
    assert_eq!(
        read_only.workspace.map(|w| w.access),
        Some(WorkspaceAccess::ReadOnly)
    );

    let mut project = small();
    project["task"] = json!({"kind": "project", "action": "test"});
    let unsupported = seal(project).unwrap().to_request(place).unwrap_err();
    assert_eq!(unsupported, UnsupportedTask { kind: "project" });
}

proptest! {
    #[test]
    fn no_changed_byte_opens_as_another_payload(at: prop::sample::Index, byte: u8) {
        let sealed = seal(full()).unwrap();
        let mut bytes = sealed.json().to_string().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        // A changed byte may be harmless (`2.5` to `2.50` is not possible in place, `E` for `e` is): then it is the same payload.
        if let Ok(opened) = Sealed::open(&bytes) {
            prop_assert_eq!(opened.payload(), sealed.payload());
        }
    }

    #[test]
    fn no_bytes_make_opening_panic(bytes: Vec<u8>) {
        prop_assert!(Sealed::open(&bytes).is_err());
        let _ = Draft::parse(&bytes).map(|draft| draft.seal(now(), ENTROPY));
    }
}
