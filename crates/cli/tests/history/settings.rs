//! The section `history` of the configuration, and the variable that switches it off.

use cofferdam_testkit::{Host, Way, host};

use crate::{configuration, ran, runs, told};

/// A run whose log is kept as the configuration says: the log, and what was said about it.
#[track_caller]
fn kept(host: &Host, yaml: &str, script: &str) -> (String, String) {
    let config = configuration(host, &format!("history:\n{yaml}"));
    ran(host, &["--config", &config], script);
    let log = host.run(["--config", &config, "runs", "logs", "latest", "--stdout"]);
    log.assert_success();
    (log.out(), log.err())
}

#[test]
fn output_is_kept_as_far_as_the_configuration_says() {
    let host = host!();
    let script = "seq 1 500; echo ERROR: it broke; seq 501 1000";
    let (log, said) = kept(&host, "  stdout: 300\n  truncation: head\n", script);
    assert!(log.starts_with("1\n2\n3\n") && log.len() <= 300, "{log}");
    assert!(log.ends_with(" bytes removed]\n"), "{log}");
    assert!(said.contains("of stdout were not kept"), "{said}");
    let (log, _) = kept(&host, "  stdout: 300\n  truncation: tail\n", script);
    assert!(log.ends_with("999\n1000\n") && log.len() <= 300, "{log}");
    assert!(log.starts_with("[TRUNCATED: "), "{log}");
    let (log, _) = kept(&host, "  stdout: 300\n  truncation: smart\n", script);
    assert!(
        log.starts_with("1\n") && log.ends_with("1000\n") && log.len() <= 300,
        "{log}"
    );
    assert!(log.contains("\nERROR: it broke\n"), "{log}");
    let (log, said) = kept(&host, "  stdout: 300\n  truncation: none\n", script);
    assert_eq!((log.lines().count(), said.as_str()), (1001, ""));
    let (log, said) = kept(&host, "  stdout: unlimited\n", "seq 300000");
    assert_eq!((log.lines().count(), said.as_str()), (300_000, ""));
    let (log, said) = kept(&host, "  stdout: 1\n", "echo é");
    assert_eq!(log, "");
    assert!(
        said.contains("nothing of this run's output is kept"),
        "{said}"
    );
    // What was removed is told with the run, and each stream has its own bound.
    let config = configuration(&host, "history:\n  stderr: 300\n  truncation: head\n");
    ran(&host, &["--config", &config], "seq 1000; seq 1000 >&2");
    let shown = told(
        &host,
        &["--config", &config, "runs", "show", "latest", "--json"],
    );
    let (out, err) = (&shown["log"]["stdout"], &shown["log"]["stderr"]);
    assert_eq!(
        (out["bytes"].as_u64(), out["removed"].as_u64()),
        (Some(3893), Some(0))
    );
    assert!(
        err["bytes"].as_u64() <= Some(300) && err["removed"].as_u64() > Some(3500),
        "{err}"
    );
    assert_eq!(shown["stderr"]["bytes"], 3893);
    let page = host.run(["runs", "show", "latest"]).out();
    assert!(page.contains(" cut out"), "{page}");
}

#[test]
fn patterns_of_the_users_own_are_taken_out_too() {
    let host = host!();
    let yaml = "  redact: ['corp-[0-9]{6}', 'Zebra']\n";
    let script = "echo id corp-123456 and corp-12; echo a Zebra >&2; printf corp-; sleep 0.05; echo 654321; echo AKIAIOSFODNN7EXAMPLE";
    let (log, _) = kept(&host, yaml, script);
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[0], "id [REDACTED] and corp-12");
    // Torn between two writes, and one of the built-in patterns.
    assert_eq!(lines[1], "[REDACTED]");
    assert!(
        lines[2].contains("[REDACTED]") && !lines[2].contains("IOSFODNN7"),
        "{log}"
    );
    let stderr = host.run(["runs", "logs", "latest", "--stderr"]).out();
    assert_eq!(stderr, "a [REDACTED]\n");
    let shown = told(&host, &["runs", "show", "latest", "--json"]);
    assert!(shown["redactions"].as_u64() >= Some(4), "{shown}");
    assert!(!shown.to_string().contains("123456"), "{shown}");
    let config = configuration(&host, "history:\n  redact: ['(unclosed']\n");
    let bad = host.run(["--config", &config, "run", "--", "true"]);
    bad.assert_refused(125, "config.invalid");
    assert!(bad.err().contains("(unclosed"), "{bad:#?}");
}

#[test]
fn history_is_switched_off_and_on_again() {
    let host = host!();
    let off = configuration(&host, "history:\n  enabled: false\n");
    let run = |config: Option<&str>, variable: Option<&str>| {
        let mut args: Vec<&str> = Vec::new();
        args.extend(config.into_iter().flat_map(|config| ["--config", config]));
        args.extend(["run", "--", "true"]);
        let mut launch = host.launch(args);
        if let Some(value) = variable {
            launch = launch.env("COFFERDAM_HISTORY", value);
        }
        launch.finish()
    };
    run(Some(&off), None).assert_success();
    run(None, Some("off")).assert_success();
    run(None, Some("0")).assert_success();
    assert_eq!(runs(&host, Way::Root).len(), 0);
    // The variable is nearer than the file.
    run(Some(&off), Some("on")).assert_success();
    run(None, None).assert_success();
    assert_eq!(runs(&host, Way::Root).len(), 2);
    let bad = run(None, Some("maybe"));
    bad.assert_refused(125, "config.invalid");
    assert!(bad.err().contains("COFFERDAM_HISTORY"), "{bad:#?}");
    // Whoever keeps nothing new can still look at what there is.
    let list = host
        .launch(["runs", "list", "--count"])
        .env("COFFERDAM_HISTORY", "off");
    assert_eq!(list.finish().out(), "2\n");
}

#[test]
fn what_is_wrong_in_the_section_is_said_with_its_place() {
    let host = host!();
    for (yaml, parts) in [
        ("history:\n  stdot: 1m\n", &["stdot", "stdout"][..]),
        ("histroy:\n  stdout: 1m\n", &["histroy", "history"]),
        (
            "history:\n  truncation: smrt\n",
            &["truncation", "smrt", "smart"],
        ),
        ("history:\n  max_age: soon\n", &["max_age", "soon"]),
        ("history:\n  max_runs: 0\n", &["max_runs", "unlimited"]),
        ("history:\n  enabled: perhaps\n", &["enabled", "perhaps"]),
        ("history:\n  artifact_size: [1]\n", &["artifact_size"]),
        ("history: 7\n", &["history"]),
    ] {
        let config = configuration(&host, yaml);
        for verb in [
            &["run", "--", "true"][..],
            &["runs", "list"],
            &["config", "show"],
        ] {
            let mut args = vec!["--config", config.as_str()];
            args.extend(verb);
            let refused = host.run(args);
            refused.assert_refused(125, "config.invalid");
            for part in parts {
                assert!(refused.err().contains(part), "{yaml}: {refused:#?}");
            }
        }
    }
    // Several at once are all told.
    let config = configuration(&host, "history:\n  stdot: 1m\n  max_age: soon\n");
    let both = host.run(["--config", &config, "runs", "list"]);
    assert_eq!(both.err().lines().count(), 2, "{both:#?}");
    assert_eq!(runs(&host, Way::Root).len(), 0);
}

#[test]
fn the_settings_in_force_are_shown_with_where_they_come_from() {
    let host = host!();
    let config = configuration(
        &host,
        "history:\n  stdout: 2m\n  max_age: 10d\n  redact: [Zebra]\n",
    );
    let shown = host
        .launch(["--config", &config, "config", "show"])
        .env("COFFERDAM_HISTORY", "off")
        .finish();
    shown.assert_success();
    let line = |name: &str| -> String {
        let text = shown.out();
        let mut lines = text.lines().filter(|line| line.starts_with(name));
        lines.next().unwrap_or_default().to_owned()
    };
    for (name, value, origin) in [
        ("history.enabled", "false", "COFFERDAM_HISTORY"),
        ("history.stdout", "2 MiB", "settings.yaml"),
        ("history.max_age ", "10 d", "settings.yaml"),
        ("history.redact", "Zebra", "settings.yaml"),
        ("history.truncation", "smart", "default"),
    ] {
        let line = line(name);
        assert!(
            line.contains(value) && line.contains(origin),
            "{name}: {line:?} in {shown:#?}"
        );
    }
}

#[test]
fn history_lies_where_the_nearest_word_says() {
    let host = host!();
    let (named, data, home) = (
        host.dir().join("named"),
        host.dir().join("data"),
        host.dir().join("home"),
    );
    let launch = |args: &[&str], variables: [&str; 3]| {
        let [own, data, home] = variables;
        host.launch(args)
            .env("COFFERDAM_DATA_DIR", own)
            .env("XDG_DATA_HOME", data)
            .env("HOME", home)
            .finish()
    };
    let [own, xdg, at_home] = [&named, &data, &home].map(|path| path.display().to_string());
    let run = ["run", "--", "true"];
    launch(&run, [&own, &xdg, &at_home]).assert_success();
    launch(&run, ["", &xdg, &at_home]).assert_success();
    launch(&run, ["", "", &at_home]).assert_success();
    // A relative one would be somewhere else in every directory.
    launch(&run, ["", "relative", &at_home]).assert_success();
    let flag = host.dir().join("flag").display().to_string();
    let by_flag = ["--data-dir", &flag, "run", "--", "true"];
    launch(&by_flag, [&own, &xdg, &at_home]).assert_success();
    let at_home = home.join(".local/share/cofferdam").display().to_string();
    let xdg = data.join("cofferdam").display().to_string();
    for (dir, count) in [
        (&flag, "1\n"),
        (&own, "1\n"),
        (&xdg, "1\n"),
        (&at_home, "2\n"),
    ] {
        let list = host.run(["--data-dir", dir, "runs", "list", "--count"]);
        assert_eq!(list.out(), count, "{dir}");
    }
    // Nowhere at all: the run is told, and reading is refused.
    let nowhere = launch(&run, ["", "", ""]);
    assert_eq!(nowhere.code(), 0);
    assert!(
        nowhere.err().contains("[history.unavailable]"),
        "{nowhere:#?}"
    );
    launch(&["runs", "list"], ["", "", ""]).assert_refused(125, "history.unavailable");
}
