//! The documented JSON, byte for byte, and keys that lose nothing.

use serde_json::json;

use super::*;

fn plane() -> ControlPlane {
    ControlPlane::new(
        "https://cp.example.com/",
        ControlPlane::PREFIX,
        Some("plane"),
    )
    .unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn report() -> ResultReport {
    ResultReport {
        status: ResultStatus::Success,
        stdout: "a\u{0}\u{1b}é".to_owned(),
        stderr: String::new(),
        exit_code: 0,
        execution_time: Duration::from_micros(12_345),
        return_value: Some(json!({"sum": 6})),
        metrics: Metrics {
            duration: Duration::from_micros(12_345),
            cpu_time: Some(Duration::from_millis(7)),
            peak_memory_bytes: Some(10 << 20),
            io_read_bytes: None,
            io_write_bytes: Some(1),
        },
        artifacts: vec!["output/result.csv".to_owned()],
    }
}

fn text(message: &Message) -> &str {
    std::str::from_utf8(&message.body).unwrap()
}

const ID: &str = "exec_20260101_abcdefgh";

#[test]
fn a_result_is_exactly_the_documented_json() {
    let message = plane().result(ID, &report()).unwrap();
    assert_eq!(
        text(&message),
        r#"{"status":"success","stdout":"a\u0000\u001bé","stderr":"","exit_code":0,"execution_time":0.012345,"return_value":{"sum":6},"metrics":{"duration_ms":12,"cpu_time_ms":7,"peak_memory_mb":10.0,"io_write_bytes":1},"artifacts":["output/result.csv"]}"#
    );
    assert_eq!(
        message.url,
        format!("https://cp.example.com/internal/executions/{ID}/result")
    );
    assert_eq!(message.idempotency_key, ID);
    assert_eq!(message.authorization.as_deref(), Some("plane"));
    let killed = ResultReport {
        exit_code: -9,
        return_value: None,
        status: ResultStatus::Crashed,
        ..report()
    };
    let message = plane().result(ID, &killed).unwrap();
    assert!(
        text(&message).contains(r#""exit_code":-1,"#)
            && text(&message).contains(r#""return_value":null,"#)
    );
}

#[test]
fn no_number_can_be_less_than_json() {
    let report = ResultReport {
        execution_time: Duration::MAX,
        metrics: Metrics {
            duration: Duration::MAX,
            cpu_time: Some(Duration::MAX),
            peak_memory_bytes: Some(u64::MAX),
            io_read_bytes: Some(u64::MAX),
            io_write_bytes: None,
        },
        return_value: Some(Value::from(f64::NAN)),
        ..report()
    };
    let message = plane().result(ID, &report).unwrap();
    let read: Value = serde_json::from_slice(&message.body).unwrap();
    assert!(read["execution_time"].is_f64() && read["metrics"]["peak_memory_mb"].is_f64());
    assert_eq!(read["return_value"], Value::Null);
}

#[test]
fn every_other_message_is_exactly_the_documented_json() {
    let plane = plane();
    let now = at("2026-01-02T03:04:05.5Z");
    let cases = [
        (
            plane.status(ID, &StatusReport::Running { started_at: now }),
            r#"{"status":"running","started_at":"2026-01-02T03:04:05.5Z"}"#,
            format!("{ID}:status:running"),
        ),
        (
            plane.status(
                ID,
                &StatusReport::Crashed {
                    crashed_at: now,
                    error: Some("gone".to_owned()),
                },
            ),
            r#"{"status":"crashed","crashed_at":"2026-01-02T03:04:05.5Z","error":"gone"}"#,
            format!("{ID}:status:crashed"),
        ),
        (
            plane.status(
                ID,
                &StatusReport::Timeout {
                    timeout_at: now,
                    error: None,
                },
            ),
            r#"{"status":"timeout","timeout_at":"2026-01-02T03:04:05.5Z"}"#,
            format!("{ID}:status:timeout"),
        ),
        (
            plane.heartbeat(
                ID,
                &HeartbeatReport {
                    timestamp: now,
                    progress: None,
                },
            ),
            r#"{"timestamp":"2026-01-02T03:04:05.5Z"}"#,
            format!("{ID}:heartbeat:2026-01-02T03:04:05.5Z"),
        ),
        (
            plane.artifacts(
                ID,
                &ArtifactsReport {
                    artifacts: vec![Artifact {
                        path: "a.log".to_owned(),
                        size: 3,
                        mime_type: "text/plain".to_owned(),
                        kind: ArtifactKind::Log,
                        created_at: None,
                        checksum: Some("sha256:00".to_owned()),
                        download_url: None,
                    }],
                },
            ),
            r#"{"artifacts":[{"path":"a.log","size":3,"mime_type":"text/plain","type":"log","checksum":"sha256:00"}]}"#,
            format!("{ID}:artifacts"),
        ),
        (
            plane.container_ready(
                "sess_0123456789abcdef",
                &ContainerReady {
                    container_id: "c".to_owned(),
                    pod_name: "p".to_owned(),
                    executor_port: 8080,
                    ready_at: now,
                },
            ),
            r#"{"container_id":"c","pod_name":"p","executor_port":8080,"ready_at":"2026-01-02T03:04:05.5Z"}"#,
            "sess_0123456789abcdef:container_ready:2026-01-02T03:04:05.5Z".to_owned(),
        ),
        (
            plane.container_exited(
                "sess_0123456789abcdef",
                &ContainerExited {
                    exit_code: 143,
                    exited_at: now,
                    exit_reason: ExitReason::Sigterm,
                },
            ),
            r#"{"exit_code":143,"exited_at":"2026-01-02T03:04:05.5Z","exit_reason":"sigterm"}"#,
            "sess_0123456789abcdef:container_exited:2026-01-02T03:04:05.5Z".to_owned(),
        ),
    ];
    let mut keys = std::collections::BTreeSet::new();
    for (message, body, key) in cases {
        let message = message.unwrap();
        assert_eq!(text(&message), body);
        assert_eq!(message.idempotency_key, key);
        assert!(
            message
                .url
                .ends_with(&format!("/{}", message.kind.as_str())),
            "{}",
            message.url
        );
        assert!(keys.insert(key) && message.idempotency_key != ID);
    }
    let json = serde_json::to_string(&ExitReason::OomKilled).unwrap();
    assert_eq!(json, r#""oom_killed""#);
}

#[test]
fn the_prefix_follows_whatever_path_the_operator_has() {
    let url = |base, prefix| {
        let plane = ControlPlane::new(base, prefix, None)?;
        Ok::<_, Refused>(plane.result("x", &report()).unwrap().url)
    };
    assert_eq!(
        url("http://cp:81/a/", "/api/v1/internal/").unwrap(),
        "http://cp:81/a/api/v1/internal/executions/x/result"
    );
    assert_eq!(
        url("http://cp", "").unwrap(),
        "http://cp/executions/x/result"
    );
    for (base, prefix) in [
        ("ftp://cp", ""),
        ("http://u:p@cp", ""),
        ("http://cp?x=1", ""),
        ("cp", ""),
        ("http://cp", "internal"),
        ("http://cp:0", ""),
    ] {
        let refused = url(base, prefix).unwrap_err().to_string();
        assert!(!refused.contains("u:p"), "{refused}");
    }
}

#[test]
fn an_id_cannot_leave_its_place_in_the_path() {
    for id in [
        "",
        ".",
        "..",
        "a/b",
        "a?b",
        "a#b",
        "a b",
        "a\r\nX: y",
        "%2e%2e",
        "é",
        &"a".repeat(129),
    ] {
        assert!(
            matches!(plane().result(id, &report()), Err(BadMessage::Id { .. })),
            "{id}"
        );
    }
}
