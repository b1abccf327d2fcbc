//! A crash of ours at any instant: what had finished is there whole, what had not says so, and nothing is lost or made up.

use std::collections::BTreeMap;
use std::time::Duration;

use cofferdam_testkit::{Way, host};
use rustix::process::Signal;
use serde_json::Value;

use crate::{runs, told};

/// SIGKILL after every delay up to somewhat longer than a run takes here and now, hundreds of times. The last quarter is left alone: those end by themselves on any machine.
#[test]
fn whoever_is_killed_leaves_a_whole_record_or_an_interrupted_one() {
    let host = host!();
    let mut finished = BTreeMap::new();
    let mut killed = 0;
    const ROUNDS: u32 = 400;
    const KILLED: u32 = ROUNDS / 4 * 3;
    let alone = (0..3).map(|_| host.json(["run", "--no-history", "--", "true"]).wall);
    let longest = alone.min().unwrap_or_default() * 2;
    let longest = longest.clamp(Duration::from_millis(20), Duration::from_millis(400));
    for round in 0..ROUNDS {
        let word = format!("word-{round}");
        let script = format!("echo {word}; echo {word} >&2; exit 3");
        let started = host
            .launch(["run", "--", "sh", "-c", &script])
            .json()
            .start();
        if round < KILLED {
            std::thread::sleep(longest * round / KILLED);
            started.signal(Signal::KILL);
        }
        let ended = started.finish();
        match serde_json::from_slice::<Value>(&ended.stdout) {
            Ok(record) if ended.status.code() == Some(3) => {
                finished.insert(record["run_id"].as_str().unwrap().to_owned(), word);
            }
            _ => killed += 1,
        }
    }
    assert!(killed > 20, "only {killed} were killed in time");
    assert!(
        finished.len() > 20,
        "only {} ended by themselves",
        finished.len()
    );
    let all = runs(&host, Way::Root);
    assert!(all.len() <= usize::try_from(ROUNDS).unwrap());
    let mut by_status: BTreeMap<String, u64> = BTreeMap::new();
    for run in &all {
        let id = run["run_id"].as_str().unwrap();
        let status = run["status"].as_str().unwrap();
        *by_status.entry(status.to_owned()).or_default() += 1;
        let shown = told(&host, &["runs", "show", id, "--json"]);
        assert_eq!(shown["run_id"], *id);
        match status {
            "failure" => {
                assert_eq!(shown["exit_code"], 3, "{shown}");
                assert!(shown["ended_at"].is_string(), "{shown}");
                let log = host.run(["runs", "logs", id, "--stdout"]);
                let text = String::from_utf8(log.stdout).unwrap();
                assert!(
                    text.starts_with("word-") && text.ends_with('\n'),
                    "{text:?}"
                );
                if let Some(word) = finished.remove(id) {
                    assert_eq!(text, format!("{word}\n"));
                }
            }
            "interrupted" => assert!(shown["exit_code"].is_null(), "{shown}"),
            // The sandbox could be killed while it was built.
            other => panic!("{other}: {shown}"),
        }
    }
    assert!(finished.is_empty(), "lost: {finished:?}");
    assert!(
        by_status.get("interrupted").is_some_and(|count| *count > 5),
        "{by_status:?}"
    );
    let audit = host.run(["audit", "verify"]);
    audit.assert_success();
}

/// Several processes at once, some of them killed, while others read.
#[test]
fn writers_and_readers_do_not_get_in_each_others_way() {
    let host = host!();
    let mut going_on = Vec::new();
    for round in 0..60 {
        let script = format!("echo {round}");
        going_on.push(host.launch(["run", "--", "sh", "-c", &script]).start());
        if round % 10 == 9 {
            let reader = host.run(["runs", "list", "--json"]);
            reader.assert_success();
        }
        if going_on.len() == 6 {
            for started in going_on.drain(..) {
                started.finish().assert_success();
            }
        }
    }
    let all = runs(&host, Way::Root);
    assert_eq!(all.len(), 60);
    assert!(all.iter().all(|run| run["status"] == "success"));
}

/// Before the program starts, the record says that it runs; while it runs, its output can be followed.
#[test]
fn a_run_is_known_while_it_goes_on() {
    let host = host!();
    let started = host
        .launch(["run", "--", "sh", "-c", "echo ready; sleep 60"])
        .start();
    for _ in 0..200 {
        let log = host.run(["runs", "logs", "latest", "--stdout"]);
        if log.stdout == b"ready\n" {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let seen = runs(&host, Way::Root);
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0]["status"], "running");
    started.signal(Signal::KILL);
    let _ = started.finish();
    // The kernel lets go of the lock when the process is gone.
    let now = runs(&host, Way::Root);
    assert_eq!(now[0]["status"], "interrupted", "{now:?}");
    let log = host.run(["runs", "logs", "latest", "--stdout"]);
    assert_eq!(log.stdout, b"ready\n");
}
