//! Values of flags that are no limits, and flags that do not exist.

use cofferdam_testkit::host;

/// Refused by the parser of the command line, which has a style of its own: an error that names the flag, and our exit code.
#[track_caller]
fn assert_misspelt(args: &[&str], names: &str) {
    let host = host!();
    let run = host.run([&["run"], args, &["--", "true"]].concat());
    assert_eq!(
        (run.code(), run.stdout.len()),
        (125, 0),
        "{args:?}: {run:#?}"
    );
    let text = run.err();
    assert!(
        text.contains(names),
        "{args:?} does not name {names}: {run:#?}"
    );
    assert!(!text.contains("panicked"), "{run:#?}");
    let errors = text
        .lines()
        .filter(|line| line.starts_with("error: ") || line.starts_with("cofferdam: "))
        .count();
    assert_eq!(errors, 1, "exactly one error: {run:#?}");
}

#[test]
fn absurd_limits_are_refused() {
    for flag in [
        "--timeout",
        "--cpu-time",
        "--memory",
        "--pids",
        "--disk",
        "--output-limit",
        "--open-files",
        "--cpus",
    ] {
        for value in [
            "-1",
            "nan",
            "NaN",
            "inf",
            "1e400",
            "99999999999999999999999999",
            "0x10",
            "",
            " ",
            "1 2",
            "1,5",
            "١",
            "18446744073709551616",
            "-0",
            "--",
            "5 parsecs",
        ] {
            let joined = format!("{flag}={value}");
            assert_misspelt(
                &[&joined],
                flag.trim_start_matches('-')
                    .split('=')
                    .next()
                    .unwrap_or_default(),
            );
        }
    }
}

#[test]
fn limits_out_of_range_are_refused_and_named() {
    let host = host!();
    for (flag, value, name) in [
        ("--timeout", "0s", "wall_time"),
        ("--timeout", "1us", "wall_time"),
        ("--timeout", "100000d", "wall_time"),
        ("--cpu-time", "0s", "cpu_time"),
        ("--memory", "0", "memory"),
        ("--memory", "1023k", "memory"),
        ("--memory", "9000000t", "memory"),
        ("--pids", "0", "processes"),
        ("--pids", "99999999", "processes"),
        ("--disk", "0", "disk"),
        ("--disk", "1k", "disk"),
        ("--output-limit", "0", "output"),
        ("--open-files", "0", "open_files"),
        ("--open-files", "7", "open_files"),
        ("--open-files", "99999999", "open_files"),
        ("--cpus", "0", "cpus"),
        ("--cpus", "0.001", "cpus"),
        ("--cpus", "100000", "cpus"),
    ] {
        let run = host.run(["run", flag, value, "--", "true"]);
        assert_eq!(run.code(), 125, "{flag} {value}: {run:#?}");
        let text = run.err();
        assert!(
            text.contains(name) || text.contains(flag),
            "{flag} {value}: {run:#?}"
        );
        assert!(!text.contains("panicked"), "{run:#?}");
    }
}

#[test]
fn the_ends_of_every_range_work() {
    let host = host!();
    for (flag, value) in [
        ("--timeout", "30d"),
        ("--cpu-time", "1d"),
        ("--memory", "1024t"),
        ("--pids", "4194304"),
        ("--disk", "64k"),
        ("--disk", "1024t"),
        ("--output-limit", "1024t"),
        ("--open-files", "8"),
        ("--open-files", "1048576"),
        ("--cpus", "4096"),
        ("--timeout", "unlimited"),
        ("--cpu-time", "unlimited"),
        ("--memory", "unlimited"),
        ("--pids", "unlimited"),
        ("--disk", "unlimited"),
        ("--output-limit", "unlimited"),
        ("--open-files", "unlimited"),
        ("--cpus", "unlimited"),
    ] {
        for way in cofferdam_testkit::Way::all() {
            let run = host
                .launch(["run", flag, value, "--", "true"])
                .way(way)
                .json()
                .finish();
            assert_eq!(
                (run.code(), run.ending()),
                (0, "exited"),
                "{way:?} {flag} {value}: {run:#?}"
            );
        }
    }
}

#[test]
fn no_limit_at_all_is_reported_as_such() {
    let host = host!();
    let flags = [
        "--timeout",
        "--cpu-time",
        "--memory",
        "--pids",
        "--disk",
        "--output-limit",
        "--open-files",
        "--cpus",
    ];
    for way in cofferdam_testkit::Way::all() {
        let mut args = vec!["run"];
        for flag in flags {
            args.extend([flag, "unlimited"]);
        }
        args.extend(["--", "true"]);
        let run = host.launch(args).way(way).json().finish();
        run.assert_success();
        let held = run.record()["enforced_by"].as_object().unwrap();
        assert!(
            held.values().all(|by| by == "unlimited") && held.len() == 9,
            "{way:?}: {run:#?}"
        );
    }
}

#[test]
fn unknown_names_are_refused() {
    assert_misspelt(&["--waive", "memroy"], "memroy");
    assert_misspelt(&["--backend", "quantum"], "quantum");
    assert_misspelt(&["--on-output-limit", "explode"], "explode");
    assert_misspelt(&["--capture", "lots"], "lots");
    assert_misspelt(&["--no-such-flag"], "--no-such-flag");
    assert_misspelt(&["--timeout", "1s", "--timeout", "2s"], "--timeout");
    assert_misspelt(&["--config", "/no/such/config"], "/no/such/config");
}

#[test]
fn a_command_is_required() {
    let host = host!();
    for args in [
        &["run"][..],
        &["run", "--"],
        &["run", "true"],
        &[],
        &["no-such-verb"],
    ] {
        let run = host.run(args);
        assert_eq!(
            (run.code(), run.stdout.len()),
            (125, 0),
            "{args:?}: {run:#?}"
        );
        assert!(!run.stderr.is_empty());
    }
}

/// Every failure of ours is written in one form, whoever found it: scripts look for the code at the end of the line.
#[test]
fn usage_errors_have_the_form_of_all_our_errors() {
    let host = host!();
    for args in [
        &["run", "--timeout", "nan", "--", "true"][..],
        &["run", "--no-such-flag", "--", "true"],
        &["no-such-verb"],
        &["run", "--root", "", "--", "true"],
    ] {
        let run = host.run(args);
        assert_eq!(run.code(), 125);
        let first = run.err().lines().next().unwrap_or_default().to_owned();
        assert!(
            first.starts_with("cofferdam: ") && first.ends_with(" [input.invalid]"),
            "{args:?}: {run:#?}"
        );
    }
}
