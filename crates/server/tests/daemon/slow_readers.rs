//! Readers that take their time: what waits for them is bounded together, and nobody else waits with them.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use cofferdam_contract::units::Bytes;
use serde_json::json;

use crate::support::{AGAIN, Daemon, PATIENCE, read_head, read_reply};

/// More than the kernel takes for a connection whose reader is silent.
const LARGE: u64 = 6 << 20;

#[test]
fn answers_that_nobody_reads_are_bounded_together_and_small_ones_go_on() {
    let daemon = Daemon::start(|config| {
        config.http.answers = Bytes::new(LARGE + (2 << 20));
        config.http.request_timeout = Duration::from_secs(6);
    })
    .unwrap();
    let command = format!("yes | head -c {LARGE}");
    let body = json!({
        "command": ["sh", "-c", command], "wait": false,
        "limits": {"output_bytes": 8 << 20},
    });
    let run = daemon.post("/v1/runs", &body).unwrap();
    let path = run.header("location").unwrap().to_owned();
    let began = Instant::now();
    while !daemon
        .get("/v1/runs?status=success")
        .unwrap()
        .text()
        .contains("sh -c")
    {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(AGAIN);
    }
    let mut silent = daemon.open("GET", &path, &[], b"").unwrap();
    assert_eq!(read_head(&mut silent).unwrap().status, 200);
    for other in [path.clone(), format!("{path}/logs")] {
        let reply = daemon.get(&other).unwrap();
        assert_eq!(reply.error(), (503, "answers.full".to_owned()));
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
    let mut waits = body.clone();
    waits["wait"] = json!(true);
    let reply = daemon.post("/v1/runs", &waits).unwrap();
    assert_eq!(reply.error(), (503, "answers.full".to_owned()));
    // It was run, and whoever sent it knows where its result is.
    let second = reply.header("location").unwrap().to_owned();
    let small = daemon
        .post("/v1/runs", &json!({"command": ["echo", "x"]}))
        .unwrap();
    assert_eq!(small.json()["stdout"]["data"], "x\n");
    drop(silent);
    let ended = daemon.until(&second, |run| run["status"] == "success");
    assert!(ended.is_ok(), "{ended:?}");
    let began = Instant::now();
    loop {
        let reply = daemon.get(&path).unwrap();
        if reply.status == 200 {
            let length = reply.json()["stdout"]["data"].as_str().map(str::len);
            assert_eq!(
                length.and_then(|length| u64::try_from(length).ok()),
                Some(LARGE)
            );
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{}", reply.text());
        std::thread::sleep(AGAIN);
    }
}

#[test]
fn a_batch_with_many_large_outputs_is_answered_within_its_bound() {
    let daemon = Daemon::start(|config| config.http.answers = Bytes::new(8 << 20)).unwrap();
    let run = json!({
        "command": ["sh", "-c", "yes | head -c 400000"],
        "limits": {"output_bytes": 1 << 20},
    });
    let reply = daemon
        .post("/v1/runs/batch", &json!({"runs": vec![run; 6]}))
        .unwrap();
    assert_eq!(reply.status, 200);
    assert!(reply.body.len() < 2 << 20, "{}", reply.body.len());
    let answer = reply.json();
    let runs = answer["runs"].as_array().unwrap();
    assert!(
        runs.iter().all(|run| run["status"] == "success"),
        "{answer}"
    );
    let with_output = runs.iter().filter(|run| !run["stdout"].is_null()).count();
    assert!((1..6).contains(&with_output), "{with_output}");
    let left = runs.iter().find(|run| run["stdout"].is_null()).unwrap();
    let path = format!("/v1/runs/{}", left["run_id"].as_str().unwrap());
    assert!(daemon.get(&path).unwrap().json()["stdout"]["data"].is_string());
}

#[test]
fn more_slow_downloads_than_threads_may_block_keep_nobody_waiting() {
    const SLOW: usize = 530;
    let daemon = Daemon::start(|_| {}).unwrap();
    let body = json!({"command": ["sh", "-c", "yes | head -c 8000000 > large"], "workspace": true});
    let run = daemon.post("/v1/runs", &body).unwrap().json();
    let id = run["run_id"].as_str().unwrap();
    assert_eq!(run["artifacts"][0]["path"], "large", "{run}");
    let path = format!("/v1/runs/{id}/artifacts/large");
    let mut slow: Vec<_> = (0..SLOW)
        .map(|_| daemon.open("GET", &path, &[], b"").unwrap())
        .collect();
    for reader in &mut slow {
        assert_eq!(read_head(reader).unwrap().status, 200);
    }
    // These need a thread that may block.
    let began = Instant::now();
    let listed = daemon.get("/v1/runs").unwrap();
    assert_eq!(listed.status, 200);
    let code = json!({"language": "sh", "code": "echo x"});
    let run = daemon.post("/v1/runs", &code).unwrap().json();
    assert_eq!(run["stdout"]["data"], "x\n", "{run}");
    assert!(began.elapsed() < PATIENCE);
    let whole = daemon.get(&path).unwrap();
    assert_eq!(whole.body.len(), 8_000_000);
}

#[test]
fn a_body_of_unknown_length_takes_no_more_room_than_it_is_long() {
    let daemon = Daemon::start(|config| {
        config.http.body = Bytes::new(1 << 20);
        config.http.bodies = Bytes::new(1 << 20);
        config.http.body_timeout = Duration::from_secs(20);
        config.grace = Duration::ZERO;
    })
    .unwrap();
    let body = r#"{"command": ["sleep", "60"], "wait": false}"#;
    let request = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        daemon.address,
        body.len()
    );
    let mut stream = TcpStream::connect(daemon.address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let reply = read_reply(&mut std::io::BufReader::new(stream)).unwrap();
    assert_eq!(reply.status, 202, "{}", reply.text());
    let large = json!({"command": ["true"], "stdin": "x".repeat(900 << 10), "wait": false});
    assert_eq!(daemon.post("/v1/runs", &large).unwrap().status, 202);
}

#[test]
fn a_body_of_unknown_length_that_is_too_long_is_noticed_while_it_comes() {
    let daemon = Daemon::start(|config| config.http.body = Bytes::new(1 << 20)).unwrap();
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked",
        daemon.address
    );
    let mut stream = TcpStream::connect(daemon.address).unwrap();
    stream
        .write_all(format!("{head}\r\n\r\n").as_bytes())
        .unwrap();
    let piece = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    for _ in 0..17 {
        if stream.write_all(piece.as_bytes()).is_err() {
            break;
        }
    }
    let reply = read_reply(&mut std::io::BufReader::new(stream)).unwrap();
    assert_eq!(reply.error(), (413, "http.body_too_large".to_owned()));
}

#[test]
fn what_was_sent_beside_the_work_itself_is_given_back_before_the_run_ends() {
    let daemon = Daemon::start(|config| {
        config.http.body = Bytes::new(1 << 20);
        config.http.bodies = Bytes::new(1 << 20);
        config.http.body_timeout = Duration::from_secs(20);
        config.grace = Duration::ZERO;
    })
    .unwrap();
    // Base64 is a third longer than what it stands for, and white space is nothing.
    let padded = format!(
        "{}{}",
        json!({"command": ["sleep", "60"], "wait": false}),
        " ".repeat(900 << 10)
    );
    let reply = daemon
        .send(
            "POST",
            "/v1/runs",
            &[crate::support::JSON],
            padded.as_bytes(),
        )
        .unwrap();
    assert_eq!(reply.status, 202, "{}", reply.text());
    let large = json!({"command": ["true"], "stdin": "x".repeat(900 << 10)});
    assert_eq!(daemon.post("/v1/runs", &large).unwrap().status, 200);
}
