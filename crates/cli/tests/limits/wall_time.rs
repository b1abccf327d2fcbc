//! Wall time: neither early nor late, whatever the program does meanwhile.

use std::time::Duration;

use cofferdam_testkit::{Host, Way, host};

const LIMIT: Duration = Duration::from_millis(300);
/// As promised.
const SLACK: Duration = Duration::from_millis(100);
const ATTEMPTS: usize = 60;
const DETAIL: &str = "stopped: wall time limit of 300 ms reached; raise it with --timeout";
/// Where something has to be written before.
const PATIENT: &str = "stopped: wall time limit of 5 s reached; raise it with --timeout";

/// Never early; and, at the best of some attempts, not late by more than the slack plus what a run costs anyway. A machine that does something else meanwhile is late with all of it.
#[track_caller]
fn assert_accurate(host: &Host, way: Way, script: &str) {
    let noise = (0..3)
        .map(|_| host.launch(["run", "--", "true"]).way(way).finish().wall)
        .min()
        .unwrap_or_default();
    let mut best = Duration::MAX;
    for _ in 0..ATTEMPTS {
        if best <= LIMIT + noise + SLACK {
            return;
        }
        let run = host
            .launch([
                "run",
                "--timeout",
                "300ms",
                "--output-limit",
                "unlimited",
                "--",
                "sh",
                "-c",
                script,
            ])
            .way(way)
            .json()
            .finish();
        run.assert_stopped("wall_time", 124, DETAIL);
        assert_eq!(run.enforced_by("wall_time"), "supervisor");
        assert!(
            run.wall >= LIMIT && run.usage("wall_ms") >= 300.0,
            "early: {run:#?}"
        );
        best = best.min(run.wall);
    }
    assert!(
        best <= LIMIT + noise + SLACK,
        "{way:?}: {best:?} for a limit of {LIMIT:?}; a run that does nothing takes {noise:?}"
    );
}

#[test]
fn a_sleeper_is_stopped_at_its_deadline_accurate() {
    let host = host!();
    for way in Way::all() {
        assert_accurate(&host, way, "sleep 60");
    }
}

#[test]
fn a_busy_loop_is_stopped_at_its_deadline_accurate() {
    let host = host!();
    for way in Way::all() {
        assert_accurate(&host, way, "while :; do :; done");
    }
}

#[test]
fn a_flood_of_output_does_not_delay_the_deadline_accurate() {
    let host = host!();
    for way in Way::all() {
        assert_accurate(&host, way, "exec yes");
    }
}

#[test]
fn a_flood_of_refused_calls_does_not_delay_the_deadline_accurate() {
    let host = host!(cofferdam_testkit::Need::Python);
    let script =
        "exec python3 -c 'import ctypes\nc = ctypes.CDLL(None)\nwhile True: c.unshare(0x10000000)'";
    assert_accurate(&host, Way::all()[0], script);
}

#[test]
fn output_before_the_deadline_survives() {
    let host = host!();
    for way in Way::all() {
        let script = "echo first; echo second >&2; printf unfinished; sleep 60";
        let run = host
            .launch(["run", "--timeout", "5s", "--", "sh", "-c", script])
            .way(way)
            .json()
            .finish();
        run.assert_stopped("wall_time", 124, PATIENT);
        assert_eq!(
            (run.out().as_str(), run.err().as_str()),
            ("first\nunfinished", "second\n"),
            "{way:?}"
        );
    }
}

#[test]
fn the_stop_is_said_in_one_line_after_the_streamed_output() {
    let host = host!();
    let run = host.run([
        "run",
        "--timeout",
        "5s",
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; sleep 60",
    ]);
    assert_eq!(run.code(), 124);
    assert_eq!(run.out(), "out\n");
    assert_eq!(run.err(), format!("err\ncofferdam: {PATIENT}\n"));
}

#[test]
fn the_shortest_deadline_holds() {
    let host = host!();
    for way in Way::all() {
        let run = host
            .launch(["run", "--timeout", "1ms", "--", "sleep", "60"])
            .way(way)
            .json()
            .finish();
        run.assert_stopped(
            "wall_time",
            124,
            "stopped: wall time limit of 1 ms reached; raise it with --timeout",
        );
    }
}

#[test]
fn a_stopped_process_is_still_stopped_by_the_deadline() {
    let host = host!();
    for way in Way::all() {
        let run = host
            .launch([
                "run",
                "--timeout",
                "300ms",
                "--",
                "sh",
                "-c",
                "kill -STOP $$",
            ])
            .way(way)
            .json()
            .finish();
        run.assert_stopped("wall_time", 124, DETAIL);
    }
}
