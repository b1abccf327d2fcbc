//! What one client can take up: slow senders, silent readers, too many connections, too long headers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use cofferdam_contract::units::Bytes;
use serde_json::json;

use crate::support::{Daemon, JSON, PATIENCE};

#[test]
fn a_slow_head_is_cut_off() {
    let daemon = Daemon::start(|config| config.http.head_timeout = Duration::from_secs(2)).unwrap();
    let mut stream = TcpStream::connect(daemon.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        .unwrap();
    let began = Instant::now();
    let _ = stream.read_to_end(&mut Vec::new());
    assert!(began.elapsed() < PATIENCE, "nobody cut it off");
    assert_eq!(
        daemon.get("/health").unwrap().json()["version"],
        env!("CARGO_PKG_VERSION")
    );
}

#[test]
fn a_slow_body_is_cut_off() {
    let daemon =
        Daemon::start(|config| config.http.body_timeout = Duration::from_millis(200)).unwrap();
    let mut stream = daemon
        .open("POST", "/v1/runs", &[JSON, ("Content-Length", "100")], b"")
        .map(|stream| stream.into_inner());
    if let Ok(stream) = &mut stream {
        // Two different lengths are refused at once; what follows is the honest slow one.
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    let mut stream = TcpStream::connect(daemon.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
        daemon.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("http.timeout"));
}

#[test]
fn large_requests_wait_for_each_other_and_small_ones_are_served() {
    let daemon = Daemon::start(|config| {
        config.http.body = Bytes::new(1 << 20);
        config.http.bodies = Bytes::new(1 << 20);
        config.http.body_timeout = Duration::from_secs(5);
        config.grace = Duration::ZERO;
    })
    .unwrap();
    let large = |wait: bool| json!({"command": ["sleep", "60"], "stdin": "x".repeat(700 << 10), "wait": wait});
    let first = daemon.post("/v1/runs", &large(false)).unwrap();
    assert_eq!(first.status, 202);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| daemon.post("/v1/runs", &large(false)).unwrap());
        // Also while it waits for its turn.
        let mut served = 0;
        while served < 3 || !second.is_finished() {
            let small = daemon.post("/v1/runs", &json!({"command": ["true"]}));
            assert_eq!(small.unwrap().status, 200);
            served += 1;
            std::thread::sleep(Duration::from_millis(200));
        }
        let second = second.join().unwrap();
        assert_eq!(second.error(), (503, "queue.full".to_owned()));
    });
    daemon
        .send("DELETE", first.header("location").unwrap(), &[], b"")
        .unwrap();
    daemon
        .until(first.header("location").unwrap(), |run| {
            run["state"] == "ended"
        })
        .unwrap();
    assert_eq!(daemon.post("/v1/runs", &large(false)).unwrap().status, 202);
}

#[test]
fn a_long_head_is_refused() {
    let daemon = Daemon::start(|config| config.http.head = Bytes::new(16 << 10)).unwrap();
    let long = "x".repeat(40 << 10);
    let reply = daemon
        .send("GET", "/health", &[("X-Long", &long)], b"")
        .unwrap();
    assert_eq!(reply.status, 431);
}

#[test]
fn too_many_connections_wait_and_are_served_when_others_go() {
    let daemon = Daemon::start(|config| {
        config.http.connections = 4;
        config.http.head_timeout = Duration::from_secs(1);
    })
    .unwrap();
    let idle: Vec<_> = (0..8)
        .map(|_| TcpStream::connect(daemon.address).unwrap())
        .collect();
    // Those who say nothing are cut off, and then it is our turn.
    let reply = daemon.get("/health").unwrap();
    assert!(reply.status == 200 || reply.status == 503);
    drop(idle);
}

#[test]
fn a_run_that_has_ended_holds_no_descriptor_and_no_thread() {
    let count =
        |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).map_or(0, Iterator::count);
    let daemon = Daemon::start(|config| config.runs.pool = Some(0)).unwrap();
    let run = || {
        let body = json!({"command": ["true"], "workspace": true});
        assert_eq!(daemon.post("/v1/runs", &body).unwrap().status, 200);
    };
    // The first ones open what stays open.
    (0..5).for_each(|_| run());
    daemon.get("/v1/runs").unwrap();
    let before = count("fd");
    (0..40).for_each(|_| run());
    assert!(count("fd") <= before + 8, "{} after {before}", count("fd"));
    assert!(count("task") < 40);
}

#[test]
fn a_reader_that_does_not_read_stops_nobody() {
    let daemon = Daemon::start(|config| {
        config.runs.at_once = Some(2);
        config.grace = Duration::ZERO;
    })
    .unwrap();
    let body = json!({
        "command": ["sh", "-c", "yes | head -c 8000000; sleep 60"],
        "limits": {"output_bytes": 16 << 20}, "wait": false,
    });
    let run = daemon.post("/v1/runs", &body).unwrap().json();
    let id = run["run_id"].as_str().unwrap();
    let silent: Vec<_> = (0..5)
        .map(|_| {
            daemon
                .open("GET", &format!("/v1/runs/{id}/events"), &[], b"")
                .unwrap()
        })
        .collect();
    let reply = daemon
        .post("/v1/runs", &json!({"command": ["echo", "x"]}))
        .unwrap();
    assert_eq!(reply.json()["stdout"]["data"], "x\n");
    daemon
        .send("DELETE", &format!("/v1/runs/{id}"), &[], b"")
        .unwrap();
    let ended = daemon
        .until(&format!("/v1/runs/{id}"), |run| run["state"] == "ended")
        .unwrap();
    assert_eq!(ended["status"], "canceled");
    drop(silent);
}

#[test]
fn a_run_may_not_ask_for_more_disk_processes_or_files_than_the_daemon_allows() {
    let daemon = Daemon::start(|config| {
        config.runs.ceilings.disk = Bytes::new(8 << 20);
        config.runs.ceilings.processes = 16;
        config.runs.ceilings.open_files = 64;
    })
    .unwrap();
    let greedy = json!({
        "command": ["true"],
        "limits": {"disk_bytes": 9 << 20, "processes": 17, "open_files": 65},
    });
    let reply = daemon.post("/v1/runs", &greedy).unwrap();
    assert_eq!(reply.error(), (400, "input.invalid".to_owned()));
    let detail = reply.json()["error_detail"].as_str().unwrap().to_owned();
    for (field, asked, most) in [
        ("limits.disk_bytes", 9 << 20, 8 << 20),
        ("limits.processes", 17, 16),
        ("limits.open_files", 65, 64),
    ] {
        let line = detail.lines().find(|line| line.contains(field));
        let line = line.unwrap_or_else(|| panic!("{field}: {detail}"));
        assert!(line.contains(&asked.to_string()), "{line}");
        assert!(line.contains(&format!("at most {most}")), "{line}");
    }
    // What nobody asked for is lowered, and holds.
    let limits = json!({"command": ["sh", "-c", "ulimit -n"]});
    let run = daemon.post("/v1/runs", &limits).unwrap().json();
    assert_eq!(run["stdout"]["data"], "64\n", "{run}");
}
