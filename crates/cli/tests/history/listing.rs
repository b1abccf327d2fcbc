//! `runs list`: which runs, in what order, in how many pages, and how a run is named.

use cofferdam_testkit::{Finished, Host, Way, host};

use crate::{each, on_terminal, ran, runs, text, told};

/// The tags `n` of the runs that a list with these flags shows, newest first.
#[track_caller]
fn found(host: &Host, flags: &[&str]) -> String {
    let mut args = vec!["runs", "list", "--json"];
    args.extend(flags);
    let listed = host.run(args);
    listed.assert_success();
    let names = listed.told_list("runs");
    names.iter().map(|run| text(&run["tags"]["n"])).collect()
}

#[test]
fn every_filter_finds_its_runs_and_no_other() {
    let host = host!();
    let dir = host.workspace(Way::Root);
    host.give(&dir, Way::User);
    let workspace = format!("{}:rw", dir.display());
    let a = ran(
        &host,
        &["--tag", "n=a", "--tag", "ci", "--tag", "branch=main"],
        "exit 0",
    );
    ran(&host, &["--tag", "n=b", "--tag", "branch=x"], "exit 3");
    ran(&host, &["--tag", "n=c", "--timeout", "8s"], "sleep 60");
    let flood = &["--tag", "n=d", "--output-limit", "1k"];
    ran(&host, flood, "yes");
    let files = &["--tag", "n=e", "--workspace", &workspace, "--parent", &a];
    ran(&host, files, "echo x > file");
    ran(&host, &["--tag", "n=f"], "kill -9 $$");
    let never = host.json(["run", "--tag", "n=g", "--", "/nowhere/program"]);
    assert_ne!(never.code(), 0);
    let middle = text(&runs(&host, Way::Root)[3]["started_at"]);

    for (flags, expected) in [
        (&[][..], "gfedcba"),
        (&["--limit", "2"], "gf"),
        (&["--status", "success"], "ea"),
        (&["--status", "failure"], "fb"),
        (&["--status", "timeout"], "c"),
        (&["--status", "wall-time"], "c"),
        (&["--status", "limit"], "d"),
        (&["--status", "output,never_started"], "gd"),
        (&["--status", "output", "--status", "success"], "eda"),
        (&["--status", "running"], ""),
        (&["--exit-code", "3"], "b"),
        (&["--exit-code", "0"], "ea"),
        (&["--command", "sh -c exit"], "ba"),
        (&["--command", "*sleep*"], "c"),
        (&["--command", "sh -c exit [0-2]"], "a"),
        (&["--command", "sh -c exit ?"], "ba"),
        (&["--command", "SH"], ""),
        (&["--tag", "branch"], "ba"),
        (&["--tag", "branch=main"], "a"),
        (&["--tag", "branch=x", "--tag", "ci"], ""),
        (&["--kind", "command"], "gfedcba"),
        (&["--kind", "payload"], ""),
        (&["--backend", "native"], "gfedcba"),
        (&["--backend", "elsewhere"], ""),
        (&["--parent", &a], "e"),
        (&["--longer-than", "7s"], "c"),
        (&["--shorter-than", "7s", "--status", "timeout"], ""),
        (&["--with-artifacts"], "e"),
        (&["--without-artifacts", "--status", "success"], "a"),
        (&["--since", "1h"], "gfedcba"),
        (&["--until", "1h"], ""),
        (&["--since", &middle], "gfed"),
        (&["--until", &middle], "cba"),
        (&["--since", "2001-01-01", "--until", "2001-01-02"], ""),
        (&["--before", "latest~3"], "cba"),
        (&["--before", &a], ""),
    ] {
        assert_eq!(found(&host, flags), expected, "{flags:?}");
        let mut count = vec!["runs", "list", "--count"];
        count.extend(flags);
        let count = host.run(count);
        count.assert_success();
        if !flags.contains(&"--limit") {
            assert_eq!(count.out(), format!("{}\n", expected.len()), "{flags:?}");
        }
    }
    let counted = told(&host, &["runs", "list", "--count", "--json", "--tag", "n"]);
    assert_eq!(counted["count"], 7);
}

#[test]
fn pages_stay_the_same_while_runs_come_in() {
    let host = host!();
    let mut made: Vec<String> = (0..7).map(|_| ran(&host, &[], "true")).collect();
    made.reverse();
    let mut seen = Vec::new();
    let mut before: Option<String> = None;
    loop {
        let mut args = vec!["runs", "list", "--json", "--limit", "3"];
        args.extend(before.iter().flat_map(|id| ["--before", id]));
        let page = told(&host, &args);
        let rows = page["runs"].as_array().unwrap().clone();
        seen.push(each(&rows, "run_id"));
        // What is new is newer than every page that is still to come.
        ran(&host, &[], "true");
        match page["next"].as_str() {
            Some(next) => before = Some(next.to_owned()),
            None => break,
        }
    }
    let sizes: Vec<usize> = seen.iter().map(Vec::len).collect();
    assert_eq!(sizes, [3, 3, 1]);
    assert_eq!(seen.concat(), made);
}

/// The run at which a page ended, and the run that started others, may be gone when they are asked about.
#[test]
fn pages_go_on_where_they_ended_even_when_that_run_is_gone() {
    let host = host!();
    let a = ran(&host, &[], "true");
    let b = ran(&host, &[], "true");
    let c = ran(&host, &["--parent", &b], "true");
    let named = ["runs", "prune", "--run", &b];
    host.run(named).assert_success();
    let listed = |flags: [&str; 2]| {
        let list = host.run(["runs", "list", "--json", flags[0], flags[1]]);
        each(&list.told_list("runs"), "run_id")
    };
    assert_eq!(listed(["--before", &b]), [a]);
    assert_eq!(listed(["--parent", &b]), [c]);
    host.run(["runs", "list", "--before", &b[..30]])
        .assert_refused(125, "history.not_found");
}

#[test]
fn a_run_is_named_by_any_unique_beginning_or_by_how_many_came_after_it() {
    let host = host!();
    let ids: Vec<String> = (0..4).map(|_| ran(&host, &[], "true")).collect();
    let listed = runs(&host, Way::Root);
    let shown = |asked: &str| host.run(["runs", "show", "--json", asked]);
    for (run, id) in listed.iter().zip(ids.iter().rev()) {
        let short = text(&run["short_id"]);
        let without_dashes = id.replace('-', "");
        let shouted = id.to_uppercase();
        for asked in [id, &short, &without_dashes, &shouted] {
            let found = shown(asked);
            found.assert_success();
            assert_eq!(found.told()["run_id"], **id, "{asked}");
        }
        // No shorter than it must be: it names this run and no other.
        assert!(id.starts_with(&short) && short.len() >= 13);
    }
    for (asked, id) in [
        ("latest", &ids[3]),
        ("latest~0", &ids[3]),
        ("latest~1", &ids[2]),
        ("latest~3", &ids[0]),
    ] {
        assert_eq!(shown(asked).told()["run_id"], **id, "{asked}");
    }
    let ambiguous = shown(&ids[0][..4]);
    ambiguous.assert_refused(125, "input.invalid");
    for id in &ids {
        assert!(ambiguous.err().contains(&id[..13]), "{ambiguous:#?}");
    }
    for asked in [
        "latest~4",
        "latest~",
        "latest~-1",
        "latest~99999999999999999999",
        "zz",
        "ffffffff",
        "",
        "019a8c3e--7f2b",
        "\u{1b}[2J",
    ] {
        shown(asked).assert_refused(125, "history.not_found");
    }
}

#[test]
fn an_empty_history_is_no_failure() {
    let host = host!();
    let list = host.run(["runs", "list"]);
    list.assert_success();
    assert_eq!(list.out(), "");
    assert!(list.err().contains("no runs yet"), "{list:#?}");
    let json = host.run(["runs", "list", "--json"]);
    assert!(json.told_list("runs").is_empty());
    assert!(json.told()["next"].is_null());
    assert_eq!(host.run(["runs", "list", "--count"]).out(), "0\n");
    assert_eq!(told(&host, &["runs", "stats", "--json"])["runs"], 0);
    host.run(["runs", "stats"]).assert_success();
    host.run(["audit", "verify"]).assert_success();
    let show = host.run(["runs", "show", "latest"]);
    show.assert_refused(125, "history.not_found");
    ran(&host, &[], "true");
    let none = host.run(["runs", "list", "--tag", "nobody"]);
    none.assert_success();
    assert!(none.err().contains("no runs match"), "{none:#?}");
    let wrong = host.run(["runs", "list", "--status", "sucess"]);
    wrong.assert_refused(125, "input.invalid");
    assert!(wrong.err().contains("success"), "{wrong:#?}");
}

/// As `| head` leaves us: the pipe is there, and nobody reads.
#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let host = host!();
    let dir = host.workspace(Way::Root);
    host.give(&dir, Way::User);
    let workspace = format!("{}:rw", dir.display());
    let script = "yes | head -n 100000; echo x > file; exit 1";
    ran(&host, &["--workspace", &workspace], script);
    let unread = |args: &[&str]| -> Finished {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        host.launch(args).stdout_to(writer).finish()
    };
    for args in [
        &["runs", "list"][..],
        &["runs", "list", "--json"],
        &["runs", "list", "--count"],
        &["runs", "show", "latest"],
        &["runs", "show", "latest", "--json"],
        &["runs", "logs", "latest"],
        &["runs", "logs", "latest", "--json"],
        &["runs", "logs", "latest", "--follow"],
        &["runs", "diff", "latest", "latest"],
        &["runs", "stats"],
        &["artifacts", "list", "latest"],
        &["artifacts", "cat", "latest", "file"],
        &["artifacts", "get", "latest", "file", "-o", "-"],
        &["audit", "list"],
        &["audit", "verify"],
    ] {
        let done = unread(args);
        assert_eq!(done.code(), 0, "{args:?}: {done:#?}");
        assert_eq!(done.err(), "", "{args:?}");
    }
    // And with a reader that takes a line.
    let first = host
        .launch(["runs", "logs", "latest"])
        .from_shell("\"$@\" | head -n 1")
        .finish();
    assert_eq!((first.out().as_str(), first.err().as_str()), ("y\n", ""));
}

#[test]
fn a_table_fits_its_terminal_and_is_whole_in_a_pipe() {
    let host = host!();
    let long = format!("true {}", "word ".repeat(60));
    ran(&host, &["--tag", "branch=main"], &long);
    ran(&host, &[], "printf '\u{1b}[2J\u{7}\n\u{202e}'");
    let piped = host.run(["runs", "list"]).out();
    let lines: Vec<&str> = piped.lines().map(str::trim_end).collect();
    assert_eq!(lines.len(), 3, "{piped}");
    assert!(lines[2].ends_with(long.trim_end()), "{piped}");
    assert!(lines[2].contains("branch=main"), "{piped}");
    assert!(!piped.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{piped}");

    let narrow = on_terminal(&host, &["runs", "list", "--color", "never"])
        .env("COLUMNS", "60")
        .finish()
        .out();
    let lines: Vec<&str> = narrow.lines().collect();
    assert_eq!(lines.len(), 3, "{narrow}");
    assert!(lines.iter().all(|line| line.chars().count() <= 60));
    assert!(!narrow.contains("TAGS") && narrow.contains("COMMAND"));
    let wide = on_terminal(&host, &["runs", "list", "--no-truncate"]).env("COLUMNS", "60");
    assert!(wide.finish().out().contains(long.trim_end()));
    let more = on_terminal(&host, &["runs", "list", "--limit", "1"]);
    let more = more.finish().out();
    let next = text(&runs(&host, Way::Root)[0]["run_id"]);
    assert!(more.contains(&format!("--before {next}")), "{more}");
}
