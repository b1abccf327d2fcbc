//! Cofferdam itself is killed, at every moment of a run's life.

use std::time::{Duration, Instant};

use cofferdam_testkit::hostile::Hostile;
use cofferdam_testkit::{Host, Need, Started, Way, host};
use rustix::process::Signal;

/// Kills a run after `delay`, without mercy.
fn kill_after(host: &Host, way: Way, args: &[&str], delay: Duration) {
    let run = host
        .launch(args)
        .way(way)
        .stdout_to(std::process::Stdio::null())
        .stderr_to(std::process::Stdio::null())
        .start();
    let until = Instant::now() + delay;
    // Finer than any sleep, since a whole run takes only a few milliseconds.
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    run.signal(Signal::KILL);
    drop(run);
}

/// So that as many steps as there are runs cover the whole life of one, however fast this machine is now.
fn step_for(host: &Host, way: Way, least: Duration, runs: u32) -> Duration {
    let whole = host.launch(["run", "--", "true"]).way(way).finish().wall;
    let whole = whole.min(Duration::from_millis(300));
    least.max(whole * 3 / 2 / runs)
}

/// Every moment from before the first system call until after the program has started.
#[track_caller]
fn assert_nothing_is_left(args: &[&str], step: Duration, runs: u32) {
    let host = host!();
    for way in Way::all() {
        let step = step_for(&host, way, step, runs);
        for n in 0..runs {
            kill_after(&host, way, args, step * n);
        }
        host.assert_clean();
    }
}

#[test]
fn a_kill_at_any_moment_leaves_nothing() {
    assert_nothing_is_left(
        &["run", "--", "sleep", "60"],
        Duration::from_micros(150),
        80,
    );
}

#[test]
fn a_kill_at_any_moment_of_a_short_run_leaves_nothing() {
    assert_nothing_is_left(&["run", "--", "true"], Duration::from_micros(250), 60);
}

#[test]
fn a_kill_at_any_moment_leaves_nothing_of_a_run_with_a_workspace() {
    let host = host!();
    for way in Way::all() {
        let dir = host.workspace(way);
        let step = step_for(&host, way, Duration::from_micros(150), 60);
        for (n, access) in (0..60_u32).zip(["rw", "cow", "ro"].into_iter().cycle()) {
            let given = format!("{}:{access}", dir.display());
            kill_after(
                &host,
                way,
                &[
                    "run",
                    "--cpus",
                    "1",
                    "--workspace",
                    &given,
                    "--",
                    "sleep",
                    "60",
                ],
                step * n,
            );
        }
        host.assert_clean();
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "{way:?}");
    }
}

#[test]
fn a_kill_takes_daemons_and_bombs_with_it() {
    let host = host!(Need::Gcc);
    let tree = Hostile::Tree.compile();
    for way in Way::all() {
        for attack in ["daemon; exec sleep 60", "count 40", "deaf"] {
            let script = format!("{} {attack}", tree.inside());
            let run = host
                .launch(["run", "--mount", &tree.mount(), "--", "sh", "-c", &script])
                .way(way)
                .start();
            run.await_process(|process| process.name == "tree");
            run.signal(Signal::KILL);
            assert_eq!(run.finish().status.code(), None);
            host.assert_clean();
        }
    }
}

/// The kernel may pick any process of ours when the machine is out of memory.
#[test]
fn a_kill_of_init_ends_the_run_and_leaves_nothing() {
    let host = host!();
    for way in Way::all() {
        let run = host
            .launch(["run", "--timeout", "20s", "--", "sleep", "60"])
            .way(way)
            .json()
            .start();
        let sleeper = run.await_process(|process| process.name == "sleep");
        let init = rustix::process::Pid::from_raw(sleeper.parent.cast_signed()).unwrap();
        assert_ne!(sleeper.parent, run.pid());
        rustix::process::kill_process(init, Signal::KILL).unwrap();
        let run = run.finish();
        assert_eq!(
            (run.ending(), run.code()),
            ("signaled", 137),
            "{way:?}: {run:#?}"
        );
        host.assert_clean();
    }
}

/// A run that sleeps, and whose janitor somebody has killed.
fn run_without_its_janitor(host: &Host) -> Started<'_> {
    let mut run = host
        .launch([
            "run",
            "--timeout",
            "20s",
            "--",
            "sh",
            "-c",
            "echo ready; exec sleep 60",
        ])
        .start();
    run.await_output("ready");
    let janitor = run.await_process(|process| process.name == "cofferdam-sweep");
    let pid = rustix::process::Pid::from_raw(janitor.pid.cast_signed());
    let killed = pid.map(|pid| rustix::process::kill_process(pid, Signal::KILL));
    assert_eq!(killed, Some(Ok(())));
    run
}

#[test]
fn a_kill_of_the_janitor_still_leaves_nothing() {
    let host = host!(Need::Cgroup);
    let run = run_without_its_janitor(&host);
    run.signal(Signal::TERM);
    assert_eq!(run.finish().code(), 130);
    host.assert_clean();
}

/// The worst crash takes the janitor too; then the next run sweeps.
#[test]
fn the_next_run_sweeps_what_a_crash_of_everything_left() {
    let host = host!(Need::Cgroup);
    let run = run_without_its_janitor(&host);
    run.signal(Signal::KILL);
    drop(run);
    // A group younger than two seconds might belong to a run that is just being set up, so it is spared.
    let until = Instant::now() + Duration::from_millis(3200);
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    host.run(["run", "--", "true"]).assert_success();
    host.assert_clean();
}
