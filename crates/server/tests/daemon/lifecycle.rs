//! The end: what runs is drained or cancelled, clients get their answers, nothing is left, and a second daemon keeps out.

use std::time::{Duration, Instant};

use cofferdam_server::{Config, Server, StartError};
use cofferdam_store::DataDir;
use serde_json::json;

use crate::support::{Daemon, JSON, read_reply};

#[test]
fn what_runs_may_end_within_the_grace() {
    let mut daemon = Daemon::start(|config| config.grace = Duration::from_secs(20)).unwrap();
    let body = json!({"command": ["sh", "-c", "sleep 3; echo whole"]}).to_string();
    let mut stream = daemon
        .open("POST", "/v1/runs", &[JSON], body.as_bytes())
        .unwrap();
    daemon
        .until("/health", |health| health["active_executions"] == 1)
        .unwrap();
    let canceled = daemon.running.take().unwrap().stop();
    assert_eq!(canceled, 0);
    let reply = read_reply(&mut stream).unwrap();
    assert_eq!(reply.json()["stdout"]["data"], "whole\n");
    assert!(daemon.get("/health").is_err(), "nobody listens any more");
}

#[test]
fn what_runs_longer_is_cancelled_and_told_so() {
    let mut daemon = Daemon::start(|config| {
        config.grace = Duration::ZERO;
        config.runs.at_once = Some(1);
    })
    .unwrap();
    let body = json!({"command": ["sleep", "60"]}).to_string();
    let mut running = daemon
        .open("POST", "/v1/runs", &[JSON], body.as_bytes())
        .unwrap();
    daemon
        .until("/health", |health| health["active_executions"] == 1)
        .unwrap();
    let mut waiting = daemon
        .open("POST", "/v1/runs", &[JSON], body.as_bytes())
        .unwrap();
    daemon
        .until("/health", |health| health["queued_executions"] == 1)
        .unwrap();
    let began = Instant::now();
    let canceled = daemon.running.take().unwrap().stop();
    assert_eq!(canceled, 1);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    for stream in [&mut running, &mut waiting] {
        let reply = read_reply(stream).unwrap();
        assert_eq!(reply.json()["status"], "canceled", "{}", reply.text());
    }
    let history =
        cofferdam_store::History::open(&DataDir::at(daemon.dir.path().join("data"))).unwrap();
    let query = cofferdam_store::database::Query {
        limit: 10,
        ..Default::default()
    };
    let statuses: Vec<_> = history
        .list(&query)
        .unwrap()
        .runs
        .iter()
        .map(|run| run.status.as_str())
        .collect();
    assert_eq!(statuses, ["canceled", "canceled"]);
}

#[test]
fn two_daemons_do_not_share_a_data_directory() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let mut config = Config::new(DataDir::at(daemon.dir.path().join("data")));
    config.listen.set_port(0);
    assert!(matches!(
        Server::start(config),
        Err(StartError::InUse { .. })
    ));
    let other = tempfile::tempdir().unwrap();
    let mut config = Config::new(DataDir::at(other.path()));
    config.listen = daemon.address;
    assert!(matches!(
        Server::start(config),
        Err(StartError::Listen { .. })
    ));
}

#[test]
fn a_new_daemon_knows_keys_and_runs_of_the_one_before() {
    let mut daemon = Daemon::start(|_| {}).unwrap();
    let body = json!({"command": ["date", "+%N"]}).to_string();
    let headers = [JSON, ("Idempotency-Key", "k-1")];
    let first = daemon
        .send("POST", "/v1/runs", &headers, body.as_bytes())
        .unwrap();
    daemon.restart().unwrap();
    let second = daemon
        .send("POST", "/v1/runs", &headers, body.as_bytes())
        .unwrap();
    let (first, second) = (first.json(), second.json());
    assert_eq!(first["run_id"], second["run_id"]);
    assert_eq!(first["stdout"], second["stdout"]);
    assert_eq!(second["source"], "history");
    let listed = daemon.get("/v1/runs").unwrap().json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1);
}
