//! History, end to end: what a run leaves behind for whoever asks later, also when something goes wrong.

mod artifacts;
mod attacks;
mod auditing;
mod bundles;
mod comparing;
mod durability;
mod kept;
mod listing;
mod retention;
mod settings;
mod showing;
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

/// A script that has run with these options; its id.
#[track_caller]
fn ran(host: &Host, options: &[&str], script: &str) -> String {
    let mut args = vec!["run"];
    args.extend(options);
    args.extend(["--", "sh", "-c", script]);
    let finished = host.json(args);
    text(&finished.record()["run_id"])
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// One member of each object in a list.
fn each(list: &[Value], member: &str) -> Vec<String> {
    list.iter().map(|value| text(&value[member])).collect()
}

/// What a verb shows on a terminal of its own. Its arguments must be plain words.
#[track_caller]
fn on_terminal<'h>(host: &'h Host, args: &[&str]) -> Launch<'h> {
    host.launch(args)
        .from_shell("exec script -qec \"$*\" /dev/null")
        .env("TERM", "xterm")
        .env("COLUMNS", "200")
        .env("LINES", "24")
        .env("PAGER", "")
        .env("COFFERDAM_PAGER", "")
}

/// A configuration file of this test.
fn configuration(host: &Host, yaml: &str) -> String {
    let path = host.dir().join("settings.yaml");
    assert!(
        std::fs::write(&path, yaml).is_ok(),
        "cannot write {}",
        path.display()
    );
    path.display().to_string()
}
