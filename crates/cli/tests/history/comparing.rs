//! `runs diff`: what makes two runs differ, what does not, and what scripts are told of it.

use cofferdam_testkit::{Finished, Host, Way, host};

use crate::{on_terminal, ran, told};

#[track_caller]
fn diff(host: &Host, flags: &[&str]) -> Finished {
    let mut args = vec!["runs", "diff", "latest~1", "latest"];
    args.extend(flags);
    host.run(args)
}

/// What differs, with the exit code that says so.
#[track_caller]
fn differences(host: &Host, flags: &[&str]) -> Vec<String> {
    let mut all = vec!["--json"];
    all.extend(flags);
    let done = diff(host, &all);
    let told = done.told();
    let found: Vec<String> = told["differences"]
        .as_array()
        .into_iter()
        .flatten()
        .map(crate::text)
        .collect();
    assert_eq!(told["same"], found.is_empty(), "{told}");
    assert_eq!(done.code(), i32::from(!found.is_empty()), "{told}");
    found
}

#[test]
fn what_counts_makes_runs_differ_and_nothing_else_does() {
    let host = host!();
    let same: [&str; 0] = [];
    let first = "echo a; echo b >&2; exit 4";
    // (options, script) of the second run, what differs from the first, and what is left of it with each of the -only options.
    for (options, script, expected, out, err, ending) in [
        (&[][..], first, &same[..], 0, 0, 0),
        // Another command, another duration, another tag, other limits.
        (
            &[],
            "sleep 0.05; printf 'a\\n'; echo b >&2; exit 4",
            &[],
            0,
            0,
            0,
        ),
        (&["--tag", "x", "--timeout", "9s"], first, &[], 0, 0, 0),
        // Values of variables are not kept, so they are not compared.
        (&["--env", "NAME=other"], first, &[], 0, 0, 0),
        (&[], "echo c; echo b >&2; exit 4", &["stdout"], 1, 0, 0),
        (&[], "echo a; echo c >&2; exit 4", &["stderr"], 0, 1, 0),
        (&[], "printf a; echo b >&2; exit 4", &["stdout"], 1, 0, 0),
        (&[], "echo a; echo b >&2; exit 5", &["ending"], 0, 0, 1),
        (&[], "echo a; echo b >&2; kill -9 $$", &["ending"], 0, 0, 1),
        (
            &["--timeout", "5s"],
            "echo a; echo b >&2; sleep 60",
            &["ending"],
            0,
            0,
            1,
        ),
        (&["--env", "MORE=x"], first, &["environment"], 0, 0, 0),
        (&[], "true", &["ending", "stdout", "stderr"], 1, 1, 1),
    ] {
        ran(&host, &["--env", "NAME=value"], first);
        let mut all = options.to_vec();
        if !options.contains(&"NAME=other") {
            all.extend(["--env", "NAME=value"]);
        }
        ran(&host, &all, script);
        assert_eq!(differences(&host, &[]), expected, "{options:?} {script}");
        for (flag, code) in [
            ("--stdout-only", out),
            ("--stderr-only", err),
            ("--exit-code-only", ending),
        ] {
            assert_eq!(diff(&host, &[flag]).code(), code, "{flag} {script}");
        }
    }
    let itself = host.run(["runs", "diff", "latest", "latest"]);
    assert_eq!(itself.code(), 0);
    assert!(itself.out().ends_with("\nthe same\n"), "{itself:#?}");
}

#[test]
fn trouble_is_not_a_difference() {
    let host = host!();
    let a = ran(&host, &[], "true");
    ran(&host, &[], "false");
    for pair in [["latest", "latest~9"], ["ffffffff", "latest"]] {
        let missing = host.run(["runs", "diff", pair[0], pair[1]]);
        missing.assert_refused(2, "history.not_found");
    }
    let ambiguous = host.run(["runs", "diff", &a[..4], "latest"]);
    ambiguous.assert_refused(2, "input.invalid");
    let two = ["runs", "diff", "latest", "latest", "--stdout-only"];
    let only = host.run([&two[..], &["--stderr-only"]].concat());
    only.assert_refused(125, "input.invalid");
    host.run(["runs", "diff", "latest"])
        .assert_refused(125, "input.invalid");
}

#[test]
fn artifacts_are_compared_by_their_contents() {
    let host = host!();
    for script in [
        "echo 1 > same; echo 1 > changed; echo 1 > gone; mkdir d; echo 1 > d/deep",
        "echo 1 > same; echo 2 > changed; echo 1 > new; mkdir d; echo 1 > d/deep",
    ] {
        let dir = host.workspace(Way::Root);
        host.give(&dir, Way::User);
        let workspace = format!("{}:rw", dir.display());
        ran(&host, &["--workspace", &workspace], script);
    }
    assert_eq!(differences(&host, &[]), ["artifacts"]);
    let told = diff(&host, &["--json"]).told();
    let found = &told["artifacts"];
    assert_eq!(found["added"], serde_json::json!(["new"]));
    assert_eq!(found["removed"], serde_json::json!(["gone"]));
    assert_eq!(found["changed"][0]["path"], "changed");
    assert_ne!(found["changed"][0]["a"], found["changed"][0]["b"]);
    assert_eq!(found["changed"].as_array().unwrap().len(), 1);
    let page = diff(&host, &[]).out();
    for line in ["  - gone", "  + new", "  ~ changed", "differ in artifacts"] {
        assert!(page.lines().any(|found| found == line), "{line}: {page}");
    }
    assert_eq!(diff(&host, &["--stdout-only"]).code(), 0);
}

#[test]
fn a_difference_is_shown_as_lines_with_their_context() {
    let host = host!();
    let a = ran(&host, &[], "seq 1 20");
    let b = ran(&host, &[], "seq 1 9; echo ten; seq 11 20; printf end");
    let page = diff(&host, &["--context", "1"]);
    assert_eq!(page.code(), 1);
    let expected = format!(
        "--- {a}/stdout\n+++ {b}/stdout\n@@ -9,3 +9,3 @@\n 9\n-10\n+ten\n 11\n@@ -20 +20,2 @@\n 20\n+end\n\\ No newline at end of output\n"
    );
    assert!(page.out().contains(&expected), "{page:#?}");
    assert!(page.out().contains("duration"), "{page:#?}");
    let told = diff(&host, &["--json", "--context", "0"]).told();
    assert_eq!(told["schema"], "cofferdam.diff/1");
    assert_eq!(told["a"]["run_id"], *a);
    assert_eq!(told["stdout"]["hunks"][0]["header"], "@@ -10 +10 @@");
    let line = &told["stdout"]["hunks"][0]["lines"][1];
    assert_eq!(
        (line["kind"].as_str(), line["text"].as_str()),
        (Some("+"), Some("ten"))
    );
    assert_eq!(told["stderr"]["same"], true);
    let figures: Vec<String> = crate::each(told["usage"].as_array().unwrap(), "name");
    assert!(
        figures.contains(&"duration".to_owned()) && figures.contains(&"memory_peak".to_owned())
    );
    let colour = on_terminal(&host, &["runs", "diff", "latest~1", "latest"]).finish();
    assert_eq!(colour.code(), 1);
    assert!(colour.out().contains("\u{1b}[32m+ten"), "{colour:#?}");
}

#[test]
fn what_is_not_text_or_not_kept_is_compared_and_said() {
    let host = host!();
    ran(&host, &[], "printf 'a\\0b'");
    ran(&host, &[], "printf 'a\\0c'");
    let page = diff(&host, &[]);
    assert_eq!(page.code(), 1);
    assert!(
        page.out().contains("stdout: differ, 3 B and 3 B (binary)"),
        "{page:#?}"
    );
    // Longer than what is kept: what is left is the same, and nobody is told that all of it is.
    ran(&host, &[], "yes | head -n 800000");
    ran(&host, &[], "yes | head -n 800000");
    let page = diff(&host, &[]);
    assert_eq!(page.code(), 0);
    assert!(
        page.out().contains("were not kept and are not compared"),
        "{page:#?}"
    );
    assert!(
        told(&host, &["runs", "diff", "latest", "latest", "--json"])["stdout"]["a_not_kept"]
            .as_u64()
            > Some(500_000)
    );
}
