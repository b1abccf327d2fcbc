//! Who may do what: loopback without tokens, nobody without one otherwise, scopes, quotas, revoking.

use std::net::SocketAddr;
use std::time::Duration;

use cofferdam_server::tokens::{NewToken, Scope, TokenFile};
use cofferdam_server::{Config, Server, StartError};
use cofferdam_store::DataDir;
use serde_json::{Value, json};

use crate::support::{Daemon, JSON, Outcome, Reply};

struct Guarded {
    daemon: Daemon,
    file: TokenFile,
}

fn new(name: &str, scopes: &[Scope]) -> NewToken {
    NewToken {
        name: name.to_owned(),
        scopes: scopes.to_vec(),
        max_running: None,
        max_queued: None,
    }
}

impl Guarded {
    fn start(tokens: Vec<NewToken>) -> Outcome<(Self, Vec<String>)> {
        let dir = tempfile::tempdir()?;
        let file = TokenFile::of(&DataDir::at(dir.path().join("data")));
        let mut secrets = Vec::new();
        for token in tokens {
            secrets.push(file.create(token)?.1.reveal().to_owned());
        }
        let daemon = Daemon::start_in(dir, |config| {
            config.runs.at_once = Some(1);
            config.grace = Duration::ZERO;
        })?;
        Ok((Self { daemon, file }, secrets))
    }

    fn ask(&self, token: &str, method: &str, path: &str, body: &Value) -> Outcome<Reply> {
        let bearer = format!("Bearer {token}");
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let headers = [JSON, ("Authorization", bearer.as_str())];
        self.daemon.send(method, path, &headers, text.as_bytes())
    }
}

#[test]
fn without_a_token_only_this_machine_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(DataDir::at(dir.path()));
    config.listen = SocketAddr::from(([0, 0, 0, 0], 0));
    let refused = Server::start(config).unwrap_err();
    assert!(matches!(refused, StartError::Exposed { .. }));
    assert!(
        refused.to_string().contains("cofferdam token create"),
        "{refused}"
    );
}

#[test]
fn everything_but_health_wants_a_token_once_there_is_one() {
    let (guarded, secrets) = Guarded::start(vec![new("a", &[Scope::Admin])]).unwrap();
    let daemon = &guarded.daemon;
    assert!(matches!(daemon.get("/health").unwrap().status, 200 | 503));
    for path in [
        "/v1/runs",
        "/metrics",
        "/openapi.json",
        "/docs",
        "/v1/languages",
    ] {
        let reply = daemon.get(path).unwrap();
        assert_eq!(reply.error(), (401, "auth.missing".to_owned()), "{path}");
        assert!(reply.header("www-authenticate").is_some());
        assert_eq!(
            guarded
                .ask(&secrets[0], "GET", path, &Value::Null)
                .unwrap()
                .status,
            200
        );
    }
    for bad in ["", "cfd_0", &secrets[0][1..], &format!("{}0", secrets[0])] {
        let reply = guarded.ask(bad, "GET", "/v1/runs", &Value::Null).unwrap();
        assert_eq!(reply.error(), (401, "auth.invalid".to_owned()), "{bad}");
    }
    let basic = [("Authorization", "Basic eDp5")];
    let reply = daemon.send("GET", "/v1/runs", &basic, b"").unwrap();
    assert_eq!(reply.error(), (401, "auth.invalid".to_owned()));
}

#[test]
fn scopes_bound_what_a_token_can_do_and_see() {
    let (guarded, secrets) = Guarded::start(vec![
        new("run", &[Scope::Run]),
        new("other", &[Scope::Run]),
        new("read", &[Scope::Read]),
        new("admin", &[Scope::Admin]),
    ])
    .unwrap();
    let [run, other, read, admin] = &secrets[..] else {
        panic!("four tokens");
    };
    let body = json!({"command": ["sleep", "60"], "wait": false});
    let reply = guarded.ask(read, "POST", "/v1/runs", &body).unwrap();
    assert_eq!(reply.error(), (403, "auth.scope".to_owned()));
    let made = guarded.ask(run, "POST", "/v1/runs", &body).unwrap().json();
    let path = format!("/v1/runs/{}", made["run_id"].as_str().unwrap());
    let status = |token: &str, method: &str, path: &str| {
        guarded
            .ask(token, method, path, &Value::Null)
            .unwrap()
            .status
    };
    assert_eq!(status(run, "GET", &path), 200);
    assert_eq!(status(read, "GET", &path), 200);
    assert_eq!(status(other, "GET", &path), 404);
    assert_eq!(status(run, "GET", "/v1/runs"), 200);
    assert_eq!(status(read, "GET", "/v1/runs"), 200);
    assert_eq!(status(run, "GET", "/metrics"), 403);
    assert_eq!(status(other, "DELETE", &path), 404);
    assert_eq!(status(read, "DELETE", &path), 403);
    assert_eq!(status(admin, "DELETE", &path), 202);
}

#[test]
fn a_run_belongs_to_its_sender_also_after_a_restart() -> Outcome<()> {
    let tokens = vec![
        new("run", &[Scope::Run]),
        new("other", &[Scope::Run]),
        new("read", &[Scope::Read]),
    ];
    let (mut guarded, secrets) = Guarded::start(tokens)?;
    let mut made = Vec::new();
    for (secret, name) in secrets.iter().zip(["mine", "theirs"]) {
        let body = json!({
            "command": ["sh", "-c", "echo out; echo x > f"], "workspace": true, "execution_id": name,
        });
        let run = guarded.ask(secret, "POST", "/v1/runs", &body)?.json();
        assert_eq!(run["status"], "success", "{run}");
        made.push(run["run_id"].as_str().ok_or("no id")?.to_owned());
    }
    let (mine, theirs) = (&made[0], &made[1]);
    for round in ["as the daemon remembers it", "from the history"] {
        let ask = |secret: &str, path: &str| guarded.ask(secret, "GET", path, &Value::Null);
        for rest in ["", "/logs", "/events", "/artifacts"] {
            let own = ask(&secrets[0], &format!("/v1/runs/{mine}{rest}"))?;
            assert_eq!(own.status, 200, "{rest} {round}");
            let foreign = ask(&secrets[0], &format!("/v1/runs/{theirs}{rest}"))?;
            assert_eq!(foreign.status, 404, "{rest} {round}");
        }
        let own = ask(&secrets[0], &format!("/v1/runs/{mine}"))?.json();
        assert_eq!(own["execution_id"], "mine", "{round}");
        for (secret, expected) in secrets
            .iter()
            .zip([vec![mine], vec![theirs], vec![theirs, mine]])
        {
            let listed = ask(secret, "/v1/runs")?.json();
            let ids: Vec<_> = listed["runs"].as_array().ok_or("no list")?.iter().collect();
            let ids: Vec<_> = ids
                .iter()
                .filter_map(|run| run["run_id"].as_str())
                .collect();
            assert_eq!(ids, expected, "{round}");
        }
        // One that is not there and one that is somebody else's look the same.
        let nobody = ask(&secrets[0], "/v1/runs/019a8c3e-7f2b-7abc-8def-0123456789ab")?;
        let foreign = ask(&secrets[0], &format!("/v1/runs/{theirs}"))?;
        assert_eq!(nobody.error(), foreign.error());
        let cancel = guarded.ask(
            &secrets[0],
            "DELETE",
            &format!("/v1/runs/{theirs}"),
            &Value::Null,
        )?;
        assert_eq!(cancel.status, 404, "{round}");
        guarded.daemon.restart()?;
    }
    Ok(())
}

#[test]
fn a_revoked_token_is_worthless_at_once_and_the_last_one_opens_nothing() {
    let (guarded, secrets) = Guarded::start(vec![new("only", &[Scope::Admin])]).unwrap();
    let ask = || {
        guarded
            .ask(&secrets[0], "GET", "/v1/runs", &Value::Null)
            .unwrap()
    };
    assert_eq!(ask().status, 200);
    guarded.file.revoke("only").unwrap();
    assert_eq!(ask().error(), (401, "auth.invalid".to_owned()));
    assert_eq!(
        guarded.daemon.get("/v1/runs").unwrap().error(),
        (401, "auth.missing".to_owned())
    );
}

#[test]
fn quotas_hold_and_turns_are_fair() {
    let greedy = NewToken {
        max_queued: Some(3),
        ..new("greedy", &[Scope::Run])
    };
    let (guarded, secrets) = Guarded::start(vec![greedy, new("modest", &[Scope::Run])]).unwrap();
    let [greedy, modest] = &secrets[..] else {
        panic!("two tokens");
    };
    let body = json!({"command": ["sleep", "0.05"], "wait": false});
    let submit = |token: &str| guarded.ask(token, "POST", "/v1/runs", &body).unwrap();
    let path = |reply: &Reply| format!("/v1/runs/{}", reply.json()["run_id"].as_str().unwrap());
    let blocker = json!({"command": ["sleep", "60"], "wait": false});
    let blocker = guarded.ask(modest, "POST", "/v1/runs", &blocker).unwrap();
    let queued: Vec<_> = (0..3).map(|_| path(&submit(greedy))).collect();
    let refused = submit(greedy);
    assert_eq!(refused.error(), (429, "quota.exceeded".to_owned()));
    let own = path(&submit(modest));
    guarded
        .ask(modest, "DELETE", &path(&blocker), &Value::Null)
        .unwrap();
    let began = std::time::Instant::now();
    let started = |token: &str, path: &str| loop {
        let run = guarded
            .ask(token, "GET", path, &Value::Null)
            .unwrap()
            .json();
        if run["state"] == "ended" {
            break run["started_at"].as_str().unwrap().to_owned();
        }
        assert!(began.elapsed() < crate::support::PATIENCE, "{run}");
        std::thread::sleep(crate::support::AGAIN);
    };
    // One of the greedy ones was first in line; then it is the other's turn, before the rest.
    assert!(started(modest, &own) < started(greedy, &queued[1]));
}

#[test]
fn the_languages_are_shown_to_every_token_and_to_nobody_without() {
    let (guarded, secrets) = Guarded::start(vec![new("runner", &[Scope::Run])]).unwrap();
    let with = guarded.ask(&secrets[0], "GET", "/v1/languages", &Value::Null);
    assert_eq!(with.unwrap().status, 200);
    let without = guarded.daemon.get("/v1/languages").unwrap();
    assert_eq!(without.error(), (401, "auth.missing".to_owned()));
}
