//! Manners on terminals of every kind, and where there is none.

use cofferdam_testkit::{Finished, Host, Need, Shown, Way, host};

/// Something that takes longer than anybody waits without a sign.
const SLOW: [&str; 7] = ["run", "--json", "--no-history", "--", "sleep", "2", "x"];

fn payload(host: &Host) -> String {
    let draft = r#"{"contract_id": "C-1", "scope": "a test", "task": {"kind": "command", "argv": ["sleep", "2"]}}"#;
    let file = host.dir().join("payload.json");
    let sealed = host.launch(["seal", "-"]).stdin(draft).finish();
    std::fs::write(&file, sealed.stdout).unwrap();
    file.to_str().unwrap().to_owned()
}

fn cases(host: &Host) -> String {
    let dir = host.workspace(Way::all()[0]);
    std::fs::create_dir(dir.join("slow")).unwrap();
    std::fs::write(dir.join("slow/command"), "sleep 2\n").unwrap();
    dir.to_str().unwrap().to_owned()
}

#[test]
fn whoever_looks_at_a_terminal_sees_that_something_goes_on() {
    let host = host!(Need::Python);
    let (payload, cases) = (payload(&host), cases(&host));
    let long: [(&[&str], &str); 3] = [
        (&SLOW[..6], "running"),
        (
            &["execute", &payload, "--no-history"],
            "running the payload",
        ),
        (&["golden", "bless", &cases], "running the cases"),
    ];
    for (args, words) in long {
        let shown = host.terminal(args).columns(40).show();
        let drawn = shown.drawn();
        assert!(
            drawn.iter().any(|line| line.contains(words)),
            "{args:?}: {shown:#?}"
        );
        for line in drawn {
            let text = plain(line);
            assert!(text.chars().count() < 40, "{args:?}: {text:?}");
        }
        // It goes before the result comes.
        let (_, after) = shown.text.rsplit_once("\r\u{1b}[K").unwrap();
        assert!(!after.contains(words), "{args:?}: {after:?}");
        // Nothing is drawn where it could not be taken back, nor where nobody looks.
        let dumb = host.terminal(args).env("TERM", "dumb").show();
        assert!(!dumb.text.contains('\u{1b}'), "{args:?}: {dumb:#?}");
        let piped = host.run(args);
        assert!(
            !both(&piped).contains('\u{1b}') && !both(&piped).contains('\r'),
            "{args:?}: {piped:#?}"
        );
    }
}

#[test]
fn colour_is_for_terminals_and_for_nobody_who_wants_none() {
    let host = host!(Need::Python);
    host.run(["run", "--", "true"]);
    host.run(["run", "--", "false"]);
    let cases = cases(&host);
    let coloured: [&[&str]; 4] = [
        &["doctor"],
        &["runs", "list"],
        &["runs", "diff", "latest~1", "latest"],
        &["golden", "run", &cases],
    ];
    for args in coloured {
        let shown = host.terminal(args).show();
        assert!(shown.is_coloured(), "{args:?}: {shown:#?}");
        for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            let shown = host.terminal(args).env(name, value).show();
            assert!(!shown.is_coloured(), "{name} {args:?}: {shown:#?}");
        }
        let piped = host.run(args);
        assert!(!both(&piped).contains('\u{1b}'), "{args:?}: {piped:#?}");
    }
    let asked = host.run(["runs", "list", "--color", "always"]);
    assert!(asked.out().contains("\u{1b}["), "{asked:#?}");
}

#[test]
fn a_narrow_terminal_gets_narrow_tables_and_narrow_help() {
    let host = host!(Need::Python);
    let long = "a-rather-long-argument-that-no-narrow-terminal-has-room-for-on-one-line";
    host.run(["run", "--", "true", long]);
    let narrow: [&[&str]; 2] = [&["runs", "list"], &["runs", "--help"]];
    for args in narrow {
        let shown = host.terminal(args).columns(40).show();
        assert_eq!(shown.code, 0, "{args:?}: {shown:#?}");
        for line in shown.lines() {
            let text = plain(&line);
            // How it is called is one line, whatever room there is.
            let fits = text.chars().count() <= 40 || text.starts_with("Usage: ");
            assert!(fits, "{args:?}: {text:?}");
        }
    }
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let host = host!();
    host.run(["run", "--", "seq", "100000"]);
    for line in [
        "\"$@\" runs logs latest | head -n 1",
        "\"$@\" explain | head -n 1",
        "\"$@\" explain --json | head -n 1",
        "\"$@\" run --help | head -n 1",
        "\"$@\" run --pure --output-limit 4m -- seq 200000 | head -n 1",
        "\"$@\" run -- seq 200000 | head -n 1",
        "\"$@\" completions bash | head -n 1",
        "\"$@\" man run | head -n 1",
    ] {
        let done = host.launch::<&str>([]).from_shell(line).finish();
        let said = done.err();
        assert!(
            !said.contains("panicked") && !said.to_lowercase().contains("broken pipe"),
            "{line}: {done:#?}"
        );
        assert!(said.lines().count() <= 1, "{line}: {done:#?}");
        assert!(!done.stdout.is_empty(), "{line}: {done:#?}");
    }
}

#[test]
fn ctrl_c_ends_what_is_under_way_and_leaves_nothing() {
    let host = host!(Need::Python);
    let way = Way::all()[0];
    let dir = host.workspace(way);
    for (name, text) in [
        ("setup.cfg", ""),
        (
            "main.py",
            "import time\nprint('begun', flush=True)\ntime.sleep(600)\n",
        ),
        ("command", "sleep 600\n"),
    ] {
        std::fs::write(dir.join(name), text).unwrap();
        host.give(&dir.join(name), way);
    }
    let cases = host.workspace(way);
    std::fs::create_dir(cases.join("long")).unwrap();
    std::fs::write(cases.join("long/command"), "sleep 600\n").unwrap();
    let (dir, cases) = (dir.to_str().unwrap(), cases.to_str().unwrap());
    let cache = host.workspace(way);
    let cache = cache.to_str().unwrap();
    let under_way: [(&[&str], &str); 5] = [
        (
            &["run", "--", "sh", "-c", "echo begun; exec sleep 600"],
            "begun",
        ),
        (&["run", "--json", "--", "sleep", "600"], "running"),
        (&["run", "--pure", "--", "sleep", "600"], "running"),
        (&["start", dir, "--cache-dir", cache], "begun"),
        (&["golden", "run", cases], "running the cases"),
    ];
    for (args, seen) in under_way {
        let shown = host.terminal(args).interrupt_after(seen).show();
        assert_eq!(shown.code, 130, "{args:?}: {shown:#?}");
        let last = shown.lines().pop().unwrap_or_default();
        assert!(!last.contains("panicked"), "{args:?}: {shown:#?}");
    }
    host.assert_clean();
}

fn both(done: &Finished) -> String {
    let (out, err) = (&done.stdout, &done.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

/// Without what colours it.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        text.push_str(before);
        rest = after
            .split_once(|c: char| c.is_ascii_alphabetic())
            .map_or("", |(_, rest)| rest);
    }
    text + rest
}

#[test]
fn what_is_drawn_is_told_apart_from_what_stays() {
    let shown = Shown {
        text: "\r| a\u{1b}[K\r/ b\u{1b}[K\r\u{1b}[Kdone\r\n".to_owned(),
        code: 0,
    };
    assert_eq!(shown.drawn(), ["| a", "/ b"]);
    assert_eq!(shown.lines(), ["done"]);
    assert_eq!(plain("a\u{1b}[31mb\u{1b}[0mc"), "abc");
}
