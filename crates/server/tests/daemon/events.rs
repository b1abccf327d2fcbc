//! A run as it happens: the order of its events, output while it goes on, and going on after a break.

use std::io::BufReader;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::{Daemon, Outcome, read_event, read_head};

type Event = (String, String, Value);

fn open(daemon: &Daemon, run: &str, last: Option<&str>) -> Outcome<BufReader<TcpStream>> {
    let headers: Vec<_> = last.into_iter().map(|id| ("Last-Event-ID", id)).collect();
    let mut stream = daemon.open("GET", &format!("/v1/runs/{run}/events"), &headers, b"")?;
    let head = read_head(&mut stream)?;
    if head.header("content-type") != Some("text/event-stream") {
        return Err(format!("{head:?}").into());
    }
    Ok(stream)
}

fn rest(stream: &mut BufReader<TcpStream>) -> Outcome<Vec<Event>> {
    let mut events = Vec::new();
    while let Some(event) = read_event(stream)? {
        events.push(event);
    }
    Ok(events)
}

fn output(events: &[Event]) -> String {
    let pieces = events.iter().filter(|(_, name, _)| name == "output");
    pieces
        .filter_map(|(_, _, data)| data["data"].as_str())
        .collect()
}

fn submit(daemon: &Daemon, script: &str) -> Outcome<String> {
    let body = json!({"command": ["sh", "-c", script], "wait": false, "workspace": true});
    let run = daemon.post("/v1/runs", &body)?.json();
    Ok(run["run_id"].as_str().ok_or("no id")?.to_owned())
}

#[test]
fn output_comes_while_the_run_goes_on_and_the_end_comes_last() {
    let daemon = Daemon::start(|_| {}).unwrap();
    // It goes on until somebody cancels it, so that what is read was sent before its end.
    let run = submit(&daemon, "echo first; echo oops >&2; sleep 60").unwrap();
    let mut stream = open(&daemon, &run, None).unwrap();
    let mut seen = Vec::new();
    while !(output(&seen).contains("first\n") && output(&seen).contains("oops\n")) {
        seen.push(read_event(&mut stream).unwrap().expect("it goes on"));
    }
    daemon
        .send("DELETE", &format!("/v1/runs/{run}"), &[], b"")
        .unwrap();
    seen.extend(rest(&mut stream).unwrap());
    let names: Vec<&str> = seen.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(&names[..2], ["state", "state"]);
    assert_eq!(
        (&seen[0].2["state"], &seen[1].2["state"]),
        (&json!("queued"), &json!("running"))
    );
    assert_eq!(names.last(), Some(&"end"));
    let end = &seen.last().unwrap().2;
    assert_eq!(
        (&end["status"], &end["run_id"]),
        (&json!("canceled"), &json!(run))
    );
    assert_eq!(names.iter().filter(|name| **name == "end").count(), 1);
}

#[test]
fn a_reader_that_comes_back_misses_nothing_and_gets_nothing_twice() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let script = "for i in 1 2 3 4 5 6 7 8; do echo line $i €; sleep 0.06; done";
    let run = submit(&daemon, script).unwrap();
    let mut stream = open(&daemon, &run, None).unwrap();
    let mut seen = Vec::new();
    while !output(&seen).contains("line 3") {
        seen.push(read_event(&mut stream).unwrap().expect("it goes on"));
    }
    drop(stream);
    let last = seen.last().unwrap().0.clone();
    let mut stream = open(&daemon, &run, Some(&last)).unwrap();
    seen.extend(rest(&mut stream).unwrap());
    let expected: String = (1..=8).map(|i| format!("line {i} €\n")).collect();
    assert_eq!(output(&seen), expected);
    let states = seen.iter().filter(|(_, name, _)| name == "state").count();
    assert_eq!(states, 2);
    // From the middle, after it has become history.
    daemon.get("/v1/runs").unwrap();
    let mut stream = open(&daemon, &run, Some("2.5.0")).unwrap();
    let again = rest(&mut stream).unwrap();
    assert_eq!(output(&again), expected[5..]);
    assert_eq!(again.last().unwrap().1, "end");
    let ended = &again.last().unwrap().0;
    let path = format!("/v1/runs/{run}/events");
    let reply = daemon
        .send("GET", &path, &[("Last-Event-ID", ended)], b"")
        .unwrap();
    assert_eq!(reply.status, 204);
    let reply = daemon
        .send("GET", &path, &[("Last-Event-ID", "nonsense")], b"")
        .unwrap();
    assert_eq!(reply.error(), (400, "input.invalid".to_owned()));
}

#[test]
fn a_run_from_the_history_is_told_from_its_beginning() {
    let daemon = Daemon::start(|config| config.runs.remembered = 0).unwrap();
    let run = daemon
        .post("/v1/runs", &json!({"command": ["echo", "old"]}))
        .unwrap()
        .json();
    let run = run["run_id"].as_str().unwrap();
    daemon
        .post("/v1/runs", &json!({"command": ["true"]}))
        .unwrap();
    daemon
        .until(&format!("/v1/runs/{run}"), |found| {
            found["source"] == "history"
        })
        .unwrap();
    let events = rest(&mut open(&daemon, run, None).unwrap()).unwrap();
    let names: Vec<&str> = events.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["state", "state", "output", "end"]);
    assert_eq!(output(&events), "old\n");
}

#[test]
fn what_a_run_uses_is_told_while_it_goes_on_and_moves_no_reader() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let run = submit(&daemon, "echo x; while :; do :; done").unwrap();
    let mut stream = open(&daemon, &run, None).unwrap();
    let mut samples = Vec::new();
    let mut last = String::new();
    while samples.len() < 3 {
        let (id, name, data) = read_event(&mut stream).unwrap().expect("it goes on");
        if name == "usage" {
            assert!(last.is_empty() || id == last, "{id} after {last}");
            samples.push(data);
        }
        last = id;
    }
    let cpu = |sample: &Value| sample["cpu_ms"].as_f64().unwrap();
    assert!(cpu(&samples[2]) > cpu(&samples[0]), "{samples:?}");
    for sample in &samples {
        assert!(sample["memory_bytes"].as_u64().unwrap() > 0, "{sample}");
        assert!(sample["processes"].as_u64().unwrap() >= 1, "{sample}");
    }
    daemon
        .send("DELETE", &format!("/v1/runs/{run}"), &[], b"")
        .unwrap();
    assert_eq!(rest(&mut stream).unwrap().last().unwrap().1, "end");
}

#[test]
fn a_journal_that_cannot_be_read_ends_the_stream_with_an_error() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let run = submit(&daemon, "echo x; sleep 60").unwrap();
    let mut stream = open(&daemon, &run, None).unwrap();
    while read_event(&mut stream).unwrap().expect("it goes on").1 != "output" {}
    let journal = daemon.dir.path().join(format!("data/spool/{run}.run"));
    std::fs::remove_file(&journal).unwrap();
    // Links are not followed.
    std::os::unix::fs::symlink("/dev/null", &journal).unwrap();
    let events = rest(&mut stream).unwrap();
    let errors: Vec<_> = events
        .iter()
        .filter(|(_, name, _)| name == "error")
        .collect();
    assert_eq!(errors.len(), 1, "{events:?}");
    assert_eq!(events.last().unwrap().1, "error");
    assert_eq!(
        errors[0].2["error_code"], "history.unavailable",
        "{events:?}"
    );
    std::fs::remove_file(&journal).unwrap();
    daemon
        .send("DELETE", &format!("/v1/runs/{run}"), &[], b"")
        .unwrap();
}
