//! What every request meets: health, names of requests, and errors in one form.

use serde_json::json;

use crate::support::{Daemon, JSON};

#[test]
fn health_tells_when_a_sandbox_has_worked() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let health = daemon
        .until("/health", |found| found["status"] == "healthy")
        .unwrap();
    assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(health["active_executions"], 0);
    assert!(health["uptime_seconds"].is_u64());
}

/// Method, path, headers, body; status and code.
type Case<'a> = (
    &'a str,
    &'a str,
    &'a [(&'a str, &'a str)],
    &'a [u8],
    u16,
    &'a str,
);

#[test]
fn every_refusal_has_its_status_its_code_and_its_request_id() {
    let daemon = Daemon::start(|config| {
        config.http.body = cofferdam_contract::units::Bytes::new(1000);
    })
    .unwrap();
    let large = json!({"command": ["true"], "stdin": "x".repeat(2000)}).to_string();
    let cases: [Case<'_>; 12] = [
        ("GET", "/nothing", &[], b"", 404, "http.not_found"),
        ("PUT", "/v1/runs", &[], b"", 405, "http.method_not_allowed"),
        ("POST", "/health", &[], b"", 405, "http.method_not_allowed"),
        (
            "POST",
            "/v1/runs",
            &[],
            b"{}",
            415,
            "http.unsupported_media_type",
        ),
        (
            "POST",
            "/v1/runs",
            &[("Content-Type", "text/plain")],
            b"{}",
            415,
            "http.unsupported_media_type",
        ),
        (
            "POST",
            "/v1/runs",
            &[JSON],
            b"{\n \"command\": [",
            400,
            "input.malformed_json",
        ),
        (
            "POST",
            "/v1/runs",
            &[JSON],
            b"{\"comand\": []}",
            400,
            "input.invalid",
        ),
        (
            "POST",
            "/v1/runs",
            &[JSON],
            large.as_bytes(),
            413,
            "http.body_too_large",
        ),
        ("GET", "/v1/runs/zzz", &[], b"", 404, "history.not_found"),
        (
            "GET",
            "/v1/runs/01890000-0000-7000-8000-000000000000",
            &[],
            b"",
            404,
            "history.not_found",
        ),
        ("GET", "/v1/runs?limit=0", &[], b"", 400, "input.invalid"),
        ("GET", "/v1/runs?bogus=1", &[], b"", 400, "input.invalid"),
    ];
    for (method, path, headers, body, status, code) in cases {
        let mut headers = headers.to_vec();
        headers.push(("X-Request-Id", "mine-1"));
        let reply = daemon.send(method, path, &headers, body).unwrap();
        assert_eq!(
            reply.error(),
            (status, code.to_owned()),
            "{method} {path}: {}",
            reply.text()
        );
        let body = reply.json();
        assert_eq!(body["request_id"], "mine-1");
        assert_eq!(reply.header("x-request-id"), Some("mine-1"));
        for field in ["description", "error_detail", "solution"] {
            assert!(
                body[field].as_str().is_some_and(|text| !text.is_empty()),
                "{field} of {code}"
            );
        }
    }
}

#[test]
fn details_help() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let reply = daemon.send("PUT", "/v1/runs", &[], b"").unwrap();
    let allowed = reply.header("allow").unwrap_or_default();
    assert!(
        allowed.contains("GET") && allowed.contains("POST"),
        "{allowed}"
    );
    let reply = daemon
        .send("POST", "/v1/runs", &[JSON], b"{\n \"command\": [}")
        .unwrap();
    let detail = reply.json()["error_detail"].to_string();
    assert!(detail.contains("line 2, column 14"), "{detail}");
}

#[test]
fn traces_are_taken_over_and_made() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let given = format!("00-{trace}-b7ad6b7169203331-01");
    let reply = daemon
        .send("GET", "/health", &[("traceparent", &given)], b"")
        .unwrap();
    let answered = reply.header("traceparent").unwrap();
    assert!(answered.starts_with(&format!("00-{trace}-")) && answered.ends_with("-01"));
    assert_ne!(answered, given);
    let reply = daemon
        .send("GET", "/health", &[("X-Request-Id", "bad id!")], b"")
        .unwrap();
    assert!(reply.header("x-request-id").unwrap().starts_with("req_"));
    assert_eq!(reply.header("traceparent").unwrap().len(), 55);
}

#[test]
fn web_pages_from_elsewhere_are_refused() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let reply = daemon
        .send(
            "GET",
            "/v1/runs",
            &[("Origin", "https://evil.example")],
            b"",
        )
        .unwrap();
    assert_eq!(reply.error(), (403, "auth.origin".to_owned()));
    let reply = daemon
        .send(
            "GET",
            "/v1/runs",
            &[("Origin", "http://localhost:3000")],
            b"",
        )
        .unwrap();
    assert_eq!(reply.status, 200);
}

#[test]
fn counters_count() {
    let daemon = Daemon::start(|_| {}).unwrap();
    daemon
        .post("/v1/runs", &json!({"command": ["true"]}))
        .unwrap();
    let page = daemon.get("/metrics").unwrap();
    assert!(
        page.header("content-type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    let text = page.text();
    for line in [
        "cofferdam_runs_submitted_total 1",
        "cofferdam_runs_ended_total{cause=\"exited\"} 1",
        "cofferdam_run_phase_seconds_count{phase=\"sandbox\"} 1",
        "cofferdam_http_requests_total{method=\"POST\",route=\"/v1/runs\",status=\"200\"} 1",
        "cofferdam_queue_depth 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn what_a_person_types_for_curl_is_read_and_what_a_page_sends_is_not() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let typed = ("Content-Type", "application/x-www-form-urlencoded");
    let body = br#"{"language":"python","code":"def handler(event):\n  return {\"sum\": sum(event[\"xs\"])}","event":{"xs":[1,2,3]}}"#;
    let answer = daemon.send("POST", "/execute", &[typed], body).unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["return_value"]["sum"], 6);
    for page in [
        ("Origin", "http://localhost:3000"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        let refused = daemon
            .send("POST", "/execute", &[typed, page], body)
            .unwrap();
        assert_eq!(refused.status, 415, "{page:?}");
    }
}
