//! Traces from outside: what a client says is taken over, what was done is told to a collector, and a collector that misbehaves costs nothing but spans.

use std::time::{Duration, Instant};

use cofferdam_callback::ControlPlane;
use cofferdam_observe::{Endpoint, Ratio};
use cofferdam_server::Config;
use cofferdam_server::config::Otlp;
use serde_json::{Value, json};

use crate::collector::{Collector, Manner};
use crate::support::{Daemon, JSON, Outcome, read_event, read_head};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

fn telling(url: &str) -> Outcome<impl FnOnce(&mut Config) + use<>> {
    let endpoint = Endpoint::parse(url)?.with_headers("x-api-key=hush")?;
    Ok(move |config: &mut Config| {
        config.otlp = Otlp {
            endpoint: Some(endpoint),
            service_name: "dam".to_owned(),
            ratio: Ratio::ALL,
        };
    })
}

fn parent(flags: &str) -> String {
    format!("00-{TRACE}-{CALLER}-{flags}")
}

fn run_traced(daemon: &Daemon, traceparent: &str, body: &Value) -> Outcome<Value> {
    let headers = [JSON, ("traceparent", traceparent), ("tracestate", "a=1")];
    let reply = daemon.send("POST", "/v1/runs", &headers, body.to_string().as_bytes())?;
    Ok(reply.json())
}

fn named<'a>(spans: &'a [Value], name: &str) -> Option<&'a Value> {
    spans.iter().find(|span| span["name"] == name)
}

fn number(value: &Value) -> u128 {
    value
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a Value> {
    let all = span["attributes"].as_array()?;
    let found = all.iter().find(|attribute| attribute["key"] == key)?;
    found["value"].as_object()?.values().next()
}

#[test]
fn a_run_is_told_as_spans_below_its_request() {
    let collector = Collector::start(|_| Manner::Takes).unwrap();
    let daemon = Daemon::start(telling(&collector.url()).unwrap()).unwrap();
    let body = json!({"command": ["sh", "-c", "exit 3"]});
    let run = run_traced(&daemon, &parent("01"), &body).unwrap();
    assert_eq!(run["trace_id"], TRACE);

    let request = "POST /v1/runs";
    let wanted = [request, "run", "queue", "record"];
    let all_there = |spans: &[Value]| {
        let is_twice = spans.iter().filter(|span| span["name"] == "run").count() == 2;
        is_twice && wanted.iter().all(|name| named(spans, name).is_some())
    };
    let (spans, resource, head) = collector
        .until(|told| {
            let resource = told.resources.first()?.clone();
            let head = told.heads.first()?.clone();
            all_there(&told.spans).then(|| (told.spans.clone(), resource, head))
        })
        .unwrap();

    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(
        head.to_lowercase().contains("x-api-key: hush\r\n"),
        "{head}"
    );
    assert_eq!(attribute(&resource, "service.name").unwrap(), "dam");
    for span in &spans {
        assert_eq!(span["traceId"], TRACE);
        assert_eq!(span["traceState"], "a=1");
        assert_eq!(span["spanId"].as_str().map(str::len), Some(16));
        let (began, ended) = (
            number(&span["startTimeUnixNano"]),
            number(&span["endTimeUnixNano"]),
        );
        assert!(0 < began && began <= ended, "{span}");
    }
    let ids: std::collections::BTreeSet<_> =
        spans.iter().map(|span| span["spanId"].as_str()).collect();
    assert_eq!(ids.len(), spans.len(), "ids are told apart");

    let request = named(&spans, request).unwrap();
    assert_eq!(request["parentSpanId"], CALLER);
    assert_eq!(request["kind"], 2);
    assert_eq!(
        attribute(request, "http.response.status_code").unwrap(),
        "200"
    );
    assert_eq!(attribute(request, "http.route").unwrap(), "/v1/runs");
    let whole = spans
        .iter()
        .find(|span| span["parentSpanId"] == request["spanId"])
        .unwrap();
    assert_eq!(whole["name"], "run");
    assert_eq!(
        attribute(whole, "cofferdam.run_id").unwrap(),
        &run["run_id"]
    );
    assert_eq!(attribute(whole, "cofferdam.cause").unwrap(), "exited");
    assert_eq!(attribute(whole, "process.exit.code").unwrap(), "3");
    assert_eq!(whole["status"]["code"], 2);
    for phase in spans
        .iter()
        .filter(|span| *span != request && *span != whole)
    {
        assert_eq!(phase["parentSpanId"], whole["spanId"], "{phase}");
        for (inner, outer) in [(phase, whole), (whole, request)] {
            let starts = [inner, outer].map(|span| number(&span["startTimeUnixNano"]));
            let ends = [inner, outer].map(|span| number(&span["endTimeUnixNano"]));
            // The request has a clock of its own, which the wall's may have been set in between.
            let slack = 1_000_000_000;
            assert!(starts[0] + slack >= starts[1], "{inner} {outer}");
            assert!(ends[0] <= ends[1] + slack, "{inner} {outer}");
        }
    }
    let page = daemon.get("/metrics").unwrap().text();
    let exported = "cofferdam_otlp_spans_total{result=\"exported\"}";
    assert!(page.contains(exported), "{page}");
}

#[test]
fn a_build_is_a_phase_of_its_own() {
    let collector = Collector::start(|_| Manner::Takes).unwrap();
    let daemon = Daemon::start(telling(&collector.url()).unwrap()).unwrap();
    let body = json!({"language": "c", "code": "int main(void) { return 0; }"});
    let run = run_traced(&daemon, &parent("01"), &body).unwrap();
    assert_eq!(run["status"], "success", "{run}");
    let build = collector.until(|told| named(&told.spans, "build").cloned());
    assert_eq!(build.unwrap()["traceId"], TRACE);
    let page = daemon.get("/metrics").unwrap().text();
    let line = "cofferdam_run_phase_seconds_count{phase=\"build\"} 1";
    assert!(page.lines().any(|found| found == line), "{page}");
}

#[test]
fn who_called_decides_whether_a_trace_is_told() {
    let collector = Collector::start(|_| Manner::Takes).unwrap();
    let daemon = Daemon::start(telling(&collector.url()).unwrap()).unwrap();
    let body = json!({"command": ["true"]});
    let run = run_traced(&daemon, &parent("00"), &body).unwrap();
    assert_eq!(run["trace_id"], TRACE);
    // Not one, though the flag would be set: it is malformed, and a new trace begins, without the state.
    let reply = daemon
        .send(
            "GET",
            "/health",
            &[("traceparent", "00-zz-01"), ("tracestate", "a=1")],
            b"",
        )
        .unwrap();
    let own = reply.header("traceparent").unwrap().to_owned();
    assert!(own.ends_with("-01") && !own.contains(TRACE), "{own}");
    let spans = collector
        .until(|told| named(&told.spans, "GET /health").map(|_| told.spans.clone()))
        .unwrap();
    assert_eq!(spans.len(), 1, "{spans:#?}");
    assert!(own.contains(spans[0]["traceId"].as_str().unwrap()));
    assert_eq!(spans[0].get("parentSpanId"), None);
    assert_eq!(spans[0].get("traceState"), None);
}

#[test]
fn a_collector_that_is_down_or_silent_costs_no_run_and_no_time() {
    let silent = Collector::start(|_| Manner::Hangs).unwrap();
    for url in [silent.url(), "http://127.0.0.1:1".to_owned()] {
        let mut daemon = Daemon::start(telling(&url).unwrap()).unwrap();
        let began = Instant::now();
        for _ in 0..5 {
            let run = run_traced(&daemon, &parent("01"), &json!({"command": ["true"]})).unwrap();
            assert_eq!(run["status"], "success");
        }
        // A collector is waited for ten seconds at a time.
        assert!(began.elapsed() < Duration::from_secs(25));
        let began = Instant::now();
        daemon.running.take().unwrap().stop();
        assert!(
            began.elapsed() < Duration::from_secs(25),
            "{:?}",
            began.elapsed()
        );
    }
}

#[test]
fn a_collector_that_is_busy_gets_the_same_spans_later() {
    let busy = |number| match number {
        0 => Manner::Answers("HTTP/1.1 429 Slow\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"),
        1 => Manner::Answers("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"),
        _ => Manner::Takes,
    };
    let collector = Collector::start(busy).unwrap();
    let daemon = Daemon::start(telling(&collector.url()).unwrap()).unwrap();
    daemon.get("/health").unwrap();
    let spans = collector
        .until(|told| (!told.spans.is_empty()).then(|| told.spans.clone()))
        .unwrap();
    assert_eq!(spans.len(), 1);
    assert_eq!(spans[0]["name"], "GET /health");
    let line = "cofferdam_otlp_failures_total 2";
    let page = daemon.get("/metrics").unwrap().text();
    assert!(page.lines().any(|found| found == line), "{page}");
}

#[test]
fn what_a_collector_refuses_is_dropped_and_counted() {
    let refusing = |number| match number {
        0 => Manner::Answers("HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n"),
        _ => Manner::Takes,
    };
    let collector = Collector::start(refusing).unwrap();
    let daemon = Daemon::start(telling(&collector.url()).unwrap()).unwrap();
    daemon.get("/health").unwrap();
    collector
        .until(|told| (!told.heads.is_empty()).then_some(()))
        .unwrap();
    let line = "cofferdam_otlp_spans_total{result=\"dropped\"} 1";
    let began = Instant::now();
    loop {
        let page = daemon.get("/metrics").unwrap().text();
        if page.lines().any(|found| found == line) {
            break;
        }
        assert!(began.elapsed() < crate::support::PATIENCE, "{page}");
        std::thread::sleep(crate::support::AGAIN);
    }
}

#[test]
fn what_is_told_last_is_told_before_the_daemon_ends() {
    let collector = Collector::start(|_| Manner::Takes).unwrap();
    let mut daemon = Daemon::start(telling(&collector.url()).unwrap()).unwrap();
    daemon.get("/health").unwrap();
    daemon.running.take().unwrap().stop();
    let found = collector.until(|told| named(&told.spans, "GET /health").cloned());
    assert!(found.is_ok());
}

#[test]
fn reports_to_a_control_plane_carry_the_trace() {
    let collector = Collector::start(|_| Manner::Takes).unwrap();
    let plane = Collector::start(|_| Manner::Takes).unwrap();
    let with_collector = telling(&collector.url()).unwrap();
    let control_plane = ControlPlane::new(&plane.url(), ControlPlane::PREFIX, None).unwrap();
    let daemon = Daemon::start(|config| {
        with_collector(config);
        config.callbacks.control_plane = Some(control_plane);
    })
    .unwrap();
    let run = run_traced(&daemon, &parent("01"), &json!({"command": ["true"]})).unwrap();
    assert_eq!(run["trace_id"], TRACE);
    let head = plane
        .until(|told| {
            let is_result = |head: &&String| head.contains("/result HTTP/1.1");
            told.heads.iter().find(is_result).cloned()
        })
        .unwrap();
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::to_owned)
    };
    assert_eq!(header("tracestate: ").as_deref(), Some("a=1"), "{head}");
    let sent = header("traceparent: ").unwrap();
    let span = sent.split('-').nth(2).unwrap().to_owned();
    assert_eq!(sent, format!("00-{TRACE}-{span}-01"));
    let (callback, whole) = collector
        .until(|told| {
            let callback = told.spans.iter().find(|told| told["spanId"] == span)?;
            let parent = |known: &&Value| known["spanId"] == callback["parentSpanId"];
            let whole = told.spans.iter().find(parent)?;
            Some((callback.clone(), whole.clone()))
        })
        .unwrap();
    assert_eq!(
        (&callback["name"], &callback["kind"]),
        (&json!("callback"), &json!(3))
    );
    assert_eq!(
        attribute(&whole, "cofferdam.run_id").unwrap(),
        &run["run_id"]
    );
}

#[test]
fn errors_and_events_carry_the_trace() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let given = parent("01");
    let reply = daemon
        .send("GET", "/nothing", &[("traceparent", &given)], b"")
        .unwrap();
    assert_eq!(reply.json()["trace_id"], TRACE);

    let body = json!({"command": ["true"], "wait": false});
    // What is promised is written down first, on another thread.
    let headers = [
        JSON,
        ("traceparent", given.as_str()),
        ("Idempotency-Key", "k"),
    ];
    let bytes = body.to_string();
    let kept = daemon.send("POST", "/v1/runs", &headers, bytes.as_bytes());
    assert_eq!(kept.unwrap().json()["trace_id"], TRACE);
    let run = run_traced(&daemon, &given, &body).unwrap();
    let path = format!("/v1/runs/{}/events", run["run_id"].as_str().unwrap());
    let mut stream = daemon.open("GET", &path, &[], b"").unwrap();
    assert_eq!(read_head(&mut stream).unwrap().status, 200);
    let mut seen = Vec::new();
    while let Some((_, name, data)) = read_event(&mut stream).unwrap() {
        if name == "state" || name == "end" {
            assert_eq!(data["trace_id"], TRACE, "{data}");
            seen.push(name);
        }
    }
    assert_eq!(seen.last().map(String::as_str), Some("end"));
    assert!(seen.len() >= 2, "{seen:?}");
}
