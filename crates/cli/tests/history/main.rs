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
    launch.finish().told()
}

/// Every run, newest first.
#[track_caller]
fn runs(host: &Host, way: Way) -> Vec<Value> {
    let list = host.launch(["runs", "list", "--json", "--limit", "10000"]);
    list.way(way).finish().told_list("runs")
}
