//! The daemon obeys the mode: at its start for what it does itself, and for each request.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::refusal::assert_refused;
use cofferdam_testkit::{Desk, desk};

pub(crate) struct Daemon {
    child: Child,
    pub(crate) address: String,
}

impl Daemon {
    pub(crate) fn start(desk: &Desk, args: &[&str]) -> Self {
        let mut child = desk
            .command()
            .args(args)
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut seen = Vec::new();
        let address = loop {
            let Some(Ok(line)) = lines.next() else {
                panic!("it ended before it listened: {seen:#?}");
            };
            let told: Value = serde_json::from_str(&line).unwrap_or_default();
            if told["message"] == "listening" {
                break told["address"].as_str().unwrap().to_owned();
            }
            seen.push(line);
        };
        // Or it would wait for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.ask("POST", path, &body.to_string())
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        (status, serde_json::from_str(body).unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_daemon_that_would_tell_others_does_not_start_in_an_air_gap() {
    let desk = desk!();
    let done = desk
        .line("--mode air-gapped serve --listen 127.0.0.1:0 --control-plane https://plane.example");
    assert_refused(&done, "air-gapped", "callback");
    let traced = desk
        .command()
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://traces.example:4318")
        .args(["--mode", "air-gapped", "serve", "--listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    assert_refused(&traced, "air-gapped", "traces");
}

#[test]
fn a_daemon_holds_every_request_against_its_mode() {
    let desk = desk!();
    let args = [
        "--mode",
        "air-gapped",
        "serve",
        "--callback-allow",
        "*",
        "--callback-allow-private",
        "--callback-allow-loopback",
    ];
    let daemon = Daemon::start(&desk, &args);
    let (status, run) = daemon.post("/v1/runs", &json!({"command": ["echo", "in"]}));
    assert_eq!((status, &run["status"]), (200, &json!("success")), "{run}");
    for url in ["http://192.0.2.7/hook", "http://10.0.0.1:8080/hook"] {
        let asked = json!({"command": ["true"], "callback_url": url});
        let (status, refused) = daemon.post("/v1/runs", &asked);
        assert!((400..500).contains(&status), "{refused}");
        let detail = refused["error_detail"].as_str().unwrap();
        assert!(
            detail.contains("mode air-gapped, rule `callback`"),
            "{refused}"
        );
    }
    let draft = json!({
        "contract_id": "c", "scope": "s", "network_allowed": true,
        "task": {"kind": "command", "argv": ["true"]},
    });
    let payload = std::fs::read(desk.seal("payload.json", &draft)).unwrap();
    let payload: Value = serde_json::from_slice(&payload).unwrap();
    let (status, refused) = daemon.post("/v1/payloads", &payload);
    assert_eq!(status, 403, "{refused}");
    assert_eq!(refused["error_code"], "policy.refused");
    let detail = refused["error_detail"].as_str().unwrap();
    assert!(detail.contains("rule `network`"), "{refused}");
}
