//! `audit`: whatever somebody changes behind our back is found, and named.

use std::path::{Path, PathBuf};

use cofferdam_testkit::{Host, Way, host};
use serde_json::Value;

use crate::{each, ran, text, told};

/// Changes the database of a history as its owner could with any tool.
#[track_caller]
pub(crate) fn tamper(dir: &Path, sql: &str) {
    let done = rusqlite::Connection::open(dir.join("history.db"))
        .and_then(|connection| connection.execute_batch(sql));
    assert!(done.is_ok(), "{sql}: {done:?}");
}

/// A copy of the history that a case may spoil.
#[track_caller]
fn copy(host: &Host, name: &str) -> PathBuf {
    let to = host.dir().join(name);
    let done = std::process::Command::new("cp")
        .arg("-a")
        .args([&host.history(Way::Root), &to])
        .status();
    assert!(done.is_ok_and(|status| status.success()));
    to
}

/// The findings of `audit verify`, which must say by its exit code and in words that there are some.
#[track_caller]
fn findings(host: &Host, dir: &Path) -> Vec<Value> {
    let dir = dir.display().to_string();
    let verify = host.run(["--data-dir", &dir, "audit", "verify", "--json"]);
    let told = verify.told();
    let Some(found) = told["report"]["findings"].as_array().cloned() else {
        return Vec::new();
    };
    assert_eq!(told["holds"], found.is_empty(), "{told}");
    assert_eq!(verify.code(), i32::from(!found.is_empty()), "{told}");
    let words = host.run(["--data-dir", &dir, "audit", "verify"]);
    assert_eq!(words.code(), verify.code());
    let verdict = if found.is_empty() {
        "holds: "
    } else {
        "does not hold: "
    };
    let last = words.out().lines().last().unwrap_or_default().to_owned();
    assert!(last.starts_with(verdict), "{words:#?}");
    assert_eq!(words.out().lines().count(), found.len() + 1, "{words:#?}");
    found
}

/// Without the triggers that keep honest people from it.
const OPEN: &str = "DROP TRIGGER ended_runs_stay; DROP TRIGGER ended_details_stay; DROP TRIGGER tags_stay; DROP TRIGGER facets_stay; \
                    DROP TRIGGER commands_stay; DROP TRIGGER contents_stay; DROP TRIGGER audit_stays; DROP TRIGGER audit_grows;";

#[test]
fn every_change_is_found_and_named() {
    let host = host!();
    let dir = host.workspace(Way::Root);
    host.give(&dir, Way::User);
    let workspace = format!("{}:rw", dir.display());
    let first = ran(&host, &["--tag", "branch=main"], "echo hello");
    let second = ran(&host, &["--workspace", &workspace], "echo x > file; exit 3");
    let third = ran(&host, &[], "echo three");
    host.run(["audit", "verify"]).assert_success();
    assert_eq!(
        findings(&host, &host.history(Way::Root)),
        Vec::<Value>::new()
    );
    let id = |id: &str| format!("x'{}'", id.replace('-', ""));
    let (one, two, three) = (id(&first), id(&second), id(&third));

    // What is changed, what is found, and which run or entry is named.
    for (number, (sql, kind, named)) in [
        // A failure that looks like a success.
        (format!("UPDATE details SET outcome = replace(outcome, '\"exit_code\":3', '\"exit_code\":0') WHERE run = {two}"), "run_changed", &*second),
        (format!("UPDATE details SET opening = replace(opening, 'hello', 'jello') WHERE run = {one}"), "run_changed", &*first),
        (format!("UPDATE details SET output = x'' WHERE run = {one}"), "run_changed", &*first),
        (format!("UPDATE details SET log = replace(log, '6', '7') WHERE run = {one}"), "run_changed", &*first),
        (format!("UPDATE runs SET started = started - 1000000 WHERE id = {two}"), "run_changed", &*second),
        (format!("UPDATE runs SET duration = 1 WHERE id = {two}"), "run_changed", &*second),
        (format!("DELETE FROM tags WHERE run = {one}"), "run_changed", &*first),
        ("UPDATE tags SET value = 'x'".to_owned(), "run_changed", &*first),
        (format!("DELETE FROM contents WHERE run = {two}"), "run_changed", &*second),
        ("UPDATE facets SET status = 'success' WHERE status = 'failure'".to_owned(), "run_changed", &*second),
        ("UPDATE commands SET text = 'rm -rf' WHERE text LIKE '%three%'".to_owned(), "run_changed", &*third),
        (format!("DELETE FROM runs WHERE id = {two}"), "run_gone", &*second),
        (format!("UPDATE runs SET id = x'01{}' WHERE id = {two}", "00".repeat(15)), "run_gone", &*second),
        (format!("INSERT INTO runs SELECT x'01{}', facet, command, started, duration, parent, artifacts, output_bytes, stored_bytes FROM runs WHERE id = {three}", "00".repeat(15)), "run_unaccounted", "01000000-0000-0000-0000-000000000000"),
        ("UPDATE audit SET at = at + 1 WHERE seq = 2".to_owned(), "entry_changed", "2"),
        ("UPDATE audit SET event = 'run.removed' WHERE seq = 2".to_owned(), "entry_changed", "2"),
        ("UPDATE audit SET subject = 'nobody' WHERE seq = 1".to_owned(), "entry_changed", "1"),
        ("DELETE FROM audit WHERE seq = 2".to_owned(), "entries_missing", "2"),
        ("DELETE FROM audit WHERE seq = 1".to_owned(), "entries_missing", "1"),
        ("DELETE FROM audit WHERE seq = 3".to_owned(), "head_not_in_chain", "3"),
        ("DELETE FROM audit WHERE seq = 3".to_owned(), "run_unaccounted", &*third),
        ("DELETE FROM audit".to_owned(), "head_not_in_chain", "3"),
        ("UPDATE audit SET seq = 9 WHERE seq = 1; UPDATE audit SET seq = 1 WHERE seq = 2; UPDATE audit SET seq = 2 WHERE seq = 9".to_owned(), "entry_misplaced", "2"),
        ("UPDATE audit SET hash = x'00' WHERE seq = 2".to_owned(), "entry_unreadable", "2"),
        (format!("DELETE FROM runs WHERE id = {two}; DELETE FROM audit WHERE seq = 2; UPDATE audit SET seq = 2 WHERE seq = 3"), "entry_misplaced", "2"),
    ]
    .into_iter()
    .enumerate()
    {
        let dir = copy(&host, &format!("case-{number}"));
        tamper(&dir, &format!("PRAGMA foreign_keys = OFF; {OPEN} {sql}"));
        let found = findings(&host, &dir);
        let fits = |finding: &Value| {
            let place = finding.get("run").or(finding.get("seq")).or(finding.get("from"));
            let place = place.or(finding.pointer("/head/seq"));
            let place = place.map(|place| place.as_str().map_or(place.to_string(), str::to_owned));
            finding["kind"] == kind && place.as_deref() == Some(named)
        };
        assert!(found.iter().any(fits), "{sql}: {kind} of {named} is not in {found:#?}");
        let words = host.run(["--data-dir", &dir.display().to_string(), "audit", "verify"]);
        assert!(words.out().contains(named), "{words:#?}");
    }
}

#[test]
fn the_head_is_watched_too_and_what_was_found_stays_found() {
    let host = host!();
    ran(&host, &[], "true");
    ran(&host, &[], "true");
    host.run(["audit", "verify"]).assert_success();
    let kinds = |dir: &Path| each(&findings(&host, dir), "kind");
    let gone = copy(&host, "gone");
    std::fs::remove_file(gone.join("audit-head")).unwrap();
    assert_eq!(kinds(&gone), ["head_missing"]);
    let garbage = copy(&host, "garbage");
    std::fs::write(garbage.join("audit-head"), "\u{1b}[2Jgarbage").unwrap();
    assert_eq!(kinds(&garbage), ["head_unreadable"]);

    let cut = copy(&host, "cut");
    tamper(
        &cut,
        &format!(
            "{OPEN} DELETE FROM audit WHERE seq = 2; DELETE FROM runs WHERE id = (SELECT max(id) FROM runs)"
        ),
    );
    assert_eq!(kinds(&cut), ["head_not_in_chain"]);
    // Nothing that is recorded afterwards covers it up.
    let args = [
        "--data-dir",
        &cut.display().to_string(),
        "run",
        "--",
        "true",
    ];
    for _ in 0..2 {
        host.run(args).assert_success();
    }
    let list = host.run([
        "--data-dir",
        &cut.display().to_string(),
        "runs",
        "list",
        "--count",
    ]);
    assert_eq!(list.out(), "3\n");
    assert_eq!(kinds(&cut), ["head_not_in_chain"]);
}

#[test]
fn honest_tools_are_kept_from_changing_what_was_written() {
    let host = host!();
    ran(&host, &["--tag", "a=b"], "true");
    host.run(["audit", "verify"]).assert_success();
    let database = host.history(Way::Root).join("history.db");
    let connection = rusqlite::Connection::open(database).unwrap();
    for sql in [
        "UPDATE runs SET duration = 1",
        "UPDATE details SET outcome = '{}'",
        "UPDATE tags SET value = 'c'",
        "UPDATE facets SET status = 'success'",
        "UPDATE commands SET text = 'x'",
        "UPDATE audit SET at = 1",
        "DELETE FROM audit",
    ] {
        let refused = connection.execute_batch(sql).unwrap_err().to_string();
        assert!(refused.contains("never"), "{sql}: {refused}");
    }
    drop(connection);
    host.run(["audit", "verify"]).assert_success();
}

#[test]
fn entries_are_listed_newest_first_in_pages() {
    let host = host!();
    let ids: Vec<String> = (0..5).map(|_| ran(&host, &[], "true")).collect();
    host.run(["runs", "prune", "--run", "latest"])
        .assert_success();
    let all = host.run(["audit", "list", "--json"]).told_list("entries");
    let events: Vec<(String, String)> = all
        .iter()
        .map(|entry| (text(&entry["event"]), text(&entry["subject"])))
        .collect();
    let mut expected: Vec<(String, String)> = ids
        .iter()
        .map(|id| ("run.ended".to_owned(), id.clone()))
        .collect();
    expected.push(("run.removed".to_owned(), ids[4].clone()));
    expected.reverse();
    assert_eq!(events, expected);
    for (newer, older) in all.iter().zip(all.iter().skip(1)) {
        assert_eq!(newer["prev"], older["hash"]);
    }
    let page = host.run(["audit", "list", "--json", "--limit", "2", "--before", "4"]);
    let numbers: Vec<Value> = page
        .told_list("entries")
        .iter()
        .map(|e| e["seq"].clone())
        .collect();
    assert_eq!(numbers, [3, 2]);
    let words = host.run(["audit", "list", "--limit", "1"]).out();
    assert!(
        words.contains("run.removed") && words.contains(&ids[4]),
        "{words}"
    );
    let report = told(&host, &["audit", "verify", "--json"]);
    assert_eq!(report["report"]["entries"], 6);
    assert_eq!(report["report"]["runs"], 4);
    assert_eq!(report["report"]["last"]["hash"], all[0]["hash"]);
}
