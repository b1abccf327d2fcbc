//! Other processes: out of sight and out of reach, and none of the program's own outlives it.

use cofferdam_testkit::hostile::Hostile;
use cofferdam_testkit::{Need, Way, host};

#[test]
fn no_process_outside_can_be_signalled() {
    let host = host!(Need::Gcc);
    let tree = Hostile::Tree.compile();
    for way in Way::all() {
        // A victim of the same user, which only the pid namespace protects.
        let victim = host.launch(["run", "--", "sleep", "60"]).way(way).start();
        victim.await_process(|process| process.name == "sleep");
        let run = host
            .launch([
                "run",
                "--mount",
                &tree.mount(),
                "--",
                &tree.inside(),
                "kill",
            ])
            .way(way)
            .json()
            .finish();
        assert_eq!(
            (run.out().as_str(), run.code()),
            ("still here\n", 0),
            "{way:?}: {run:#?}"
        );
        victim.await_process(|process| process.name == "sleep");
        victim.signal(rustix::process::Signal::TERM);
        assert_eq!(victim.finish().code(), 130, "{way:?}");
    }
}

#[test]
fn init_survives_every_signal_from_inside() {
    let host = host!();
    for way in Way::all() {
        let script = "for s in $(seq 1 64); do kill -$s 1 2>/dev/null; done; sleep 0.05; (sleep 0.05 &); echo alive";
        let run = host
            .launch(["run", "--timeout", "5s", "--", "sh", "-c", script])
            .way(way)
            .json()
            .finish();
        assert_eq!(
            (run.out().as_str(), run.code()),
            ("alive\n", 0),
            "{way:?}: {run:#?}"
        );
    }
}

#[test]
fn a_daemon_does_not_outlive_the_program() {
    let host = host!(Need::Gcc);
    let tree = Hostile::Tree.compile();
    for way in Way::all() {
        let script = format!(
            "{} daemon; while ! grep -qs daemon /proc/*/cmdline; do :; done; exit 7",
            tree.inside()
        );
        let run = host
            .launch(["run", "--mount", &tree.mount(), "--", "sh", "-c", &script])
            .way(way)
            .json()
            .finish();
        assert_eq!(
            (run.ending(), run.code()),
            ("exited", 7),
            "{way:?}: {run:#?}"
        );
        host.assert_clean();
    }
}

#[test]
fn a_program_deaf_to_all_signals_is_stopped() {
    let host = host!(Need::Gcc);
    let tree = Hostile::Tree.compile();
    for way in Way::all() {
        let run = host
            .launch([
                "run",
                "--timeout",
                "5s",
                "--mount",
                &tree.mount(),
                "--",
                &tree.inside(),
                "deaf",
            ])
            .way(way)
            .json()
            .finish();
        assert_eq!(
            (run.ending(), run.code(), run.out().as_str()),
            ("wall_time", 124, "deaf\n"),
            "{way:?}: {run:#?}"
        );
    }
}

/// A background child that holds the output open must not hold up the end.
#[test]
fn the_run_ends_with_its_first_process() {
    let host = host!();
    for way in Way::all() {
        let run = host
            .launch([
                "run",
                "--timeout",
                "50s",
                "--",
                "sh",
                "-c",
                "sleep 60 & trap '' HUP; echo done",
            ])
            .way(way)
            .json()
            .finish();
        assert_eq!(
            (run.out().as_str(), run.ending()),
            ("done\n", "exited"),
            "{way:?}: {run:#?}"
        );
        assert!(run.wall.as_secs() < 30, "{way:?}: {run:#?}");
    }
}

#[test]
fn an_orphan_is_reaped_while_the_program_runs() {
    let host = host!();
    for way in Way::all() {
        // An orphan ends; if nobody reaps it, it stays in the list as a zombie.
        let script = "sh -c 'sh -c \"exit 0\" & exit 0'; for i in $(seq 50); do grep -qs '^State:.Z' /proc/[0-9]*/status || { echo none; exit; }; sleep 0.02; done; echo zombies";
        let run = host
            .launch(["run", "--", "sh", "-c", script])
            .way(way)
            .json()
            .finish();
        assert_eq!(run.out(), "none\n", "{way:?}: {run:#?}");
    }
}
