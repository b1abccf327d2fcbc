//! The documented table of exit codes, and the line that goes with each.

use cofferdam_testkit::{Need, Way, host};

#[test]
fn every_ending_has_its_documented_exit_code_and_line() {
    let host = host!(Need::Python);
    let eat = "x = []\nwhile True: x.append(bytearray(1 << 20))";
    let fill = "f = open('/tmp/x', 'wb')\nwhile True: f.write(bytes(1 << 20))";
    let cases: [(&[&str], i32, &str); 9] = [
        (&["--", "sh", "-c", "exit 3"], 3, ""),
        (&["--", "sh", "-c", "kill -TERM $$"], 143, ""),
        (
            &["--timeout", "200ms", "--", "sleep", "9"],
            124,
            "cofferdam: stopped: wall time limit of 200 ms reached; raise it with --timeout\n",
        ),
        (
            &[
                "--cpu-time",
                "200ms",
                "--",
                "sh",
                "-c",
                "while :; do :; done",
            ],
            152,
            "cofferdam: stopped: CPU time limit of 200 ms used up; raise it with --cpu-time\n",
        ),
        (
            &["--memory", "32m", "--", "python3", "-c", eat],
            137,
            "cofferdam: stopped: memory limit of 32 MiB reached; raise it with --memory\n",
        ),
        (
            &["--output-limit", "1k", "--", "yes"],
            153,
            "cofferdam: stopped: output limit of 1 KiB reached while writing to stdout; raise it with --output-limit\n",
        ),
        (
            &["--disk", "1m", "--", "python3", "-c", fill],
            153,
            "cofferdam: stopped: disk limit of 1 MiB reached in the scratch space (/tmp, /dev/shm, home); raise it with --disk\n",
        ),
        (
            &["--", "no-such-program"],
            127,
            "cofferdam: `no-such-program` was not found inside the sandbox [program.not_found]\n",
        ),
        (
            &["--", "/usr"],
            126,
            "cofferdam: `/usr` cannot be executed: Permission denied (os error 13) [program.not_executable]\n",
        ),
    ];
    for way in Way::all() {
        for (args, code, line) in cases {
            let run = host.launch([&["run"], args].concat()).way(way).finish();
            assert_eq!(run.code(), code, "{way:?} {args:?}: {run:#?}");
            let said: String = run
                .err()
                .lines()
                .filter(|line| line.starts_with("cofferdam: "))
                .map(|line| format!("{line}\n"))
                .collect();
            assert_eq!(said, line, "{way:?} {args:?}");
        }
    }
    let bomb = host.run([
        "run",
        "--pids",
        "5",
        "--",
        "sh",
        "-c",
        "for i in 1 2 3 4 5 6 7 8; do sleep 9 & done; wait",
    ]);
    assert_eq!(bomb.code(), 137, "{bomb:#?}");
    assert!(
        bomb.err().ends_with(
            "cofferdam: stopped: limit of 5 processes and threads reached; raise it with --pids\n"
        ),
        "{bomb:#?}"
    );
}

#[test]
fn every_exit_code_of_a_program_passes_through() {
    let host = host!();
    for code in [0, 1, 2, 64, 100, 124, 125, 126, 127, 128, 137, 255] {
        let run = host.json(["run", "--", "sh", "-c", &format!("exit {code}")]);
        assert_eq!((run.code(), run.ending()), (code, "exited"));
        assert_eq!(run.record()["exit_code"], code);
    }
}

#[test]
fn every_signal_of_a_program_is_named() {
    let host = host!();
    for (number, name) in [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (6, "SIGABRT"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (15, "SIGTERM"),
    ] {
        let run = host.json(["run", "--", "sh", "-c", &format!("kill -{number} $$")]);
        assert_eq!(
            (run.code(), run.ending()),
            (128 + number, "signaled"),
            "{run:#?}"
        );
        assert_eq!(run.record()["signal"], name);
    }
}

#[test]
fn help_and_version_are_not_failures() {
    let host = host!();
    for args in [
        &["--help"][..],
        &["--version"],
        &["run", "--help"],
        &["help", "run"],
    ] {
        let run = host.run(args);
        assert_eq!((run.code(), run.stderr.len()), (0, 0), "{run:#?}");
        assert!(!run.stdout.is_empty());
    }
}
