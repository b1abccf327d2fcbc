//! Somebody asks for the end: Ctrl-C and its relatives.

use cofferdam_testkit::hostile::Hostile;
use cofferdam_testkit::{Need, Way, host};
use rustix::process::Signal;

#[test]
fn a_person_can_end_a_run() {
    let host = host!();
    for way in Way::all() {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
            let mut run = host
                .launch([
                    "run",
                    "--",
                    "sh",
                    "-c",
                    "trap '' INT TERM HUP QUIT; echo ready; while :; do sleep 60; done",
                ])
                .way(way)
                .start();
            run.await_output("ready");
            run.signal(signal);
            let run = run.finish();
            assert_eq!(
                (run.code(), run.err().as_str()),
                (130, "cofferdam: stopped: canceled by the caller\n"),
                "{way:?} {signal:?}"
            );
            assert_eq!(run.out(), "ready\n");
        }
    }
}

#[test]
fn a_cancelled_run_says_so_in_its_record_and_keeps_its_output() {
    let host = host!();
    for way in Way::all() {
        let run = host
            .launch(["run", "--", "sh", "-c", "echo partial; exec sleep 60"])
            .way(way)
            .json()
            .start();
        run.await_process(|process| process.name == "sleep");
        run.signal(Signal::INT);
        let run = run.finish();
        run.assert_stopped("canceled", 130, "stopped: canceled by the caller");
        assert_eq!(run.out(), "partial\n", "{way:?}");
    }
}

/// A terminal sends Ctrl-C to everybody in the foreground; only cofferdam may act on it.
#[test]
fn a_signal_to_the_whole_process_group_ends_in_order() {
    use std::os::unix::process::CommandExt as _;
    let host = host!();
    let mut command = std::process::Command::new(host.binary());
    command
        .args([
            "run",
            "--env",
            &format!("COFFERDAM_TEST_MARK={}", host.mark()),
            "--",
            "sleep",
            "60",
        ])
        .env("COFFERDAM_TEST_MARK", host.mark())
        .process_group(0);
    let mut child = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let is_asleep = || {
        std::fs::read_to_string(format!("/proc/{}/task/{}/children", child.id(), child.id()))
            .is_ok_and(|text| !text.is_empty())
    };
    let begun = std::time::Instant::now();
    while !is_asleep() {
        assert!(begun.elapsed().as_secs() < 60, "it does not start");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    rustix::process::kill_process_group(pid, Signal::INT).unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(
        (child.wait().unwrap().code(), said.as_str()),
        (Some(130), "cofferdam: stopped: canceled by the caller\n")
    );
    host.assert_clean();
}

#[test]
fn a_fork_bomb_can_be_ended_by_a_person() {
    let host = host!(Need::Gcc);
    let tree = Hostile::Tree.compile();
    for way in Way::all().into_iter().filter(|way| !way.has_cgroups()) {
        let run = host
            .launch([
                "run",
                "--pids",
                "200",
                "--mount",
                &tree.mount(),
                "--",
                &tree.inside(),
                "fork",
            ])
            .way(way)
            .start();
        run.await_process(|process| process.name == "tree" && process.parent != run.pid());
        run.signal(Signal::INT);
        assert_eq!(run.finish().code(), 130, "{way:?}");
        host.assert_clean();
    }
}
