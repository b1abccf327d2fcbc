//! A fleet of real processes: the server, workers that run real sandboxes, submitters. They are killed, stopped and started again in the middle of it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test file: what fails here fails the test"
)]

mod chance;
#[allow(dead_code, reason = "the tests of the daemon use the rest")]
#[path = "../serving/client.rs"]
mod client;
mod deploy;
mod field;
mod front_door;
mod partition;
mod taken_up;

use std::process::Stdio;

use cofferdam_testkit::desk;
use cofferdam_testkit::desk::{code, json as read, stderr};
use cofferdam_testkit::nats::Nats;
use rustix::process::Signal;
use serde_json::{Value, json};

use field::{Field, Guest, SILENCE, shell};

fn ended(told: &Value) -> (&str, Vec<&str>) {
    let workers = told["end"]["workers"].as_array().unwrap();
    let mut workers: Vec<&str> = workers
        .iter()
        .map(|worker| worker.as_str().unwrap())
        .collect();
    workers.sort_unstable();
    (told["end"]["outcome"].as_str().unwrap(), workers)
}

#[test]
fn two_workers_run_a_payload_their_signed_answers_are_compared_and_sigterm_drains() {
    let Some(field) = Field::new(desk!(), "6s", &[]) else {
        return;
    };
    let mut workers = ["w1", "w2"].map(|name| field.worker(name));
    field.ready(2);
    let payload = field
        .desk
        .seal("p.json", &shell("SUM", "echo $((6 * 7)); echo seen >&2"));
    let (exit, told) = read(
        &field
            .submit(&payload, &["--replicas", "2", "--wait"])
            .output()
            .unwrap(),
    );
    assert_eq!(
        (exit, ended(&told)),
        (0, ("agreed", vec!["w1", "w2"])),
        "{told}"
    );
    assert_eq!(told["envelope"]["output"]["stdout"], "42\n");
    assert!(told["envelope"]["receipt"].is_string());
    let url = field.nats.url();
    let (_, ledger) = field.desk.json(&format!("ledger --nats {url} show --json"));
    let ledger = &ledger["workers"];
    assert_eq!(
        (&ledger["w1"]["reputation"], &ledger["w2"]["confirmed"]),
        (&json!(55), &json!(1))
    );
    let history = field.desk.ok(&["ledger", "--nats", &url, "history", "w1"]);
    assert!(
        history.contains("confirmed") && history.contains("SUM"),
        "{history}"
    );
    let about = field.fleet(&["jobs", "SUM", "--json"]);
    assert!(
        about["events"].to_string().contains("seen"),
        "what it logged: {about}"
    );
    // Checked by a second one although nobody asked for two.
    let audited = field.desk.seal("a.json", &shell("AUDITED", "echo same"));
    let more = ["--audit-rate", "100%", "--wait"];
    let (exit, told) = read(&field.submit(&audited, &more).output().unwrap());
    assert_eq!((exit, ended(&told)), (0, ("agreed", vec!["w1", "w2"])));
    // A failing program is an answer too.
    let failing = field.desk.seal("f.json", &shell("FAILS", "exit 3"));
    let (exit, told) = field.wait_for(&failing);
    assert_eq!((exit, &told["envelope"]["status"]), (1, &json!("ERROR")));
    for worker in &mut workers {
        worker.signal(Signal::TERM);
        assert!(worker.0.wait().unwrap().success());
    }
    let text = field.desk.ok(&["fleet", "--nats", &url, "workers"]);
    assert!(text.contains("w1") && text.contains("native"), "{text}");
    assert_eq!(field.fleet(&["status", "--json"])["workers_ready"], 0);
}

#[test]
fn work_of_a_worker_that_is_killed_is_done_by_another_and_the_dead_one_is_held_to_account() {
    let Some(field) = Field::new(desk!(), SILENCE, &[]) else {
        return;
    };
    let first = field.worker("w1");
    field.ready(1);
    let payload = field
        .desk
        .seal("p.json", &shell("KILLED", "sleep 15; echo done"));
    let mut waiting = field.submit(&payload, &["--wait"]);
    let waiting = waiting
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    field.until("it runs", || {
        field.holder("KILLED").as_deref() == Some("w1")
    });
    // Long enough for signs of life, which the next one misses.
    let alive = || {
        field.fleet(&["jobs", "KILLED", "--json"])["claims"][0][1]["state"]["held"]["beats"]
            .as_u64()
            >= Some(2)
    };
    field.until("it lives", alive);
    drop(first);
    let _second = field.worker("w2");
    let done = waiting.wait_with_output().unwrap();
    let (exit, told) = read(&done);
    assert_eq!((exit, ended(&told)), (0, ("agreed", vec!["w2"])), "{told}");
    let url = field.nats.url();
    let (_, ledger) = field.desk.json(&format!("ledger --nats {url} show --json"));
    let ledger = &ledger["workers"];
    assert_eq!(ledger["w1"]["offences"]["STALL"], 1, "{ledger}");
    let lifted = field.desk.ok(&["ledger", "--nats", &url, "lift", "w1"]);
    assert!(!lifted.contains("quarantine for"), "{lifted}");
}

#[test]
fn a_worker_that_was_stopped_past_its_time_finds_that_another_has_answered() {
    let Some(field) = Field::new(desk!(), SILENCE, &[]) else {
        return;
    };
    let stopped = field.worker("w1");
    field.ready(1);
    let payload = field
        .desk
        .seal("p.json", &shell("STOPPED", "sleep 15; echo done"));
    assert_eq!(code(&field.submit(&payload, &[]).output().unwrap()), 0);
    field.until("it runs", || {
        field.holder("STOPPED").as_deref() == Some("w1")
    });
    stopped.signal(Signal::STOP);
    let _other = field.worker("w2");
    let (exit, told) = field.wait_for(&payload);
    assert_eq!((exit, ended(&told)), (0, ("agreed", vec!["w2"])), "{told}");
    stopped.signal(Signal::CONT);
    let late = || {
        let about = field.fleet(&["jobs", "STOPPED", "--json"]);
        let events = about["events"].as_array().cloned().unwrap_or_default();
        events.iter().any(|event| {
            event["worker"] == "w1" && (event["what"] == "late" || event["what"] == "revoked")
        })
    };
    field.until("it is recognised as late", late);
    let status = field.fleet(&["status", "--json"]);
    assert_eq!(
        (&status["results"], &status["jobs_open"]),
        (&json!(1), &json!(0)),
        "{status}"
    );
    // And it works on.
    let next = field.desk.seal("n.json", &shell("NEXT", "echo next"));
    let (exit, _) = field.wait_for(&next);
    assert_eq!(exit, 0);
}

#[test]
fn a_server_that_dies_and_a_submitter_that_dies_lose_nothing() {
    let Some(mut field) = Field::new(desk!(), SILENCE, &["--max-starts", "20"]) else {
        return;
    };
    let _workers = ["w1", "w2", "w3"].map(|name| field.worker(name));
    field.ready(3);
    let payload = field
        .desk
        .seal("p.json", &shell("LIVES", "sleep 15; echo done"));
    let mut submitter = field.submit(&payload, &["--wait"]);
    let submitter = Guest(
        submitter
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    field.until("it runs", || field.holder("LIVES").is_some());
    drop(submitter);
    field.nats.kill();
    field.nats.again();
    let (exit, told) = field.wait_for(&payload);
    let (outcome, workers) = ended(&told);
    assert_eq!((exit, outcome, workers.len()), (0, "agreed", 1), "{told}");
    assert_eq!(told["envelope"]["output"]["stdout"], "done\n");
    // One that coordinates for all sees to a job whose submitter has gone.
    let mut command = field.desk.command();
    command.args(["fleet", "--nats", &field.nats.url(), "coordinate"]);
    let _coordinator = Guest(
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let other = field.desk.seal("o.json", &shell("ALONE", "echo alone"));
    assert_eq!(
        code(&field.submit(&other, &["--replicas", "2"]).output().unwrap()),
        0
    );
    let agreed = || {
        let about = field.fleet(&["jobs", "ALONE", "--json"]);
        about["job"]["end"]["outcome"] == "agreed" && about["job"]["settled"] == true
    };
    field.until("it is decided", agreed);
}

#[test]
fn what_is_not_said_again_stays_as_it_is() {
    let desk = desk!();
    let rules = json!({"actions": {"STALL": {"quarantine_seconds": 7}}}).to_string();
    let rules = desk.write("rules.json", rules);
    let more = ["--max-starts", "5", "--rules", rules.to_str().unwrap()];
    let Some(field) = Field::new(desk, SILENCE, &more) else {
        return;
    };
    let settings = field.fleet(&["init", "--json"]);
    assert_eq!(settings["max_starts"], 5, "{settings}");
    let mut changed = settings.clone();
    changed["grace_ms"] = json!(9000);
    assert_ne!(changed, settings);
    assert_eq!(field.fleet(&["init", "--grace", "9s", "--json"]), changed);
    assert_eq!(field.fleet(&["init", "--json"]), changed);
    let rules = changed["rules"].to_string();
    assert!(rules.contains(r#""quarantine_seconds":7"#), "{rules}");
}

#[test]
fn a_front_door_refuses_what_only_its_workers_can_be_told() {
    let desk = desk!();
    let door = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--fleet",
        "nats://127.0.0.1:1",
        "--net",
        "full",
    ];
    for more in [
        ["--net-private", "allow"],
        ["--net-proxy", "http://127.0.0.1:7"],
    ] {
        let done = desk.run([&door[..], &more].concat());
        assert_eq!(code(&done), 125);
        let told = stderr(&done);
        assert!(
            told.contains(more[0]) && told.contains("cofferdam worker"),
            "{told}"
        );
        assert!(told.contains("[config.invalid]"), "{told}");
    }
    // What is said and is the default is no harm: it gets as far as the server that is not there.
    let done = desk.run([&door[..], &["--net-private", "refuse"]].concat());
    assert!(
        stderr(&done).contains("nats-server -js"),
        "{}",
        stderr(&done)
    );
}

#[test]
fn what_cannot_be_done_is_told_clearly() {
    let desk = desk!();
    let payload = desk.seal("p.json", &shell("P", "true"));
    let payload = payload.to_str().unwrap();
    let done = desk.run(["submit", payload, "--fleet", "nats://127.0.0.1:1"]);
    assert_eq!(code(&done), 125);
    assert!(
        stderr(&done).contains("nats-server -js") && stderr(&done).contains("[server.unreachable]"),
        "{}",
        stderr(&done)
    );
    let away = desk.run([
        "--mode",
        "air-gapped",
        "fleet",
        "--nats",
        "nats://nats.example.org",
        "status",
    ]);
    assert!(
        stderr(&away).contains("[policy.refused]"),
        "{}",
        stderr(&away)
    );
    let varies = desk.seal("v.json", &{
        let mut draft = shell("V", "date");
        draft["pure"] = json!(false);
        draft
    });
    let done = desk.run([
        "submit",
        varies.to_str().unwrap(),
        "--fleet",
        "nats://127.0.0.1:1",
        "--replicas",
        "2",
    ]);
    assert!(
        stderr(&done).contains("--replicas") && stderr(&done).contains("vary"),
        "{}",
        stderr(&done)
    );
    for (bad, word) in [
        ("--replicas 0", "replicas"),
        ("--audit-rate 2", "5%"),
        ("--tenant .x", "letters"),
    ] {
        let mut args = vec!["submit", payload, "--fleet", "nats://127.0.0.1:1"];
        args.extend(bad.split(' '));
        let done = desk.run(&args);
        assert!(
            code(&done) == 125 && stderr(&done).contains(word),
            "{}",
            stderr(&done)
        );
    }
    let rules = desk.write(
        "rules.json",
        "{\"actions\": {\"CRASH\": {\"reputation\": 7}}}",
    );
    let done = desk.run([
        "fleet",
        "--nats",
        "nats://127.0.0.1:1",
        "init",
        "--rules",
        rules.to_str().unwrap(),
    ]);
    assert!(
        stderr(&done).contains("rules.actions.CRASH.reputation"),
        "{}",
        stderr(&done)
    );
    let Some(nats) = Nats::start() else { return };
    let url = nats.url();
    for (args, word) in [
        (
            ["fleet", "--nats", &url, "requeue", "NONE"],
            "no job is called NONE",
        ),
        (
            ["fleet", "--nats", &url, "drain", "nobody"],
            "no worker is called nobody",
        ),
        (
            ["ledger", "--nats", &url, "lift", "nobody"],
            "no worker is called nobody",
        ),
    ] {
        let done = desk.run(args);
        assert!(
            code(&done) == 125 && stderr(&done).contains(word),
            "{}",
            stderr(&done)
        );
    }
}
