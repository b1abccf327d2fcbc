//! What gVisor alone makes necessary: its files on the host go with the run, and what it cannot do is refused.

use std::path::Path;

use cofferdam_testkit::{Need, Way, host};
use rustix::process::Signal;

#[test]
fn the_kernel_inside_is_not_the_hosts() {
    let host = host!(Need::Gvisor, Need::Cgroup);
    let run = host.json([
        "run",
        "--backend",
        "gvisor",
        "--",
        "sh",
        "-c",
        "uname -r; dmesg",
    ]);
    let hosts = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(!run.out().contains(hosts.trim()), "{run:#?}");
    assert_eq!(
        run.record()["isolation"]["kernel"],
        "gVisor, platform ptrace"
    );
}

#[test]
fn the_bundle_goes_with_the_run_and_after_a_kill() {
    let host = host!(Need::Gvisor, Need::Cgroup);
    let bundles = || {
        let base = Path::new("/run/cofferdam-gvisor-0");
        std::fs::read_dir(base).map_or(0, |listing| {
            listing
                .flatten()
                .filter(|found| {
                    let name = found.file_name();
                    name.to_string_lossy().contains('-')
                })
                .count()
        })
    };
    let before = bundles();
    let mut run = host
        .launch([
            "run",
            "--backend",
            "gvisor",
            "--",
            "sh",
            "-c",
            "echo up; sleep 60",
        ])
        .way(Way::Root)
        .start();
    run.await_output("up");
    assert!(bundles() > before, "a run has one");
    run.signal(Signal::KILL);
    drop(run);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while bundles() > before && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(bundles() <= before, "the bundle is left");
}

#[test]
fn the_program_cannot_say_how_it_ended_in_the_attendants_place() {
    let host = host!(Need::Gvisor, Need::Cgroup);
    let attack = "kill -9 1; echo x >/.told; rm -f /.told; exit 5";
    let run = host.json(["run", "--backend", "gvisor", "--", "sh", "-c", attack]);
    assert_eq!((run.ending(), run.code()), ("exited", 5), "{run:#?}");
    assert!(run.err().contains("not permitted"), "{run:#?}");
}
