//! Reports to a control plane and to clients: what is said, in which order, under which keys; peers that misbehave, are away, or may not be spoken to. The peer is a real HTTP server.

use std::time::{Duration, Instant};

use cofferdam_callback::schedule::Schedule;
use cofferdam_callback::{Bearer, ControlPlane, Policy};
use cofferdam_server::Config;
use cofferdam_server::config::{Callbacks, TokenSource};
use serde_json::{Value, json};

use crate::peer::{Peer, Reply, Reserved, Seen};
use crate::support::{AGAIN, Daemon, JSON, Outcome, PATIENCE};

const SECRET: &str = "plane-s3cret";

/// Reports to `url`, and tries again soon.
fn report_to(config: &mut Config, url: &str) {
    let callbacks = &mut config.callbacks;
    callbacks.token = Bearer::new(SECRET).ok().map(TokenSource::Given);
    let plane = ControlPlane::new(url, ControlPlane::PREFIX, Some(Callbacks::TOKEN));
    callbacks.control_plane = plane.ok();
    callbacks.schedule = Schedule {
        first: vec![Duration::from_millis(50)],
        then: Duration::from_millis(100),
        ..Schedule::default()
    };
}

fn allow(config: &mut Config, patterns: &[&str], allow_loopback: bool) {
    config.callbacks.policy = Policy {
        allow: patterns
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect(),
        allow_loopback,
        allow_private: false,
        mode: None,
    };
}

fn started(peer: &Peer, change: impl FnOnce(&mut Config)) -> Outcome<Daemon> {
    Daemon::start(|config| {
        report_to(config, &peer.url());
        change(config);
    })
}

/// Waits for requests to this path that the peer has taken, and gives all requests so far.
fn until_taken(peer: &Peer, path: &str, times: usize) -> Outcome<Vec<Seen>> {
    let began = Instant::now();
    loop {
        let seen = peer.seen();
        let taken = seen
            .iter()
            .filter(|seen| seen.accepted && path_of(seen) == path);
        if taken.count() >= times {
            return Ok(seen);
        }
        if began.elapsed() > PATIENCE {
            let lines: Vec<_> = seen.iter().map(|seen| &seen.line).collect();
            return Err(format!("{path} was not taken {times} times: {lines:?}").into());
        }
        std::thread::sleep(AGAIN);
    }
}

/// What a daemon that has ended leaves in its outbox is brought by the next one: on a busy machine its farewell may be too short.
fn by_the_next_daemon(daemon: &Daemon, peer: &Peer, paths: &[&str]) -> Outcome<Vec<Seen>> {
    let mut config = Config::new(cofferdam_store::DataDir::at(daemon.dir.path().join("data")));
    config.listen.set_port(0);
    report_to(&mut config, &peer.url());
    let running = cofferdam_server::Server::start(config)?;
    for path in paths {
        until_taken(peer, path, 1)?;
    }
    running.stop();
    Ok(peer.seen())
}

fn path_of(seen: &Seen) -> &str {
    seen.line.split(' ').nth(1).unwrap_or_default()
}

fn body(seen: &Seen) -> Value {
    serde_json::from_slice(&seen.body).unwrap_or_default()
}

/// What was taken about one execution, without heartbeats: the last part of each path with its key.
fn story<'a>(seen: &'a [Seen], execution: &str) -> Vec<(&'a str, &'a str)> {
    let prefix = format!("/internal/executions/{execution}/");
    let of_run = seen.iter().filter(|seen| seen.accepted);
    of_run
        .filter_map(|seen| Some((path_of(seen).strip_prefix(&prefix)?, seen.key())))
        .filter(|(kind, _)| *kind != "heartbeat")
        .collect()
}

fn execute(daemon: &Daemon, body: &Value) -> Outcome<Value> {
    let reply = daemon.post("/execute", body)?;
    if reply.status != 200 {
        return Err(reply.text().into());
    }
    Ok(reply.json())
}

#[test]
fn a_run_is_reported_from_its_start_to_its_artifacts() -> Outcome<()> {
    let peer = Peer::new(|_, _| Reply::Status(201));
    let mut daemon = started(&peer, |config| {
        config.callbacks.session = Some("sess_0123456789abcdef".to_owned());
        config.callbacks.pod = Some("pod-7".to_owned());
    })?;
    let code = "import os\ndef handler(event):\n    os.mkdir('output')\n    open('output/a.csv', 'w').write('1')\n    print('out')\n    return {'n': event['n'] + 1}";
    let answer = execute(
        &daemon,
        &json!({"language": "python", "code": code, "event": {"n": 1}, "execution_id": "exec_20260101_abcdefgh"}),
    )?;
    let id = "exec_20260101_abcdefgh";
    let seen = until_taken(&peer, &format!("/internal/executions/{id}/artifacts"), 1)?;
    assert_eq!(
        story(&seen, id),
        [
            ("status", "exec_20260101_abcdefgh:status:running"),
            ("result", "exec_20260101_abcdefgh"),
            ("artifacts", "exec_20260101_abcdefgh:artifacts"),
        ]
    );
    let of = |kind: &str| {
        seen.iter()
            .find(|seen| path_of(seen).ends_with(kind))
            .map(body)
    };
    let result = of("/result").ok_or("no result")?;
    for field in [
        "status",
        "stdout",
        "stderr",
        "exit_code",
        "return_value",
        "artifacts",
    ] {
        assert_eq!(result[field], answer[field], "{field}");
    }
    assert_eq!(result["return_value"], json!({"n": 2}));
    assert!(result["metrics"]["duration_ms"].is_u64(), "{result}");
    let artifacts = of("/artifacts").ok_or("no artifacts")?;
    assert_eq!(artifacts["artifacts"][0]["path"], "output/a.csv");
    assert_eq!(artifacts["artifacts"][0]["type"], "output");
    let ready = of("/sess_0123456789abcdef/container_ready").ok_or("not ready")?;
    assert_eq!(ready["pod_name"], "pod-7");
    assert_eq!(ready["executor_port"], daemon.address.port());
    daemon.running.take().ok_or("not running")?.stop();
    let path = "/internal/sessions/sess_0123456789abcdef/container_exited";
    let seen = by_the_next_daemon(&daemon, &peer, &[path])?;
    let exited = seen.iter().find(|seen| path_of(seen) == path);
    let exited = exited.ok_or("its end was not told")?;
    assert_eq!(body(exited)["exit_reason"], "normal");
    let bearer = format!("Bearer {SECRET}");
    assert!(
        seen.iter()
            .all(|seen| seen.headers.get("authorization") == Some(&bearer))
    );
    Ok(())
}

#[test]
fn a_run_that_goes_on_says_so_and_stops_saying_so() -> Outcome<()> {
    let peer = Peer::new(|_, _| Reply::Status(200));
    let daemon = started(&peer, |config| {
        config.callbacks.heartbeat = Duration::from_millis(150);
    })?;
    let run = json!({"command": ["sleep", "60"], "execution_id": "slow", "wait": false});
    let run = daemon.post("/v1/runs", &run)?;
    until_taken(&peer, "/internal/executions/slow/heartbeat", 2)?;
    let path = run.header("location").ok_or("refused")?;
    daemon.send("DELETE", path, &[], b"")?;
    until_taken(&peer, "/internal/executions/slow/result", 1)?;
    // Whatever would still come of it has come by the end of another.
    let next = json!({"command": ["sleep", "1"], "execution_id": "next"});
    daemon.post("/v1/runs", &next)?;
    let seen = until_taken(&peer, "/internal/executions/next/result", 1)?;
    let of_run: Vec<_> = seen
        .iter()
        .map(path_of)
        .filter(|path| path.contains("/slow/"))
        .collect();
    let result = "/internal/executions/slow/result";
    let result = of_run.iter().position(|path| *path == result);
    let after = of_run.split_at(result.ok_or("no result")?).1;
    assert!(
        !after.iter().any(|path| path.ends_with("/heartbeat")),
        "{of_run:?}"
    );
    Ok(())
}

#[test]
fn nothing_is_lost_on_a_peer_that_misbehaves() -> Outcome<()> {
    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"cut".to_vec();
    let peer = Peer::new(move |number, _| match number % 6 {
        0 => Reply::Status(500),
        1 => Reply::Status(401),
        2 => Reply::Raw(half.clone()),
        3 => Reply::Raw(b"what?\r\n".to_vec()),
        4 => Reply::Status(503),
        _ => Reply::Status(200),
    });
    let daemon = started(&peer, |_| {})?;
    let names: Vec<String> = (0..5).map(|n| format!("run-{n}")).collect();
    for name in &names {
        let run = json!({"command": ["sh", "-c", "echo out > f"], "workspace": true, "execution_id": name});
        assert_eq!(daemon.post("/v1/runs", &run)?.status, 200);
    }
    for name in &names {
        let seen = until_taken(&peer, &format!("/internal/executions/{name}/artifacts"), 1)?;
        let kinds: Vec<_> = story(&seen, name)
            .into_iter()
            .map(|(kind, _)| kind)
            .collect();
        assert_eq!(kinds, ["status", "result", "artifacts"], "{name}");
        // However often it came, it came under one key and said the same.
        let result = format!("/internal/executions/{name}/result");
        let results: Vec<_> = seen.iter().filter(|seen| path_of(seen) == result).collect();
        for one in &results {
            assert_eq!((one.key(), &one.body), (name.as_str(), &results[0].body));
        }
    }
    Ok(())
}

#[test]
fn a_conflict_means_that_the_peer_has_it() -> Outcome<()> {
    let peer = Peer::new(|_, _| Reply::Status(409));
    let daemon = started(&peer, |_| {})?;
    let run = json!({"command": ["true"], "execution_id": "known"});
    daemon.post("/v1/runs", &run)?;
    let seen = until_taken(&peer, "/internal/executions/known/result", 1)?;
    let results = seen
        .iter()
        .filter(|seen| path_of(seen).ends_with("/known/result"));
    assert_eq!(results.count(), 1);
    Ok(())
}

#[test]
fn a_slow_peer_holds_nobody_up() -> Outcome<()> {
    let peer = Peer::new(|_, _| Reply::Never);
    let mut daemon = started(&peer, |_| {})?;
    let began = Instant::now();
    for _ in 0..3 {
        assert_eq!(
            daemon
                .post("/v1/runs", &json!({"command": ["true"]}))?
                .status,
            200
        );
    }
    assert_eq!(daemon.get("/health")?.status, 200);
    daemon.running.take().ok_or("not running")?.stop();
    assert!(
        began.elapsed() < Duration::from_secs(28),
        "{:?}",
        began.elapsed()
    );
    Ok(())
}

#[test]
fn a_peer_that_comes_back_gets_everything_in_order() -> Outcome<()> {
    let nobody = Reserved::new()?;
    let daemon = Daemon::start(|config| report_to(config, &nobody.url()))?;
    for name in ["first", "second"] {
        let run = json!({"command": ["sleep", "60"], "execution_id": name, "limits": {"wall_time_ms": 100}});
        assert_eq!(daemon.post("/v1/runs", &run)?.json()["status"], "timeout");
    }
    let waiting = |wanted: &str| -> Outcome<()> {
        let began = Instant::now();
        while !daemon
            .get("/metrics")?
            .text()
            .lines()
            .any(|line| line == wanted)
        {
            if began.elapsed() > PATIENCE {
                return Err(daemon.get("/metrics")?.text().into());
            }
            std::thread::sleep(AGAIN);
        }
        Ok(())
    };
    // Ready, and for each run: running, result, timeout.
    waiting("cofferdam_outbox_messages 7")?;
    let peer = nobody.open(|_, _| Reply::Status(200))?;
    for name in ["first", "second"] {
        let path = format!("/internal/executions/{name}/status");
        let seen = until_taken(&peer, &path, 2)?;
        let kinds: Vec<_> = story(&seen, name)
            .into_iter()
            .map(|(kind, _)| kind)
            .collect();
        assert_eq!(kinds, ["status", "result", "status"], "{name}");
        let last = seen.iter().rfind(|seen| path_of(seen) == path).map(body);
        assert_eq!(last.ok_or("no status")?["status"], "timeout");
    }
    waiting("cofferdam_outbox_messages 0")?;
    waiting("cofferdam_reports_total{kind=\"result\",outcome=\"delivered\"} 2")
}

#[test]
fn two_runs_under_one_name_are_both_reported() -> Outcome<()> {
    let peer = Peer::new(|_, _| Reply::Status(200));
    let daemon = started(&peer, |_| {})?;
    let run = json!({"command": ["true"], "execution_id": "again"});
    let path = "/internal/executions/again/result";
    daemon.post("/v1/runs", &run)?;
    until_taken(&peer, path, 1)?;
    let second = daemon.post("/v1/runs", &run)?.json();
    let seen = until_taken(&peer, path, 2)?;
    let keys: Vec<_> = seen
        .iter()
        .filter(|seen| path_of(seen) == path)
        .map(Seen::key)
        .collect();
    let own = format!("again:{}", second["run_id"].as_str().unwrap_or_default());
    assert_eq!(keys, ["again", own.as_str()]);
    Ok(())
}

#[test]
fn a_full_outbox_stops_admission_and_loses_nothing() -> Outcome<()> {
    let nobody = Reserved::new()?;
    let daemon = Daemon::start(|config| {
        report_to(config, &nobody.url());
        config.callbacks.outbox.messages = 8;
    })?;
    daemon.until("/health", |health| health["status"] == "healthy")?;
    let mut taken = Vec::new();
    let refused = loop {
        let run = json!({"command": ["true"], "wait": false, "execution_id": format!("e{}", taken.len())});
        let reply = daemon.post("/v1/runs", &run)?;
        if reply.status != 202 {
            break reply;
        }
        taken.push(format!("e{}", taken.len()));
        if taken.len() > 200 {
            return Err("it takes everything".into());
        }
    };
    assert_eq!(refused.error(), (503, "outbox.full".to_owned()));
    assert_eq!(refused.header("retry-after"), Some("5"));
    let peer = nobody.open(|_, _| Reply::Status(200))?;
    for name in &taken {
        until_taken(&peer, &format!("/internal/executions/{name}/result"), 1)?;
    }
    // And there is room again.
    let began = Instant::now();
    while daemon
        .post("/v1/runs", &json!({"command": ["true"]}))?
        .status
        != 200
    {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(AGAIN);
    }
    Ok(())
}

#[test]
fn a_client_gets_its_result_where_it_asked_for_it() -> Outcome<()> {
    let peer = Peer::new(|number, _| Reply::Status(if number == 0 { 500 } else { 200 }));
    let daemon = Daemon::start(|config| {
        allow(config, &["127.0.0.1"], true);
        config.callbacks.schedule.first = vec![Duration::from_millis(50)];
    })?;
    let run =
        json!({"command": ["echo", "hello"], "callback_url": format!("{}/hook?x=1", peer.url())});
    let run = daemon.post("/v1/runs", &run)?.json();
    let seen = until_taken(&peer, "/hook?x=1", 1)?;
    assert_eq!(seen.len(), 2);
    for one in &seen {
        assert_eq!(Some(one.key()), run["run_id"].as_str());
        assert_eq!(one.headers.get("authorization"), None);
        assert_eq!(body(one)["stdout"], "hello\n");
    }
    Ok(())
}

#[test]
fn addresses_that_must_not_be_called_are_refused_at_once() -> Outcome<()> {
    let refused = |daemon: &Daemon, url: &str| -> Outcome<()> {
        let run = json!({"command": ["true"], "callback_url": url});
        let reply = daemon.post("/v1/runs", &run)?;
        assert_eq!(reply.error(), (400, "callback.refused".to_owned()), "{url}");
        let code = json!({"language": "shell", "code": "true", "callback_url": url});
        let reply = daemon.post("/execute", &code)?;
        assert_eq!(
            reply.error(),
            (400, "Executor.ValidationError".to_owned()),
            "{url}"
        );
        let batch = json!({"runs": [{"command": ["true"]}, run]});
        let reply = daemon.post("/v1/runs/batch", &batch)?;
        assert_eq!(reply.status, 400, "{url}");
        Ok(())
    };
    let open = Daemon::start(|config| allow(config, &["*"], false))?;
    for url in [
        "http://127.0.0.1:1/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://localhost/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fe80::1]/",
        "http://10.0.0.1/",
        "http://0.0.0.0/",
        "file:///etc/passwd",
        "http://user:word@example.com/",
        "no url",
    ] {
        refused(&open, url)?;
    }
    // What nobody allowed is not called, whatever it is.
    let closed = Daemon::start(|_| {})?;
    refused(&closed, "http://192.0.2.1/")?;
    let listed = Daemon::start(|config| allow(config, &["hooks.example.com:443"], false))?;
    refused(&listed, "http://hooks.example.com/")?;
    Ok(())
}

#[test]
fn a_name_that_cannot_stand_in_a_url_is_refused() -> Outcome<()> {
    let daemon = Daemon::start(|_| {})?;
    for name in ["../x", "", "a b", "a/b", &"x".repeat(129)] {
        let run = json!({"command": ["true"], "execution_id": name});
        let reply = daemon.post("/v1/runs", &run)?;
        assert_eq!(reply.error(), (400, "input.invalid".to_owned()), "{name}");
    }
    Ok(())
}

#[test]
fn at_the_end_what_ran_and_what_waited_is_reported() -> Outcome<()> {
    let peer = Peer::new(|_, _| Reply::Status(200));
    let mut daemon = started(&peer, |config| {
        config.runs.at_once = Some(1);
        config.grace = Duration::from_secs(1);
        config.callbacks.session = Some("sess_0123456789abcdef".to_owned());
    })?;
    for name in ["running", "waiting"] {
        let run =
            json!({"command": ["sleep", "60"], "execution_id": name, "wait": false}).to_string();
        let reply = daemon.send("POST", "/v1/runs", &[JSON], run.as_bytes())?;
        assert_eq!(reply.status, 202);
    }
    daemon.until("/health", |health| health["active_executions"] == 1)?;
    let began = Instant::now();
    daemon.running.take().ok_or("not running")?.stop();
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    // Nothing is left for the next one to find out.
    let left = std::fs::read_dir(daemon.dir.path().join("data/accepted"))?;
    assert_eq!(left.count(), 0);
    let paths = [
        "/internal/executions/running/result",
        "/internal/executions/waiting/result",
        "/internal/sessions/sess_0123456789abcdef/container_exited",
    ];
    let seen = by_the_next_daemon(&daemon, &peer, &paths)?;
    for name in ["running", "waiting"] {
        let path = format!("/internal/executions/{name}/result");
        let result = seen.iter().find(|seen| path_of(seen) == path).map(body);
        assert_eq!(result.ok_or("not told")?["status"], "crashed", "{name}");
    }
    Ok(())
}

/// As after a kill between the end of a run and its report: the promise is there, the run is history, and nobody was told.
#[test]
fn what_ended_untold_is_told_from_the_history() -> Outcome<()> {
    let mut daemon = Daemon::start(|_| {})?;
    let accepted = daemon.dir.path().join("data/accepted");
    let handler = "import time\ndef handler(event):\n    time.sleep(1)\n    return 1";
    let runs = [
        json!({"command": ["sh", "-c", "sleep 1; echo out; echo x > f.log; exit 3"], "workspace": true, "execution_id": "plain"}),
        json!({"language": "python", "code": handler, "event": {}, "execution_id": "answering"}),
    ];
    let mut kept = Vec::new();
    for mut run in runs {
        run["wait"] = json!(false);
        let made = daemon.post("/v1/runs", &run)?.json();
        let id = made["run_id"].as_str().ok_or("refused")?.to_owned();
        let path = accepted.join(format!("{id}.job"));
        kept.push((path.clone(), std::fs::read(&path)?));
        daemon.until(&format!("/v1/runs/{id}"), |run| run["state"] == "ended")?;
        assert!(!path.exists());
    }
    daemon.running.take().ok_or("not running")?.stop();
    for (path, text) in &kept {
        std::fs::write(path, text)?;
    }
    let peer = Peer::new(|_, _| Reply::Status(200));
    let mut config = Config::new(cofferdam_store::DataDir::at(daemon.dir.path().join("data")));
    config.listen.set_port(0);
    report_to(&mut config, &peer.url());
    let running = cofferdam_server::Server::start(config)?;
    let seen = until_taken(&peer, "/internal/executions/plain/artifacts", 1)?;
    let result = |seen: &[Seen], name: &str| {
        let path = format!("/internal/executions/{name}/result");
        seen.iter().find(|seen| path_of(seen) == path).map(body)
    };
    let told = result(&seen, "plain").ok_or("no result")?;
    assert_eq!(
        (&told["status"], &told["exit_code"]),
        (&json!("failed"), &json!(3))
    );
    assert_eq!(told["stdout"], "out\n");
    // The history has no return values: better no success than one without its value.
    let seen = until_taken(&peer, "/internal/executions/answering/status", 1)?;
    let told = result(&seen, "answering").ok_or("no result")?;
    assert_eq!(told["status"], "crashed", "{told}");
    assert!(
        told["stderr"]
            .as_str()
            .is_some_and(|text| text.contains("return value"))
    );
    assert_eq!(std::fs::read_dir(&accepted)?.count(), 0);
    running.stop();
    Ok(())
}
