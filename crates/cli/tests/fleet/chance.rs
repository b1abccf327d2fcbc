//! Rounds of chance with real processes: workers are killed and stopped, the server is killed, submitters are killed. Every job that was accepted ends once.
//!
//! `COFFERDAM_FLEET_ROUNDS` makes more of them, `COFFERDAM_FLEET_SEED` repeats one.

use std::process::Stdio;
use std::time::Instant;

use cofferdam_testkit::{Chance, desk};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::field::{Field, Guest, shell};

#[test]
fn real_processes_that_die_by_chance_lose_nothing_and_count_nothing_twice() {
    for chance in Chance::rounds() {
        let began = Instant::now();
        if !one_round(chance) {
            return;
        }
        eprintln!("it took {:.1} s", began.elapsed().as_secs_f64());
    }
}

/// False where there is no server to try it with.
fn one_round(mut chance: Chance) -> bool {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let desk = desk!();
    // Nobody is shut out for what the round did to him.
    let free = json!({"quarantine_seconds": 0});
    let rules = json!({"actions": {"STALL": free, "CRASH": free}}).to_string();
    let rules = desk.write("rules.json", rules);
    let more = ["--max-starts", "50", "--rules", rules.to_str().unwrap()];
    let Some(mut field) = Field::new(desk, "5s", &more) else {
        return false;
    };
    let mut workers = NAMES.map(|name| Some(field.worker(name)));
    let mut jobs = Vec::new();
    for index in 0..5 {
        let id = format!("JOB-{index}");
        let script = format!("sleep 0.{}; echo {id}", chance.below(10));
        let payload = field.desk.seal(&format!("{id}.json"), &shell(&id, &script));
        let replicas = 1 + chance.below(2);
        // A submitter that may die before it was told anything, or after.
        let mut submitter =
            field.submit(&payload, &["--wait", "--replicas", &replicas.to_string()]);
        let submitter = submitter
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let submitter = Guest(submitter.unwrap());
        std::thread::sleep(chance.moment(400));
        drop(submitter);
        accepted(&field, &payload, replicas);
        jobs.push((id, replicas));
        let place = usize::try_from(chance.below(3)).unwrap();
        match chance.below(4) {
            0 => workers[place] = None,
            1 => {
                if let Some(worker) = &workers[place] {
                    worker.signal(Signal::STOP);
                    std::thread::sleep(chance.moment(8000));
                    worker.signal(Signal::CONT);
                }
            }
            2 => {
                field.nats.kill();
                std::thread::sleep(chance.moment(500));
                field.nats.again();
            }
            _ => {}
        }
        for (place, worker) in workers.iter_mut().enumerate() {
            if worker.is_none() && chance.below(2) == 0 {
                *worker = Some(field.worker(NAMES[place]));
            }
        }
    }
    // Whoever failed at something does not get it again; these have failed at nothing.
    let _more = ["d", "e"].map(|name| field.worker(name));
    let mut command = field.desk.command();
    command.args(["fleet", "--nats", &field.nats.url(), "coordinate"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let _coordinator = Guest(command.spawn().unwrap());
    field.until("every job has ended", || {
        field.fleet(&["status", "--json"])["jobs_open"] == 0
    });
    check(&field, &jobs);
    true
}

/// Until it was said that it was.
fn accepted(field: &Field, payload: &std::path::Path, replicas: u64) {
    let replicas = replicas.to_string();
    field.until("it is accepted", || {
        let done = field.submit(payload, &["--replicas", &replicas]).output();
        done.unwrap().status.success()
    });
}

fn check(field: &Field, jobs: &[(String, u64)]) {
    let mut answers = 0;
    for (id, replicas) in jobs {
        let about = field.fleet(&["jobs", id, "--json"]);
        let job = &about["job"];
        assert_eq!(
            (&job["end"]["outcome"], &job["settled"]),
            (&json!("agreed"), &json!(true)),
            "{about:#}"
        );
        let slots = job["slots"].as_array().unwrap();
        let valid = slots.iter().filter(|slot| slot["end"]["valid"].is_object());
        assert_eq!(
            u64::try_from(valid.count()).unwrap(),
            *replicas,
            "{about:#}"
        );
        let ended = about["events"].as_array().unwrap();
        let ended = ended
            .iter()
            .filter(|event| event["what"] == "ended")
            .count();
        assert!(ended <= 1, "decided once: {about:#}");
        answers += replicas;
    }
    let url = field.nats.url();
    let (_, ledger) = field.desk.json(&format!("ledger --nats {url} show --json"));
    let ledger = &ledger["workers"];
    let confirmed: u64 = ledger
        .as_object()
        .unwrap()
        .values()
        .filter_map(|standing: &Value| standing["confirmed"].as_u64())
        .sum();
    assert_eq!(confirmed, answers, "every answer counts once: {ledger:#}");
}
