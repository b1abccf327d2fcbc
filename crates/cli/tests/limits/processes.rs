//! Processes and threads: bombs are contained; a program that stays at the limit is left alone.

use cofferdam_testkit::hostile::Hostile;
use cofferdam_testkit::{Finished, Host, Need, Way, host};

const DETAIL: &str = "stopped: limit of 20 processes and threads reached; raise it with --pids";

fn multiply(host: &Host, way: Way, attack: &[&str], timeout: &str) -> Finished {
    let tree = Hostile::Tree.compile();
    let (mount, inside) = (tree.mount(), tree.inside());
    let mut args = vec![
        "run",
        "--pids",
        "20",
        "--timeout",
        timeout,
        "--mount",
        &mount,
        "--",
        &inside,
    ];
    args.extend(attack);
    let run = host.launch(args).way(way).json().finish();
    assert_eq!(
        run.enforced_by("processes"),
        way.group_or("rlimit"),
        "{way:?}"
    );
    assert!(run.usage("processes_peak") <= 20.0, "{way:?}: {run:#?}");
    run
}

/// With a group the kernel says that it refused a fork, and the run is stopped; without one the bomb stays at the limit until another limit ends it.
#[track_caller]
fn assert_contained(attack: &str) {
    let host = host!(Need::Gcc);
    for way in Way::all() {
        // Where the kernel tells of it, nobody waits for this.
        let timeout = if way.has_cgroups() { "60s" } else { "700ms" };
        let run = multiply(&host, way, &[attack], timeout);
        if way.has_cgroups() {
            run.assert_stopped("processes", 137, DETAIL);
        } else {
            assert!(
                matches!(run.ending(), "wall_time" | "processes"),
                "{way:?}: {run:#?}"
            );
        }
    }
}

#[test]
fn a_fork_bomb_is_contained() {
    assert_contained("fork");
}

#[test]
fn a_thread_bomb_is_contained() {
    assert_contained("thread");
}

#[test]
fn a_zombie_bomb_is_contained() {
    assert_contained("zombie");
}

#[test]
fn exactly_as_many_processes_as_allowed_can_live() {
    let host = host!(Need::Gcc);
    for way in Way::all() {
        let at_the_limit = multiply(&host, way, &["count", "19"], "60s");
        assert_eq!(
            (at_the_limit.code(), at_the_limit.out().as_str()),
            (0, "made 19\n"),
            "{way:?}"
        );
        let beyond = multiply(&host, way, &["count", "25"], "60s");
        assert_eq!(beyond.out(), "made 19\n", "{way:?}");
    }
}

#[test]
fn one_process_is_enough_for_a_program_that_needs_one() {
    let host = host!();
    for way in Way::all() {
        host.launch(["run", "--pids", "1", "--", "true"])
            .way(way)
            .json()
            .finish()
            .assert_success();
        let run = host
            .launch(["run", "--pids", "1", "--", "sh", "-c", "(true)& exit 5"])
            .way(way)
            .json()
            .finish();
        assert_ne!(
            run.code(),
            0,
            "{way:?}: a second process was granted: {run:#?}"
        );
    }
}

/// The limit of one run is not shared with another run of the same user.
#[test]
fn two_runs_do_not_count_each_others_processes() {
    let host = host!(Need::Gcc);
    let tree = Hostile::Tree.compile();
    for way in Way::all() {
        let args = [
            "run",
            "--pids",
            "20",
            "--timeout",
            "120s",
            "--mount",
            &tree.mount(),
            "--",
            &tree.inside(),
            "count_and_stay",
            "19",
        ];
        let mut first = host.launch(args).way(way).start();
        first.await_output("made 19");
        let mut second = host.launch(args).way(way).start();
        second.await_output("made 19");
        for run in [first, second] {
            run.signal(rustix::process::Signal::TERM);
            assert_eq!(run.finish().code(), 130);
        }
    }
}
