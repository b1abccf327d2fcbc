//! What one daemon leaves and the next one finds, where a fleet is between them.

use std::fs;

use cofferdam_testkit::desk;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::field::Field;
use crate::front_door::Door;

fn killed(door: Door) {
    door.guest.signal(Signal::KILL);
    drop(door);
}

fn is_there(field: &Field, job: &str) {
    field.until("it is on the fleet", || {
        field.fleet(&["jobs", job, "--json"])["job"]["queued"] == true
    });
}

/// The promise of a run, changed: as it would be if more time had passed.
fn promise(field: &Field, run: &str, change: impl Fn(&mut Value)) -> (Value, String) {
    let text = fs::read_to_string(field.desk.path(&format!("door/accepted/{run}.job"))).unwrap();
    let (promise, request) = text.split_once('\n').unwrap();
    let mut promise: Value = serde_json::from_str(promise).unwrap();
    change(&mut promise);
    (promise, request.to_owned())
}

fn promised(field: &Field, (promise, request): &(Value, String)) {
    let run = promise["run_id"].as_str().unwrap();
    let path = field.desk.path(&format!("door/accepted/{run}.job"));
    fs::write(path, format!("{promise}\n{request}")).unwrap();
}

#[test]
fn what_is_on_the_fleet_is_not_run_by_a_daemon_without_one_nor_the_other_way_round() {
    let Some(field) = Field::new(desk!(), "10s", &[]) else {
        return;
    };
    let door = Door::open(&field, &[]);
    let away = door.begin("echo away");
    is_there(&field, &away);
    killed(door);
    let here = Door::serve(&field, &[]);
    let run = here.ended(&away);
    assert_eq!(run["status"], "never_started", "{run:#}");
    assert!(run.to_string().contains("on the fleet"), "{run:#}");
    let begun = here.begin("echo begun; sleep 600");
    let journal = field.desk.path(&format!("door/spool/{begun}.run"));
    field.until("it has begun", || {
        let written = fs::read(&journal).unwrap_or_default();
        written.windows(6).any(|part| part == b"begun\n")
    });
    killed(here);
    let door = Door::open(&field, &[]);
    let run = door.ended(&begun);
    assert_ne!(run["status"], "success", "{run:#}");
    assert_eq!(field.fleet(&["jobs", &begun, "--json"]), Value::Null);
}

#[test]
fn what_waited_here_and_was_put_on_the_fleet_is_not_run_here_again() {
    let Some(field) = Field::new(desk!(), "10s", &[]) else {
        return;
    };
    let here = Door::serve(&field, &["--concurrency", "1"]);
    let first = here.begin("sleep 600");
    here.until(&format!("/v1/runs/{first}"), |run| {
        run["state"] == "running"
    });
    let waits = here.begin("echo waits");
    killed(here);
    let door = Door::open(&field, &[]);
    is_there(&field, &waits);
    killed(door);
    let here = Door::serve(&field, &[]);
    let run = here.ended(&waits);
    assert_eq!(run["status"], "never_started", "{run:#}");
}

#[test]
fn what_ended_in_time_counts_although_the_deadline_passed_while_no_front_door_was_there() {
    let Some(field) = Field::new(desk!(), "10s", &[]) else {
        return;
    };
    let door = Door::open(&field, &["--net", "full"]);
    let done = door.begin("echo done");
    let work = json!({"command": ["true"], "network": "full", "wait": false});
    let refused = door.post("/v1/runs", &work);
    let refused = refused["run_id"].as_str().unwrap().to_owned();
    for job in [&done, &refused] {
        is_there(&field, job);
    }
    killed(door);
    let _worker = field.worker("w1");
    field.until("it is answered", || {
        field.fleet(&["status", "--json"])["results"] == 1
    });
    let past = |promise: &mut Value| promise["deadline_at"] = promise["submitted_at"].clone();
    promised(&field, &promise(&field, &done, past));
    // Another that never came to the fleet.
    let other = match done.strip_suffix('0') {
        Some(rest) => format!("{rest}1"),
        None => format!("{}0", &done[..done.len() - 1]),
    };
    let lost = promise(&field, &done, |promise| {
        past(promise);
        promise["run_id"] = json!(other);
    });
    promised(&field, &lost);
    let door = Door::open(&field, &[]);
    let run = door.ended(&done);
    assert_eq!(
        (&run["status"], &run["stdout"]["data"]),
        (&json!("success"), &json!("done\n")),
        "{run:#}"
    );
    let run = door.ended(&other);
    assert_eq!(
        (&run["status"], &run["stdout"]),
        (&json!("timeout"), &Value::Null),
        "{run:#}"
    );
    // What this daemon would not have taken on is not carried out for nobody.
    assert_eq!(door.ended(&refused)["status"], "never_started");
    let about = field.fleet(&["jobs", &refused, "--json"]);
    assert!(about["job"]["canceled"].is_string(), "{about:#}");
}

#[test]
fn a_project_is_refused_where_answers_are_compared() {
    let Some(field) = Field::new(desk!(), "10s", &[]) else {
        return;
    };
    let door = Door::open(&field, &["--fleet-replicas", "2"]);
    field.desk.write("project/setup.cfg", "");
    let server = format!("http://{}", door.address);
    let project = field.desk.path("project");
    let project = project.to_str().unwrap();
    let done = field.desk.run([
        "submit",
        "--server",
        &server,
        "--project",
        project,
        "--json",
    ]);
    let told = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(told.contains("--fleet-replicas"), "{told}");
    assert_eq!(field.fleet(&["status", "--json"])["jobs_open"], 0);
}
