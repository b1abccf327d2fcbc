//! Memory, eaten in every way the kernel offers, and told apart from a program that kills itself.

use cofferdam_testkit::hostile::Hostile;
use cofferdam_testkit::{Finished, Host, Need, Way, host};

const DETAIL: &str = "stopped: memory limit of 48 MiB reached; raise it with --memory";

/// Asks for four times the limit.
fn eat(host: &Host, way: Way, attack: &str) -> Finished {
    let memory = Hostile::Memory.compile();
    let (mount, inside) = (memory.mount(), memory.inside());
    let args = [
        "run",
        "--memory",
        "48m",
        "--timeout",
        "10s",
        "--mount",
        &mount,
        "--",
        &inside,
        attack,
        "192",
    ];
    let run = host.launch(args).way(way).json().finish();
    assert_eq!(run.enforced_by("memory"), way.group_or("poll"), "{way:?}");
    run
}

/// The attack is stopped by the limit, in every way.
#[track_caller]
fn assert_stopped(attack: &str) {
    let host = host!(Need::Gcc);
    for way in Way::all() {
        let run = eat(&host, way, attack);
        run.assert_stopped("memory", 137, DETAIL);
        // A look every 10 ms can be overshot; a group cannot.
        let peak = run.usage("memory_peak_bytes") / f64::from(1 << 20);
        let most = if way.has_cgroups() { 48.1 } else { 192.0 };
        assert!(
            (30.0..=most).contains(&peak),
            "{way:?}: a peak of {peak} MiB: {run:#?}"
        );
    }
}

/// As above, or refused where the memory could not be counted.
#[track_caller]
fn assert_stopped_or_refused(attack: &str) {
    let host = host!(Need::Gcc);
    for way in Way::all() {
        let run = eat(&host, way, attack);
        if way.has_cgroups() || run.ending() != "exited" {
            run.assert_stopped("memory", 137, DETAIL);
        } else {
            assert_eq!(
                (run.code(), run.out().as_str()),
                (3, ""),
                "{way:?}: {attack} got four times its limit: {run:#?}"
            );
        }
    }
}

#[test]
fn one_hog_is_stopped() {
    assert_stopped("heap");
}

#[test]
fn many_small_hogs_share_one_limit() {
    assert_stopped("children");
}

#[test]
fn files_in_tmp_are_memory() {
    assert_stopped("/tmp/file");
}

#[test]
fn files_in_dev_shm_are_memory() {
    assert_stopped("/dev/shm/file");
}

#[test]
fn shared_anonymous_memory_counts() {
    assert_stopped_or_refused("shared");
}

#[test]
fn shared_memory_in_nobodys_page_tables_counts() {
    assert_stopped_or_refused("shared_unmapped");
}

#[test]
fn a_shared_object_kept_by_one_page_counts_whole() {
    assert_stopped_or_refused("shared_cut");
}

#[test]
fn memory_files_count() {
    assert_stopped_or_refused("memfd");
}

#[test]
fn memory_files_kept_by_an_untouched_mapping_count() {
    assert_stopped_or_refused("memfd_untouched");
}

#[test]
fn memory_files_in_flight_count() {
    assert_stopped_or_refused("memfd_in_flight");
}

#[test]
fn system_v_shared_memory_counts() {
    assert_stopped_or_refused("sysv");
}

#[test]
fn page_tables_count() {
    assert_stopped_or_refused("tables");
}

#[test]
fn a_killed_child_stops_the_run_although_its_parent_copes() {
    let host = host!(Need::Gcc);
    let memory = Hostile::Memory.compile();
    for way in Way::all() {
        let script = format!("{} heap 192; sleep 60", memory.inside());
        let args = [
            "run",
            "--memory",
            "48m",
            "--timeout",
            "10s",
            "--mount",
            &memory.mount(),
            "--",
            "sh",
            "-c",
            &script,
        ];
        host.launch(args)
            .way(way)
            .json()
            .finish()
            .assert_stopped("memory", 137, DETAIL);
    }
}

#[test]
fn a_program_that_kills_itself_was_not_out_of_memory() {
    let host = host!();
    for way in Way::all() {
        let run = host
            .launch(["run", "--memory", "48m", "--", "sh", "-c", "kill -9 $$"])
            .way(way)
            .json()
            .finish();
        assert_eq!(
            (run.ending(), run.code()),
            ("signaled", 137),
            "{way:?}: {run:#?}"
        );
        assert_eq!(run.record()["signal"], "SIGKILL");
        let quiet = host
            .launch(["run", "--", "sh", "-c", "kill -9 $$"])
            .way(way)
            .finish();
        assert_eq!((quiet.code(), quiet.err().as_str()), (137, ""), "{way:?}");
    }
}

#[test]
fn memory_below_the_limit_is_granted() {
    let host = host!(Need::Gcc);
    let memory = Hostile::Memory.compile();
    for way in Way::all() {
        let args = [
            "run",
            "--memory",
            "96m",
            "--mount",
            &memory.mount(),
            "--",
            &memory.inside(),
            "heap",
            "64",
        ];
        let run = host.launch(args).way(way).json().finish();
        run.assert_success();
        let peak = run.usage("memory_peak_bytes") / f64::from(1 << 20);
        assert!(
            (60.0..80.0).contains(&peak),
            "{way:?}: a peak of {peak} MiB"
        );
    }
}

/// Until it is executed, the program's process is a copy of ours or lives in our memory, which is larger than this limit.
#[test]
fn what_we_use_ourselves_is_not_held_against_the_program() {
    let host = host!();
    for way in Way::all() {
        for _ in 0..10 {
            host.launch(["run", "--memory", "4m", "--", "true"])
                .way(way)
                .json()
                .finish()
                .assert_success();
        }
    }
}

/// A child of vfork has all of its parent's memory, and costs none of its own.
#[test]
fn memory_that_a_child_borrows_counts_once() {
    let host = host!(Need::Python);
    let script = "import subprocess\nx = b'x' * (80 << 20)\nfor _ in range(100): subprocess.run(['true'], close_fds=False)";
    for way in Way::all() {
        host.launch(["run", "--memory", "128m", "--", "python3", "-c", script])
            .way(way)
            .json()
            .finish()
            .assert_success();
    }
}

#[test]
fn the_smallest_limit_ends_in_a_stop_and_not_in_an_accident() {
    let host = host!();
    for way in Way::all() {
        let run = host
            .launch([
                "run",
                "--memory",
                "1m",
                "--timeout",
                "5s",
                "--",
                "/usr/bin/python3",
                "-c",
                "print('x' * 2000000)",
            ])
            .way(way)
            .json()
            .finish();
        run.assert_stopped(
            "memory",
            137,
            "stopped: memory limit of 1 MiB reached; raise it with --memory",
        );
    }
}
