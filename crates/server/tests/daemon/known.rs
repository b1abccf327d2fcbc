//! Answers that are known already: given again only where that changes nothing but the time it takes.

use cofferdam_contract::ids::Entropy;
use cofferdam_contract::seal::Draft;
use cofferdam_server::config::ResultSharing;
use cofferdam_server::tokens::{NewToken, Scope, TokenFile};
use cofferdam_store::DataDir;
use serde_json::{Value, json};

use crate::support::{Daemon, JSON, Outcome, Reply};

/// Never the same twice, so that an answer that is given again shows.
const CLOCK: [&str; 2] = ["date", "+%s%N"];

fn clock() -> Value {
    json!({"command": CLOCK, "pure": true})
}

fn with(mut request: Value, name: &str, value: Value) -> Value {
    request[name] = value;
    request
}

fn stdout(view: &Value) -> String {
    view["stdout"]["data"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn run(daemon: &Daemon, request: &Value) -> Outcome<Value> {
    let reply = daemon.post("/v1/runs", request)?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let view = reply.json();
    assert_eq!(view["status"], "success", "{view:#}");
    let location = format!("/v1/runs/{}", view["run_id"].as_str().unwrap_or_default());
    let said = reply.headers.iter().find(|(name, _)| name == "location");
    assert_eq!(said.map(|(_, value)| value.as_str()), Some(&*location));
    Ok(view)
}

#[test]
fn a_pure_run_is_answered_with_what_is_known_and_says_so() -> Outcome<()> {
    let daemon = Daemon::start(|_| {})?;
    let first = run(&daemon, &clock())?;
    assert_eq!(first["cached"], Value::Null);
    let again = run(&daemon, &with(clock(), "execution_id", json!("mine")))?;
    assert_eq!(again["cached"], json!({"run_id": first["run_id"]}));
    assert_eq!(again["execution_id"], "mine");
    for field in [
        "run_id",
        "stdout",
        "stderr",
        "exit_code",
        "usage",
        "ending",
        "started_at",
        "kind",
        "command",
    ] {
        assert_eq!(again[field], first[field], "{field}");
    }
    let found = daemon.get(&format!(
        "/v1/runs/{}",
        again["run_id"].as_str().unwrap_or_default()
    ))?;
    assert_eq!(stdout(&found.json()), stdout(&first));
    let listed = daemon.get("/v1/runs")?.json();
    assert_eq!(
        listed["runs"].as_array().map(Vec::len),
        Some(1),
        "no run was made: {listed:#}"
    );
    Ok(())
}

#[test]
fn whoever_does_not_ask_for_it_or_asks_something_else_gets_a_run() -> Outcome<()> {
    let daemon = Daemon::start(|_| {})?;
    let first = stdout(&run(&daemon, &clock())?);
    for request in [
        json!({"command": CLOCK}),
        with(clock(), "pure", json!(false)),
        with(clock(), "stdin", json!("x")),
        with(clock(), "env", json!({"A": "b"})),
        with(clock(), "cwd", json!("/tmp")),
        with(clock(), "limits", json!({"memory_bytes": 100 << 20})),
        with(clock(), "workspace", json!(true)),
        with(clock(), "files", json!([{"path": "a", "content": "1"}])),
        with(clock(), "files", json!([{"path": "a", "content": "2"}])),
        with(clock(), "command", json!(["date", "+%N%s"])),
        // They want a run of their own.
        with(clock(), "tags", json!({"a": "b"})),
    ] {
        let view = run(&daemon, &request)?;
        assert_eq!(view["cached"], Value::Null, "{request}");
        assert_ne!(stdout(&view), first, "{request}");
    }
    for word in ["no-cache", "no-store"] {
        let headers = [JSON, ("Cache-Control", word)];
        let body = clock().to_string();
        let view = daemon
            .send("POST", "/v1/runs", &headers, body.as_bytes())?
            .json();
        assert_ne!(stdout(&view), first, "{word}");
    }
    let headers = [JSON, ("Idempotency-Key", "one")];
    let body = clock().to_string();
    let view = daemon
        .send("POST", "/v1/runs", &headers, body.as_bytes())?
        .json();
    assert_ne!(stdout(&view), first, "a key stands for a run");
    let refused = daemon.post(
        "/v1/runs",
        &json!({"language": "python", "code": "1", "inputs": [{}], "pure": true}),
    )?;
    assert_eq!(refused.status, 400, "{}", refused.text());
    Ok(())
}

#[test]
fn source_code_and_its_return_value_are_given_again() -> Outcome<()> {
    let daemon = Daemon::start(|_| {})?;
    let code = "import time\ndef handler(event):\n    print('said')\n    return {'at': str(time.time_ns()), 'n': event['n']}\n";
    let ask = |n: u32, id: &str| -> Outcome<Value> {
        let request = json!({"code": code, "language": "python", "event": {"n": n}, "pure": true, "execution_id": id});
        let reply = daemon.post("/execute", &request)?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        Ok(reply.json())
    };
    let first = ask(1, "a")?;
    assert_eq!(
        (&first["status"], &first["cached"]),
        (&json!("success"), &Value::Null)
    );
    let again = ask(1, "b")?;
    assert_eq!(again["cached"], json!({"run_id": first["run_id"]}));
    assert_eq!(again["execution_id"], "b");
    for field in ["run_id", "return_value", "stdout", "metrics", "exit_code"] {
        assert_eq!(again[field], first[field], "{field}");
    }
    assert_ne!(ask(2, "c")?["return_value"], first["return_value"]);
    let request = json!({"language": "python", "code": code, "event": {"n": 1}, "pure": true});
    let other = run(&daemon, &request)?;
    assert_ne!(other["return_value"], first["return_value"], "other limits");
    let same = run(&daemon, &request)?;
    assert_eq!(same["return_value"], other["return_value"]);
    Ok(())
}

fn payload(id: &str, pure: Value) -> Outcome<Value> {
    let draft = json!({
        "payload_id": id, "contract_id": "C-1", "scope": "the time", "pure": pure,
        "task": {"kind": "command", "argv": CLOCK},
    });
    let draft = Draft::from_value(draft)?;
    let sealed = draft.seal(jiff::Timestamp::now(), Entropy([1; 16]))?;
    Ok(sealed.json().clone())
}

#[test]
fn a_pure_payload_is_answered_again_under_another_name_with_its_own_proof() -> Outcome<()> {
    let daemon = Daemon::start(|_| {})?;
    let ask = |payload: &Value| -> Outcome<(Reply, Value)> {
        let reply = daemon.post("/v1/payloads", payload)?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let envelope = reply.json();
        let sealed = cofferdam_contract::seal::Sealed::open(payload.to_string().as_bytes())?;
        let read = cofferdam_contract::envelope::ResultEnvelope::parse(&reply.body).unwrap();
        assert_eq!(read.check(&sealed), Ok(()), "{envelope:#}");
        Ok((reply, envelope))
    };
    let (_, first) = ask(&payload("P-1", json!(true))?)?;
    let (reply, again) = ask(&payload("P-2", json!(true))?)?;
    assert_eq!(again["output"], first["output"]);
    assert_eq!(
        again["cached"],
        json!({"run_id": first["produced_by"]["run_id"]})
    );
    assert_ne!(again["proof_of_work"], first["proof_of_work"]);
    let id = reply.headers.iter().find(|(name, _)| name == "x-run-id");
    assert_eq!(
        id.map(|(_, id)| json!(id)),
        Some(first["produced_by"]["run_id"].clone())
    );
    let (_, other) = ask(&payload("P-3", json!(false))?)?;
    assert_ne!(other["output"], first["output"]);
    Ok(())
}

#[test]
fn what_a_limit_ended_what_failed_to_start_and_what_left_files_is_not_kept() -> Outcome<()> {
    let daemon = Daemon::start(|_| {})?;
    for request in [
        json!({"command": ["sleep", "60"], "limits": {"wall_time_ms": 100}, "pure": true}),
        json!({"command": ["no-such-program"], "pure": true}),
        json!({"command": ["sh", "-c", "date +%N > left"], "workspace": true, "pure": true}),
        json!({"language": "c", "code": "int main(", "pure": true}),
    ] {
        let ids: Vec<Value> = (0..2)
            .map(|_| {
                let view = daemon.post("/v1/runs", &request).unwrap().json();
                assert_eq!(view["cached"], Value::Null, "{request}");
                view["run_id"].clone()
            })
            .collect();
        assert_ne!(ids[0], ids[1], "{request}");
    }
    // How a program fails is its own doing.
    let fails = json!({"command": ["sh", "-c", "date +%s%N; exit 3"], "pure": true});
    let first = daemon.post("/v1/runs", &fails)?.json();
    let again = daemon.post("/v1/runs", &fails)?.json();
    assert_eq!(
        (&again["exit_code"], stdout(&again)),
        (&json!(3), stdout(&first))
    );
    Ok(())
}

#[test]
fn a_new_daemon_knows_the_answers_of_the_one_before_and_believes_no_changed_one() -> Outcome<()> {
    let mut daemon = Daemon::start(|_| {})?;
    let first = stdout(&run(&daemon, &clock())?);
    daemon.restart()?;
    assert_eq!(stdout(&run(&daemon, &clock())?), first);
    let results = DataDir::at(daemon.dir.path().join("data")).results();
    for entry in std::fs::read_dir(results)?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|suffix| suffix == "answer") {
            let mut bytes = std::fs::read(&path)?;
            let at = bytes.len() - 20;
            bytes[at] ^= 1;
            std::fs::write(&path, bytes)?;
        }
    }
    assert_ne!(stdout(&run(&daemon, &clock())?), first);
    Ok(())
}

#[test]
fn tokens_do_not_see_each_others_answers_unless_the_operator_says_so() -> Outcome<()> {
    for (sharing, is_same) in [
        (ResultSharing::PerToken, false),
        (ResultSharing::Shared, true),
    ] {
        let dir = tempfile::tempdir()?;
        let file = TokenFile::of(&DataDir::at(dir.path().join("data")));
        let token = |name: &str| -> Outcome<String> {
            let new = NewToken {
                name: name.to_owned(),
                scopes: vec![Scope::Run],
                max_running: None,
                max_queued: None,
            };
            Ok(file.create(new)?.1.reveal().to_owned())
        };
        let (alice, bob) = (token("alice")?, token("bob")?);
        let daemon = Daemon::start_in(dir, |config| config.history.results = sharing)?;
        let ask = |token: &str| -> Outcome<String> {
            let bearer = format!("Bearer {token}");
            let headers = [JSON, ("Authorization", bearer.as_str())];
            let body = clock().to_string();
            let reply = daemon.send("POST", "/v1/runs", &headers, body.as_bytes())?;
            assert_eq!(reply.status, 200, "{}", reply.text());
            Ok(stdout(&reply.json()))
        };
        let first = ask(&alice)?;
        assert_eq!(ask(&alice)?, first);
        assert_eq!(ask(&bob)? == first, is_same, "{sharing:?}");
    }
    let daemon = Daemon::start(|config| config.history.results = ResultSharing::Off)?;
    let first = stdout(&run(&daemon, &clock())?);
    assert_ne!(stdout(&run(&daemon, &clock())?), first, "off");
    Ok(())
}

#[test]
fn an_answer_with_a_secret_in_it_is_not_kept() -> Outcome<()> {
    let daemon = Daemon::start(|_| {})?;
    let request = json!({
        "command": ["sh", "-c", "echo $API_TOKEN; date +%N"],
        "env": {"API_TOKEN": "correct-horse-battery"}, "pure": true,
    });
    let first = stdout(&run(&daemon, &request)?);
    assert!(first.starts_with("correct-horse"), "{first}");
    assert_ne!(stdout(&run(&daemon, &request)?), first);
    Ok(())
}
