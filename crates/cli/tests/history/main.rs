//! History, end to end: what a run leaves behind for whoever asks later, also when something goes wrong.

mod durability;
mod kept;
mod trouble;

use cofferdam_testkit::{Host, Launch, Way};
use serde_json::Value;

/// What a verb prints with `--json`.
#[track_caller]
fn told(host: &Host, args: &[&str]) -> Value {
    told_by(host.launch(args))
}

#[track_caller]
fn told_by(launch: Launch<'_>) -> Value {
    let finished = launch.finish();
    match serde_json::from_slice(&finished.stdout) {
        Ok(value) => value,
        Err(error) => panic!("not JSON ({error}): {finished:#?}"),
    }
}

/// Every run, newest first.
#[track_caller]
fn runs(host: &Host, way: Way) -> Vec<Value> {
    let list = host.launch(["runs", "list", "--json", "--limit", "10000"]);
    let list = told_by(list.way(way));
    match list["runs"].as_array() {
        Some(runs) => runs.clone(),
        None => panic!("no list of runs: {list}"),
    }
}
