//! CPU time, of the whole tree: many burners, burners too short to be seen, burners that nobody waits for.

use cofferdam_testkit::hostile::Hostile;
use cofferdam_testkit::{Finished, Need, Way, host};

const DETAIL: &str = "stopped: CPU time limit of 500 ms used up; raise it with --cpu-time";

#[track_caller]
fn burn(way: Way, attack: &[&str]) {
    let Some(host) = cofferdam_testkit::Host::new(env!("CARGO_BIN_EXE_cofferdam"), &[Need::Gcc])
    else {
        return;
    };
    let tree = Hostile::Tree.compile();
    let (mount, inside) = (tree.mount(), tree.inside());
    let mut args = vec![
        "run",
        "--cpu-time",
        "500ms",
        "--timeout",
        "40s",
        "--mount",
        &mount,
        "--",
        &inside,
    ];
    args.extend(attack);
    let run = host.launch(args).way(way).json().finish();
    run.assert_stopped("cpu_time", 152, DETAIL);
    assert_eq!(run.enforced_by("cpu_time"), way.group_or("poll"), "{way:?}");
    assert_near_the_limit(way, &run);
}

/// A group counts in nanoseconds; what is polled counts in ticks of 10 ms, for each process. Whoever is woken late on a busy machine lets several burners go on for so long.
#[track_caller]
fn assert_near_the_limit(way: Way, run: &Finished) {
    let used = run.usage("cpu_ms");
    assert!(
        (450.0..2000.0).contains(&used),
        "{way:?}: {used} ms of CPU time for a limit of 500: {run:#?}"
    );
}

#[test]
fn one_burner_is_stopped() {
    for way in Way::all() {
        burn(way, &["burn", "1"]);
    }
}

#[test]
fn many_burners_share_one_limit() {
    for way in Way::all() {
        burn(way, &["burn", "8"]);
    }
}

#[test]
fn short_lived_burners_are_counted() {
    for way in Way::all() {
        burn(way, &["churn"]);
    }
}

#[test]
fn orphaned_burners_are_counted() {
    for way in Way::all() {
        burn(way, &["churn_orphans"]);
    }
}

#[test]
fn burners_that_nobody_waits_for_are_counted() {
    for way in Way::all() {
        burn(way, &["churn_unwaited"]);
    }
}

#[test]
fn sleeping_costs_no_cpu_time() {
    let host = host!();
    for way in Way::all() {
        let run = host
            .launch(["run", "--cpu-time", "300ms", "--", "sleep", "0.6"])
            .way(way)
            .json()
            .finish();
        run.assert_success();
        assert!(run.usage("cpu_ms") < 280.0, "{run:#?}");
    }
}

#[test]
fn the_cpu_time_of_children_is_reported() {
    let host = host!(Need::Python);
    for way in Way::all() {
        let burn = "import time\nwhile time.process_time() < 0.3: pass";
        let script = format!("python3 -c '{burn}' & python3 -c '{burn}'; wait");
        let run = host
            .launch(["run", "--", "sh", "-c", &script])
            .way(way)
            .json()
            .finish();
        run.assert_success();
        let used = run.usage("cpu_ms");
        assert!(
            (580.0..3000.0).contains(&used),
            "{way:?}: {used} ms for two burners of 300: {run:#?}"
        );
    }
}
