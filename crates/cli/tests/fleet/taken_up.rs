//! What one daemon leaves and the next one finds, where a fleet is between them.

use cofferdam_testkit::desk;
use rustix::process::Signal;
use serde_json::Value;

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
    let begun = here.begin("sleep 600");
    here.until(&format!("/v1/runs/{begun}"), |run| {
        run["state"] == "running"
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
