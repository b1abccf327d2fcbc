//! SIGKILL and SIGTERM of a daemon that has promised something: what waits is run by the next one, what is owed to a control plane is told by it, and nothing is told under two names.

use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::peer::{Peer, Reply, Reserved, Seen};
use super::{Daemon, Outcome, PAUSE};

fn killed(daemon: Daemon) -> Outcome<()> {
    daemon.signal(Signal::KILL)?;
    drop(daemon);
    Ok(())
}

/// The body of the answer.
fn answer(mut stream: std::net::TcpStream) -> Outcome<Value> {
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    json(&text)
}

fn json(text: &str) -> Outcome<Value> {
    let (_, body) = text.split_once("\r\n\r\n").ok_or("no body")?;
    serde_json::from_str(body).map_err(|error| format!("{error}: {text}").into())
}

fn get(daemon: &Daemon, path: &str) -> Outcome<Value> {
    json(&daemon.get(path)?)
}

fn until(daemon: &Daemon, path: &str, done: impl Fn(&Value) -> bool) -> Outcome<Value> {
    let began = Instant::now();
    loop {
        let found = get(daemon, path)?;
        if done(&found) {
            return Ok(found);
        }
        if began.elapsed() > Duration::from_secs(60) {
            return Err(format!("{path} never got there: {found}").into());
        }
        std::thread::sleep(PAUSE);
    }
}

fn taken<'a>(seen: &'a [Seen], path: &str) -> Vec<&'a Seen> {
    let line = format!("POST {path} HTTP/1.1");
    let matching = seen
        .iter()
        .filter(|seen| seen.accepted && seen.line == line);
    matching.collect()
}

fn until_taken(peer: &Peer, path: &str) -> Outcome<Vec<Seen>> {
    let began = Instant::now();
    loop {
        let seen = peer.seen();
        if !taken(&seen, path).is_empty() {
            return Ok(seen);
        }
        if began.elapsed() > Duration::from_secs(60) {
            let lines: Vec<_> = seen.iter().map(|seen| &seen.line).collect();
            return Err(format!("{path} was not taken: {lines:?}").into());
        }
        std::thread::sleep(PAUSE);
    }
}

fn files_in(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

#[test]
fn a_result_survives_a_kill_between_the_end_and_its_delivery() -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let nobody = Reserved::new()?;
    let plane = nobody.url();
    let token = dir.path().join("token");
    std::fs::write(&token, "s3cret\n")?;
    let token = token.display().to_string();
    let arguments = [
        "--session-id",
        "sess_0123456789abcdef",
        "--control-plane",
        &plane,
        "--control-plane-token-file",
        &token,
    ];
    let daemon = Daemon::start(dir.path(), &arguments)?;
    let ended = answer(daemon.run(r#"{"command": ["echo", "kept"], "execution_id": "e1"}"#)?)?;
    assert_eq!(ended["status"], "success", "{ended}");
    let going_on = daemon
        .run(r#"{"command": ["sh", "-c", "echo begun; sleep 61.0211"], "execution_id": "e2"}"#)?;
    let id = until(&daemon, "/v1/runs?status=running", |list| {
        list["runs"][0]["run_id"].is_string()
    })?;
    let id = id["runs"][0]["run_id"].as_str().ok_or("no id")?.to_owned();
    until(&daemon, &format!("/v1/runs/{id}/logs"), |logs| {
        logs["pieces"][0]["data"] == "begun\n"
    })?;
    killed(daemon)?;
    drop(going_on);
    let peer = nobody.open(|_, _| Reply::Status(200))?;
    let _daemon = Daemon::start(dir.path(), &arguments)?;
    let result = "/internal/executions/e1/result";
    let crashed = "/internal/executions/e2/result";
    until_taken(&peer, crashed)?;
    let seen = until_taken(&peer, result)?;
    let found = taken(&seen, result);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].key(), "e1");
    assert_eq!(found[0].headers["authorization"], "Bearer s3cret");
    let body: Value = serde_json::from_slice(&found[0].body)?;
    assert_eq!(
        (&body["stdout"], &body["status"]),
        (&"kept\n".into(), &"success".into())
    );
    // Nobody saw the end of the other one, and that is told too.
    let body: Value = serde_json::from_slice(&taken(&seen, crashed)[0].body)?;
    assert_eq!(
        (&body["stdout"], &body["status"]),
        (&"begun\n".into(), &"crashed".into())
    );
    assert_eq!(files_in(&dir.path().join("data/accepted")), 0);
    // Nor did the daemon say that it ends; the next one does, before it says that it is there.
    let seen = until_taken(
        &peer,
        "/internal/sessions/sess_0123456789abcdef/container_exited",
    )?;
    let of_session = |seen: &Seen| seen.line.contains("/internal/sessions/");
    let told: Vec<_> = seen.iter().filter(|seen| of_session(seen)).collect();
    let words = |seen: &Seen| seen.line.rsplit('/').nth(1).map(str::to_owned);
    assert_eq!(words(told[0]).as_deref(), Some("container_ready HTTP"));
    assert_eq!(words(told[1]).as_deref(), Some("container_exited HTTP"));
    let body: Value = serde_json::from_slice(&told[1].body)?;
    assert_eq!(body["exit_reason"], "sigkill");
    Ok(())
}

#[test]
fn what_waits_survives_sigkill_with_its_name_its_place_and_its_deadline() -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let arguments = ["--concurrency", "1", "--queue", "6"];
    let daemon = Daemon::start(dir.path(), &arguments)?;
    let submit = |daemon: &Daemon, rest: &str| -> Outcome<String> {
        let body = format!(r#"{{"wait": false, {rest}}}"#);
        let run = answer(daemon.run(&body)?)?;
        let id = run["run_id"].as_str().ok_or_else(|| run.to_string())?;
        Ok(id.to_owned())
    };
    let running = submit(&daemon, r#""command": ["sleep", "61.0212"]"#)?;
    until(&daemon, &format!("/v1/runs/{running}"), |run| {
        run["state"] == "running"
    })?;
    let late = submit(&daemon, r#""command": ["true"], "deadline_ms": 20000"#)?;
    let submitted = Instant::now();
    let first = submit(
        &daemon,
        r#""command": ["echo", "first"], "tags": {"a": "b"}"#,
    )?;
    let second = submit(
        &daemon,
        r#""language": "shell", "code": "cat; cat f", "stdin": "in", "files": [{"path": "f", "content": "file"}]"#,
    )?;
    let urgent = submit(&daemon, r#""command": ["true"], "priority": 9"#)?;
    let body = r#"{"command": ["echo", "keyed"]}"#;
    let keyed = |daemon: &Daemon| {
        daemon.send(&format!(
            "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nIdempotency-Key: k1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    };
    let waiting = keyed(&daemon)?;
    // Waits for its answer: nobody would know it after the daemon has gone.
    let gone = daemon.run(r#"{"command": ["echo", "gone"]}"#)?;
    daemon.until("/health", r#""queued_executions":6"#)?;
    let refused = answer(daemon.run(r#"{"command": ["true"], "wait": false}"#)?)?;
    assert_eq!(refused["error_code"], "queue.full");
    assert_eq!(files_in(&dir.path().join("data/accepted")), 6);
    killed(daemon)?;
    drop((waiting, gone));
    // It passes while nobody is there.
    std::thread::sleep(Duration::from_millis(20_100).saturating_sub(submitted.elapsed()));
    let daemon = Daemon::start(dir.path(), &arguments)?;
    let ended = |id: &str| {
        until(&daemon, &format!("/v1/runs/{id}"), |run| {
            run["state"] == "ended"
        })
    };
    assert_eq!(
        get(&daemon, &format!("/v1/runs/{running}"))?["status"],
        "interrupted"
    );
    assert_eq!(ended(&late)?["status"], "timeout");
    let (first, second, urgent) = (ended(&first)?, ended(&second)?, ended(&urgent)?);
    assert_eq!(first["stdout"]["data"], "first\n");
    assert_eq!(first["tags"]["a"], "b");
    assert_eq!(second["stdout"]["data"], "infile");
    let began = |run: &Value| run["started_at"].as_str().map(str::to_owned);
    assert!(began(&urgent) < began(&first) && began(&first) < began(&second));
    let again = answer(keyed(&daemon)?)?;
    assert_eq!(again["stdout"]["data"], "keyed\n", "{again}");
    let all = get(&daemon, "/v1/runs")?;
    let all = all["runs"].as_array().ok_or("no list")?;
    let times = all
        .iter()
        .filter(|run| run["command"] == "echo keyed")
        .count();
    assert_eq!(
        (times, all.iter().any(|run| run["command"] == "echo gone")),
        (1, false)
    );
    assert_eq!(files_in(&dir.path().join("data/accepted")), 0);
    Ok(())
}

#[test]
fn a_kill_at_any_moment_runs_everything_accepted_once() -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let arguments = ["--concurrency", "2", "--queue", "50"];
    let mut accepted = Vec::new();
    for round in 0..4 {
        let daemon = Daemon::start(dir.path(), &arguments)?;
        let runs: Vec<Value> = (0..4)
            .map(|number| serde_json::json!({"command": ["echo", format!("{round}-{number}")]}))
            .collect();
        for run in &runs {
            let mut run = run.clone();
            run["wait"] = false.into();
            let run = answer(daemon.run(&run.to_string())?)?;
            accepted.push(run["run_id"].as_str().ok_or("refused")?.to_owned());
        }
        let batch = serde_json::json!({"wait": false, "runs": runs}).to_string();
        let batch = answer(daemon.post("/v1/runs/batch", &batch)?)?;
        for run in batch["runs"].as_array().ok_or("no batch")? {
            accepted.push(run["run_id"].as_str().ok_or("refused")?.to_owned());
        }
        killed(daemon)?;
    }
    let daemon = Daemon::start(dir.path(), &arguments)?;
    let mut interrupted = 0;
    for id in &accepted {
        let run = until(&daemon, &format!("/v1/runs/{id}"), |run| {
            run["state"] == "ended"
        })?;
        match run["status"].as_str() {
            Some("success") => {}
            Some("interrupted") => interrupted += 1,
            _ => return Err(run.to_string().into()),
        }
    }
    // Two at once may have been under way at each of the four kills.
    assert!(interrupted <= 8, "{interrupted}");
    let all = get(&daemon, "/v1/runs?limit=200")?;
    assert_eq!(all["runs"].as_array().map(Vec::len), Some(accepted.len()));
    Ok(())
}

#[test]
fn sigterm_reports_what_ran_and_exits_143_within_two_seconds() -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let peer = Peer::new(|_, _| Reply::Status(200));
    let plane = peer.url();
    let first = ["--session-id", "sess_0123456789abcdef"];
    let arguments = ["--control-plane", plane.as_str()];
    let mut daemon = Daemon::start(dir.path(), &[first, arguments].concat())?;
    let body = r#"{"command": ["sleep", "61.0213"], "execution_id": "e1", "wait": false}"#;
    answer(daemon.run(body)?)?;
    daemon.until("/health", r#""active_executions":1"#)?;
    let began = Instant::now();
    daemon.signal(Signal::TERM)?;
    let status = daemon.child.wait()?;
    let took = began.elapsed();
    assert_eq!(status.code(), Some(143));
    // Two seconds by its own clock; a busy machine adds to that, and without an end it would be a minute.
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(files_in(&dir.path().join("data/accepted")), 0);
    // What a busy machine left in the outbox is brought by the next daemon.
    let _next = Daemon::start(dir.path(), &arguments)?;
    until_taken(
        &peer,
        "/internal/sessions/sess_0123456789abcdef/container_exited",
    )?;
    let seen = until_taken(&peer, "/internal/executions/e1/result")?;
    let result = taken(&seen, "/internal/executions/e1/result");
    let body: Value = serde_json::from_slice(&result.first().ok_or("not told")?.body)?;
    assert_eq!(body["status"], "crashed", "{body}");
    let ends = |seen: &&Seen| seen.line.contains("/container_exited ");
    let last = seen.iter().find(ends).ok_or("its end was not told")?;
    let last: Value = serde_json::from_slice(&last.body)?;
    assert_eq!(
        (&last["exit_code"], &last["exit_reason"]),
        (&143.into(), &"sigterm".into())
    );
    Ok(())
}

/// However often the daemon is killed, and wherever it is then: each run is told, under one key, and after its end nothing else is told of its course.
#[test]
fn kills_at_any_moment_leave_every_result_told_under_one_key() -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let peer = Peer::new(|_, _| Reply::Status(200));
    let plane = peer.url();
    let arguments = [
        "--concurrency",
        "2",
        "--queue",
        "50",
        "--control-plane",
        &plane,
    ];
    let mut names = Vec::new();
    for round in 0..5 {
        let daemon = Daemon::start(dir.path(), &arguments)?;
        for number in 0..6 {
            let name = format!("e{round}-{number}");
            let run =
                serde_json::json!({"wait": false, "command": ["echo", name], "execution_id": name});
            let taken = answer(daemon.run(&run.to_string())?)?;
            assert_eq!(taken["execution_id"], name.as_str(), "{taken}");
            names.push(name);
        }
        // Each round a little later.
        let most = round;
        let told = || {
            peer.seen()
                .iter()
                .filter(|seen| seen.line.contains("/result "))
                .count()
        };
        let (began, before) = (Instant::now(), told());
        while told() < before + most && began.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
        killed(daemon)?;
    }
    let _daemon = Daemon::start(dir.path(), &arguments)?;
    for name in &names {
        let path = format!("/internal/executions/{name}/result");
        let seen = until_taken(&peer, &path)?;
        for result in taken(&seen, &path) {
            assert_eq!(result.key(), name);
            let body: Value = serde_json::from_slice(&result.body)?;
            let is_whole = body["status"] == "success" && body["stdout"] == format!("{name}\n");
            assert!(is_whole || body["status"] == "crashed", "{body}");
        }
        let of_run: Vec<_> = seen
            .iter()
            .filter(|seen| seen.line.contains(&format!("/{name}/")))
            .collect();
        let result = of_run
            .iter()
            .position(|seen| seen.line.contains("/result "));
        let running = of_run.iter().rposition(|seen| {
            seen.line.contains("/heartbeat ") || seen.key().ends_with(":running")
        });
        assert!(running < result, "{of_run:?}");
    }
    let began = Instant::now();
    while files_in(&dir.path().join("data/accepted")) > 0 {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

#[test]
fn a_project_that_waits_survives_sigkill_and_one_that_had_begun_is_interrupted() -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let daemon = Daemon::start(dir.path(), &["--concurrency", "1"])?;
    let project = |body: &str| {
        format!(
            r#"{{"wait": false, "project": {{"action": "test"}}, "files": [{{"path": "setup.cfg", "content": ""}},
            {{"path": "test_x.py", "content": "import time, unittest\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        {body}\n"}}]}}"#
        )
    };
    let began = answer(daemon.run(&project("time.sleep(61.0311)"))?)?;
    let began = began["run_id"].as_str().ok_or("no id")?.to_owned();
    // Its step runs below it.
    until(&daemon, &format!("/v1/runs?parent={began}"), |list| {
        list["runs"][0]["status"] == "running"
    })?;
    let waits = answer(daemon.run(&project("pass"))?)?;
    let waits = waits["run_id"].as_str().ok_or("no id")?.to_owned();
    killed(daemon)?;
    let daemon = Daemon::start(dir.path(), &[])?;
    let ended = until(&daemon, &format!("/v1/runs/{waits}"), |run| {
        run["state"] == "ended"
    })?;
    assert_eq!(ended["status"], "success", "{ended:#}");
    assert_eq!(ended["project"]["counts"]["passed"], 1, "{ended:#}");
    let interrupted = get(&daemon, &format!("/v1/runs/{began}"))?;
    assert_eq!(interrupted["status"], "interrupted", "{interrupted:#}");
    assert_eq!(files_in(&dir.path().join("data/accepted")), 0);
    // What the killed one left goes with one of the next runs.
    let since = Instant::now();
    while files_in(&dir.path().join("data/work")) > 0 {
        assert!(
            since.elapsed() < Duration::from_secs(30),
            "a workspace is left"
        );
        answer(daemon.run(r#"{"command": ["true"]}"#)?)?;
    }
    Ok(())
}
