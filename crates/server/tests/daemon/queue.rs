//! Turns: back-pressure, cancelling, deadlines, budgets, clients that go away.

use std::time::Duration;

use cofferdam_contract::units::Bytes;
use cofferdam_server::config::MemoryBudget;
use serde_json::{Value, json};

use crate::support::{Daemon, JSON, Outcome};

fn one_at_a_time(queue: usize) -> Outcome<Daemon> {
    Daemon::start(|config| {
        config.runs.at_once = Some(1);
        config.runs.queue = queue;
        config.grace = Duration::ZERO;
    })
}

fn submit(daemon: &Daemon, body: &Value) -> Outcome<Value> {
    let mut body = body.clone();
    body["wait"] = json!(false);
    let reply = daemon.post("/v1/runs", &body)?;
    if reply.status != 202 {
        return Err(reply.text().into());
    }
    Ok(reply.json())
}

fn path(run: &Value) -> String {
    format!("/v1/runs/{}", run["run_id"].as_str().unwrap_or_default())
}

#[test]
fn a_full_queue_says_so_and_when_to_come_back() {
    let daemon = one_at_a_time(1).unwrap();
    let long = json!({"command": ["sleep", "60"]});
    let first = submit(&daemon, &long).unwrap();
    daemon
        .until(&path(&first), |run| run["state"] == "running")
        .unwrap();
    let second = submit(&daemon, &long).unwrap();
    let reply = daemon.post("/v1/runs", &long).unwrap();
    assert_eq!(reply.error(), (503, "queue.full".to_owned()));
    assert!(
        reply
            .header("retry-after")
            .is_some_and(|seconds| seconds.parse::<u64>().is_ok())
    );
    let code = json!({"code": "true", "language": "shell"});
    let reply = daemon.post("/execute", &code).unwrap();
    assert_eq!(reply.error(), (503, "Executor.QueueFull".to_owned()));
    let health = daemon.get("/health").unwrap().json();
    assert_eq!(
        (&health["active_executions"], &health["queued_executions"]),
        (&json!(1), &json!(1))
    );
    let queued = daemon.get("/v1/runs?status=queued").unwrap().json();
    assert_eq!(queued["runs"][0]["run_id"], second["run_id"]);
}

#[test]
fn what_waits_is_cancelled_without_ever_running() {
    let daemon = one_at_a_time(10).unwrap();
    let first = submit(&daemon, &json!({"command": ["sleep", "60"]})).unwrap();
    let second = submit(&daemon, &json!({"command": ["sleep", "60"]})).unwrap();
    let reply = daemon.send("DELETE", &path(&second), &[], b"").unwrap();
    assert_eq!(reply.status, 202);
    let run = daemon.get(&path(&second)).unwrap().json();
    assert_eq!(
        (&run["status"], &run["started_at"]),
        (&json!("canceled"), &Value::Null)
    );
    let listed = daemon.get("/v1/runs?status=canceled").unwrap().json();
    assert_eq!(listed["runs"][0]["run_id"], second["run_id"]);
    let again = daemon.send("DELETE", &path(&second), &[], b"").unwrap();
    assert_eq!(again.error(), (409, "run.ended".to_owned()));
    daemon
        .send("POST", &format!("{}/cancel", path(&first)), &[], b"")
        .unwrap();
    let run = daemon
        .until(&path(&first), |run| run["state"] == "ended")
        .unwrap();
    assert_eq!(run["status"], "canceled");
    assert_eq!(run["ending"]["cause"], "canceled");
}

#[test]
fn a_deadline_counts_the_waiting() {
    let daemon = one_at_a_time(10).unwrap();
    let first = submit(&daemon, &json!({"command": ["sleep", "60"]})).unwrap();
    let late = json!({"command": ["true"], "deadline_ms": 100});
    let reply = daemon.post("/v1/runs", &late).unwrap();
    assert_eq!(reply.error(), (504, "run.deadline_passed".to_owned()));
    daemon.send("DELETE", &path(&first), &[], b"").unwrap();
    daemon
        .until(&path(&first), |run| run["state"] == "ended")
        .unwrap();
    let slow = json!({"command": ["sleep", "60"], "deadline_ms": 5000});
    let run = daemon.post("/v1/runs", &slow).unwrap().json();
    assert_eq!(
        (&run["status"], &run["ending"]["cause"]),
        (&json!("timeout"), &json!("wall_time"))
    );
}

#[test]
fn priorities_decide_who_is_next() {
    let daemon = one_at_a_time(10).unwrap();
    let first = submit(&daemon, &json!({"command": ["sleep", "60"]})).unwrap();
    daemon
        .until(&path(&first), |run| run["state"] == "running")
        .unwrap();
    let low = submit(&daemon, &json!({"command": ["true"], "priority": -1})).unwrap();
    let high = submit(&daemon, &json!({"command": ["true"], "priority": 1})).unwrap();
    daemon.send("DELETE", &path(&first), &[], b"").unwrap();
    let low = daemon
        .until(&path(&low), |run| run["state"] == "ended")
        .unwrap();
    let high = daemon
        .until(&path(&high), |run| run["state"] == "ended")
        .unwrap();
    assert!(high["started_at"].as_str() < low["started_at"].as_str());
}

#[test]
fn memory_limits_never_add_up_to_more_than_the_budget() {
    let daemon = Daemon::start(|config| {
        config.runs.at_once = Some(8);
        config.runs.memory = MemoryBudget::AtMost(Bytes::new(100 << 20));
        config.grace = Duration::ZERO;
    })
    .unwrap();
    let limits = json!({"memory_bytes": 60 << 20});
    let first = submit(
        &daemon,
        &json!({"command": ["sleep", "60"], "limits": limits}),
    )
    .unwrap();
    let second = submit(
        &daemon,
        &json!({"command": ["sleep", "60"], "limits": limits}),
    )
    .unwrap();
    daemon
        .until(&path(&first), |run| run["state"] == "running")
        .unwrap();
    assert_eq!(
        daemon.get(&path(&second)).unwrap().json()["state"],
        "queued"
    );
    daemon.send("DELETE", &path(&first), &[], b"").unwrap();
    daemon
        .until(&path(&second), |run| run["state"] == "running")
        .unwrap();
    let huge = json!({"command": ["true"], "limits": {"memory_bytes": 200 << 20}});
    let reply = daemon.post("/v1/runs", &huge).unwrap();
    assert_eq!(reply.error(), (400, "input.invalid".to_owned()));
    assert!(
        reply.json()["error_detail"]
            .as_str()
            .unwrap()
            .contains("100 MiB")
    );
}

#[test]
fn a_client_that_goes_away_takes_its_run_along() {
    let daemon = one_at_a_time(10).unwrap();
    let body = json!({"command": ["sleep", "60"]}).to_string();
    let stream = daemon
        .open("POST", "/v1/runs", &[JSON], body.as_bytes())
        .unwrap();
    daemon
        .until("/health", |health| health["active_executions"] == 1)
        .unwrap();
    drop(stream);
    daemon
        .until("/health", |health| health["active_executions"] == 0)
        .unwrap();
    let listed = daemon.get("/v1/runs?status=canceled").unwrap().json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn with_a_key_the_run_goes_on_and_can_be_asked_for_again() {
    let daemon = one_at_a_time(10).unwrap();
    let body = json!({"command": ["sh", "-c", "sleep 3; echo done"]}).to_string();
    let headers = [JSON, ("Idempotency-Key", "k")];
    let stream = daemon
        .open("POST", "/v1/runs", &headers, body.as_bytes())
        .unwrap();
    daemon
        .until("/health", |health| health["active_executions"] == 1)
        .unwrap();
    drop(stream);
    let reply = daemon
        .send("POST", "/v1/runs", &headers, body.as_bytes())
        .unwrap();
    assert_eq!(reply.json()["stdout"]["data"], "done\n");
    let listed = daemon.get("/v1/runs").unwrap().json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn what_cannot_be_written_down_is_refused_and_takes_no_place() -> Outcome<()> {
    let daemon = one_at_a_time(1)?;
    let accepted = daemon.dir.path().join("data/accepted");
    std::fs::remove_dir(&accepted)?;
    std::fs::write(&accepted, "in the way")?;
    let run = json!({"command": ["true"], "wait": false});
    for _ in 0..3 {
        let reply = daemon.post("/v1/runs", &run)?;
        assert_eq!(reply.error(), (503, "history.unavailable".to_owned()));
        assert!(!reply.text().contains("accepted"), "{}", reply.text());
    }
    // Whoever waits for the answer needs no promise.
    let reply = daemon.post("/v1/runs", &json!({"command": ["true"]}))?;
    assert_eq!(reply.json()["status"], "success");
    std::fs::remove_file(&accepted)?;
    std::fs::create_dir(&accepted)?;
    assert_eq!(daemon.post("/v1/runs", &run)?.status, 202);
    Ok(())
}

/// The file of a run that waits, as a daemon that was killed would leave it.
fn left_behind(run: &Value) -> Outcome<(String, Vec<u8>)> {
    let daemon = one_at_a_time(10)?;
    submit(&daemon, &json!({"command": ["sleep", "60"]}))?;
    let waiting = submit(&daemon, run)?;
    let id = waiting["run_id"].as_str().ok_or("no id")?.to_owned();
    let path = format!("data/accepted/{id}.job");
    let text = std::fs::read(daemon.dir.path().join(path))?;
    Ok((id, text))
}

#[test]
fn what_cannot_be_run_any_more_is_ended_with_a_reason() -> Outcome<()> {
    let run = json!({"command": ["echo", "late"], "limits": {"memory_bytes": 64 << 20}});
    let (id, text) = left_behind(&run)?;
    let start = |text: &[u8], budget: u64| -> Outcome<Daemon> {
        let dir = tempfile::tempdir()?;
        let accepted = dir.path().join("data/accepted");
        std::fs::create_dir_all(&accepted)?;
        std::fs::write(accepted.join(format!("{id}.job")), text)?;
        Daemon::start_in(dir, |config| {
            config.runs.memory = MemoryBudget::AtMost(Bytes::new(budget));
        })
    };
    let path = format!("/v1/runs/{id}");
    let ended = |daemon: &Daemon| daemon.until(&path, |run| run["state"] == "ended");
    let whole = ended(&start(&text, 128 << 20)?)?;
    assert_eq!(whole["stdout"]["data"], "late\n", "{whole}");
    // A daemon with less memory than the run was promised.
    let mut daemon = start(&text, 32 << 20)?;
    assert_eq!(ended(&daemon)?["status"], "never_started");
    daemon.restart()?;
    assert_eq!(daemon.get(&path)?.json()["status"], "never_started");
    // A request that another version understood.
    let line = text
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or("no line")?;
    let mut foreign = text.get(..=line).ok_or("no line")?.to_vec();
    foreign.extend_from_slice(br#"{"command": ["true"], "colour": "red"}"#);
    let refused = ended(&start(&foreign, 128 << 20)?)?;
    assert_eq!(refused["status"], "never_started", "{refused}");
    Ok(())
}

#[test]
fn an_endpoint_with_patience_waits_for_a_place_and_others_are_refused_at_once() {
    let daemon = Daemon::start(|config| {
        config.runs.at_once = Some(1);
        config.runs.queue = 1;
        config.runs.patience.execute = Duration::from_secs(90);
        config.grace = Duration::ZERO;
    })
    .unwrap();
    let slow = json!({"command": ["sleep", "60"], "wait": false});
    let taken = [(); 2].map(|()| {
        let taken = submit(&daemon, &slow).unwrap();
        let is_running = |health: &Value| health["active_executions"] == 1;
        daemon.until("/health", is_running).unwrap();
        taken
    });
    let refused = daemon.post("/v1/runs", &slow).unwrap();
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("1"))
    );
    let code = json!({"language": "python", "code": "def handler(event):\n    return 1"});
    let answers: Vec<_> = std::thread::scope(|scope| {
        let ask = || daemon.post("/execute", &code).unwrap();
        let asked: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        for run in &taken {
            daemon.send("DELETE", &path(run), &[], b"").unwrap();
        }
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for answer in answers {
        assert_eq!(
            (answer.status, &answer.json()["return_value"]),
            (200, &json!(1))
        );
    }
}
