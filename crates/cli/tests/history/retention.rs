//! `runs prune`: what goes, what stays, and that what goes is gone.

use std::path::PathBuf;

use cofferdam_testkit::{Host, Way, host};
use serde_json::{Value, json};

use crate::{configuration, each, ran, runs, told};

#[track_caller]
fn prune(host: &Host, flags: &[&str]) -> Value {
    let mut args = vec!["runs", "prune", "--json"];
    args.extend(flags);
    let done = host.run(args);
    done.assert_success();
    done.told()
}

/// First as a dry run, which must say the same and change nothing.
#[track_caller]
fn foretold_and_done(host: &Host, flags: &[&str]) -> Value {
    let before = kept(host);
    let objects = objects(host);
    let mut dry = vec!["--dry-run"];
    dry.extend(flags);
    let mut foretold = prune(host, &dry);
    assert_eq!(foretold["dry_run"], true);
    assert_eq!(kept(host), before);
    assert_eq!(self::objects(host), objects);
    let done = prune(host, flags);
    foretold["dry_run"] = json!(false);
    assert_eq!(foretold, done, "{flags:?}");
    host.run(["audit", "verify"]).assert_success();
    done
}

/// The ids of all runs, oldest first.
#[track_caller]
fn kept(host: &Host) -> Vec<String> {
    let mut ids = each(&runs(host, Way::Root), "run_id");
    ids.reverse();
    ids
}

fn removed(pruned: &Value) -> Vec<(String, String)> {
    let all = pruned["runs"].as_array().into_iter().flatten();
    all.map(|run| (crate::text(&run["run_id"]), crate::text(&run["why"])))
        .collect()
}

/// The contents on the disk.
fn objects(host: &Host) -> Vec<PathBuf> {
    let top = host.history(Way::Root).join("objects");
    let shelves = std::fs::read_dir(top).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = shelves
        .filter(|shelf| shelf.file_name().len() == 2)
        .flat_map(|shelf| {
            std::fs::read_dir(shelf.path())
                .into_iter()
                .flatten()
                .flatten()
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// A run that leaves a file with these contents.
#[track_caller]
fn ran_leaving(host: &Host, script: &str) -> String {
    let dir = host.workspace(Way::Root);
    host.give(&dir, Way::User);
    let workspace = format!("{}:rw", dir.display());
    ran(host, &["--workspace", &workspace], script)
}

#[test]
fn the_oldest_go_when_there_are_too_many() {
    let host = host!();
    let mut ids: Vec<String> = (0..6).map(|_| ran(&host, &[], "true")).collect();
    let pruned = foretold_and_done(&host, &["--max-runs", "4"]);
    let why = |id: &String| (id.clone(), "count".to_owned());
    assert_eq!(removed(&pruned), [why(&ids[0]), why(&ids[1])]);
    assert_eq!(pruned["kept_runs"], 4);
    ids.drain(..2);
    assert_eq!(kept(&host), ids);
    assert!(removed(&foretold_and_done(&host, &["--max-runs", "4"])).is_empty());
    // What is gone is gone for every verb.
    let words = host
        .run(["runs", "prune", "--max-runs", "3", "--dry-run"])
        .out();
    assert!(
        words.contains("too many") && words.contains("would remove 1 run"),
        "{words}"
    );
    let gone = ids[0].clone();
    host.run(["runs", "prune", "--max-runs", "3"])
        .assert_success();
    for args in [["runs", "show"], ["runs", "logs"], ["artifacts", "list"]] {
        let asked = host.run([args[0], args[1], &gone]);
        asked.assert_refused(125, "history.not_found");
    }
    assert_eq!(host.run(["runs", "list", "--count"]).out(), "3\n");
    assert_eq!(told(&host, &["runs", "stats", "--json"])["runs"], 3);
}

#[test]
fn failures_stay_longer_and_tagged_runs_until_they_are_named() {
    let host = host!();
    let success = ran(&host, &[], "true");
    let failure = ran(&host, &[], "false");
    let slow = ran(&host, &["--timeout", "60ms"], "sleep 9");
    let tagged = ran(&host, &["--tag", "keep"], "true");
    let pruned = foretold_and_done(&host, &["--max-age", "1ms"]);
    assert_eq!(removed(&pruned), [(success, "age".to_owned())]);
    assert_eq!(kept(&host), [failure.clone(), slow.clone(), tagged.clone()]);
    let flags = ["--max-age", "unlimited", "--max-age-of-failures", "1ms"];
    let pruned = foretold_and_done(&host, &flags);
    let age = "age".to_owned();
    assert_eq!(removed(&pruned), [(failure, age.clone()), (slow, age)]);
    // No bound reaches a tagged run.
    let all = [
        "--max-age",
        "1ms",
        "--max-age-of-failures",
        "1ms",
        "--max-runs",
        "1",
        "--max-size",
        "1",
    ];
    ran(&host, &[], "true");
    foretold_and_done(&host, &all);
    assert_eq!(kept(&host), std::slice::from_ref(&tagged));
    let pruned = foretold_and_done(&host, &["--run", &tagged]);
    assert_eq!(removed(&pruned), [(tagged, "named".to_owned())]);
    assert_eq!(kept(&host), [""; 0]);
}

#[test]
fn naming_runs_removes_those_and_no_other() {
    let host = host!();
    let ids: Vec<String> = (0..4).map(|_| ran(&host, &[], "true")).collect();
    let missing = host.run(["runs", "prune", "--run", "latest", "--run", "ffffffff"]);
    missing.assert_refused(125, "history.not_found");
    let ambiguous = host.run(["runs", "prune", "--run", &ids[0][..4]]);
    ambiguous.assert_refused(125, "input.invalid");
    let both = host.run(["runs", "prune", "--run", "latest", "--max-runs", "1"]);
    both.assert_refused(125, "input.invalid");
    assert_eq!(kept(&host), ids);
    let flags = ["--run", "latest", "--run", &ids[3], "--run", "latest~2"];
    let pruned = foretold_and_done(&host, &flags);
    assert_eq!(removed(&pruned).len(), 2);
    assert_eq!(kept(&host), [ids[0].clone(), ids[2].clone()]);
}

#[test]
fn contents_go_with_the_last_run_that_left_them() {
    let host = host!();
    let shared = "seq 5000 > shared";
    let first = ran_leaving(&host, &format!("{shared}; seq 6000 > own; seq 20000"));
    let second = ran_leaving(&host, shared);
    assert_eq!(kept(&host), [first.clone(), second.clone()]);
    // The shared file, the first one's own, and its output, which is long.
    assert_eq!(objects(&host).len(), 3);
    let pruned = foretold_and_done(&host, &["--run", &first]);
    assert_eq!(pruned["objects"], 2, "{pruned}");
    assert_eq!(objects(&host).len(), 1);
    let cat = host.run(["artifacts", "cat", &second, "shared"]);
    assert_eq!(cat.out().lines().count(), 5000);
    let pruned = foretold_and_done(&host, &["--run", &second]);
    assert_eq!(pruned["objects"], 1, "{pruned}");
    assert!(pruned["freed_bytes"].as_u64() > Some(1000), "{pruned}");
    assert_eq!(objects(&host), Vec::<PathBuf>::new());
    assert_eq!(told(&host, &["runs", "stats", "--json"])["object_bytes"], 0);
}

#[test]
fn the_oldest_go_when_they_take_too_much() {
    let host = host!();
    let script = "head -c 100000 /dev/urandom > noise";
    let ids: Vec<String> = (0..4).map(|_| ran_leaving(&host, script)).collect();
    let pruned = foretold_and_done(&host, &["--max-size", "250k"]);
    let why: Vec<String> = removed(&pruned).into_iter().map(|(_, why)| why).collect();
    assert_eq!(why, ["size", "size"], "{pruned}");
    assert_eq!(kept(&host), ids[2..]);
    assert!(
        pruned["kept_bytes"].as_u64() <= Some(250 * 1024),
        "{pruned}"
    );
    assert_eq!(objects(&host).len(), 2);
    for id in &ids[2..] {
        let cat = host.run(["artifacts", "cat", id, "noise"]);
        assert_eq!(cat.stdout.len(), 100_000);
    }
}

#[test]
fn the_configuration_says_what_is_kept_and_flags_win() {
    let host = host!();
    let ids: Vec<String> = (0..5).map(|_| ran(&host, &[], "true")).collect();
    let config = configuration(&host, "history:\n  max_runs: 3\n");
    let told = prune(&host, &["--config", &config, "--dry-run"]);
    assert_eq!(removed(&told).len(), 2);
    let told = prune(&host, &["--config", &config, "--max-runs", "unlimited"]);
    assert!(removed(&told).is_empty());
    prune(&host, &["--config", &config]);
    assert_eq!(kept(&host), ids[2..]);
    for flags in [
        ["--max-runs", "0"],
        ["--max-age", "soon"],
        ["--max-size", "-1"],
    ] {
        let refused = host.run(["runs", "prune", flags[0], flags[1]]);
        refused.assert_refused(125, "input.invalid");
    }
    assert_eq!(kept(&host).len(), 3);
}

#[test]
fn a_run_that_goes_on_is_never_removed() {
    let host = host!();
    let ended = ran(&host, &[], "true");
    let mut run = host
        .launch(["run", "--", "sh", "-c", "echo ready; sleep 60"])
        .start();
    run.await_output("ready");
    let refused = host.run(["runs", "prune", "--run", "latest"]);
    refused.assert_refused(125, "input.invalid");
    let flags = [
        "--max-age",
        "1ms",
        "--max-age-of-failures",
        "1ms",
        "--max-runs",
        "1",
    ];
    let pruned = prune(&host, &flags);
    assert_eq!(removed(&pruned), [(ended, "age".to_owned())]);
    assert_eq!(runs(&host, Way::Root)[0]["status"], "running");
    let log = host.run(["runs", "logs", "latest"]);
    assert_eq!(log.out(), "ready\n");
    drop(run);
    assert_eq!(runs(&host, Way::Root)[0]["status"], "interrupted");
    host.run(["audit", "verify"]).assert_success();
}

/// What was removed stays removed, and can be brought back whole from a bundle.
#[test]
fn what_was_exported_can_come_back() {
    let host = host!();
    let id = ran_leaving(&host, "echo out; echo x > file");
    let shown = host.run(["runs", "show", &id, "--json"]).stdout;
    let bundle = host.dir().join("b.zip").display().to_string();
    host.run(["export", &id, "-o", &bundle]).assert_success();
    foretold_and_done(&host, &["--run", &id]);
    host.run(["import", &bundle]).assert_success();
    assert_eq!(host.run(["runs", "show", &id, "--json"]).stdout, shown);
    assert_eq!(host.run(["artifacts", "cat", &id, "file"]).out(), "x\n");
    host.run(["audit", "verify"]).assert_success();
    foretold_and_done(&host, &["--run", &id]);
}
