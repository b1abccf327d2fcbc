//! What a record says about the host it ran on: which mechanism held each limit and which wall stood, per way of running.

use cofferdam_testkit::{Way, host};
use serde_json::json;

const ALL_LIMITS: [&str; 6] = ["--cpus", "1", "--disk", "64m", "--memory", "256m"];

#[test]
fn the_record_names_what_held_each_limit() {
    let host = host!();
    for way in Way::all() {
        let workspace = format!("{}:rw", host.workspace(way).display());
        let run = host
            .launch(
                [
                    &["run"],
                    &ALL_LIMITS[..],
                    &["--workspace", &workspace, "--", "true"],
                ]
                .concat(),
            )
            .way(way)
            .json()
            .finish();
        run.assert_success();
        let expected = json!({
            "wall_time": "supervisor",
            "cpu_time": way.group_or("poll"),
            "memory": way.group_or("poll"),
            "output": "supervisor",
            "processes": way.group_or("rlimit"),
            "disk": "tmpfs+rlimit+poll",
            "open_files": "rlimit",
            "cpus": way.group_or("affinity"),
            "disk_io": "unlimited",
        });
        assert_eq!(run.record()["enforced_by"], expected, "{way:?}");
    }
}

#[test]
fn the_record_names_the_walls() {
    let host = host!();
    for way in Way::all() {
        let run = host.launch(["run", "--", "true"]).way(way).json().finish();
        let isolation = &run.record()["isolation"];
        assert_eq!(
            isolation["namespaces"], "user,pid,mount,net,ipc,uts,cgroup",
            "{way:?}"
        );
        assert_eq!(
            (
                &isolation["seccomp"],
                &isolation["root"],
                &isolation["proc"]
            ),
            (&json!("filter"), &json!("read-only"), &json!("own")),
            "{way:?}"
        );
        let uid = isolation["uid"].as_str().unwrap();
        assert!(
            uid.starts_with("1000 (outside ") && !uid.contains("outside 0)"),
            "{way:?}: {uid}"
        );
    }
}

#[test]
fn usage_is_measured() {
    let host = host!();
    for way in Way::all() {
        let script = "head -c 3000000 /dev/zero >/tmp/x; head -c 5000 /dev/zero; sleep 0.3";
        let run = host
            .launch(["run", "--", "sh", "-c", script])
            .way(way)
            .json()
            .finish();
        run.assert_success();
        assert!(
            (300.0..30_000.0).contains(&run.usage("wall_ms")),
            "{way:?}: {run:#?}"
        );
        assert!(
            (0.1..3000.0).contains(&run.usage("cpu_ms")),
            "{way:?}: {run:#?}"
        );
        assert!(
            (3_000_000.0..30_000_000.0).contains(&run.usage("memory_peak_bytes")),
            "{way:?}: {run:#?}"
        );
        assert!(
            (3_000_000.0..3_500_000.0).contains(&run.usage("disk_bytes")),
            "{way:?}: {run:#?}"
        );
        assert!(
            (2.0..=3.0).contains(&run.usage("processes_peak")),
            "{way:?}: {run:#?}"
        );
        assert_eq!(run.usage("output_bytes"), 5000.0);
    }
}

/// Reported and enforced time begin when the program does, not when the supervisor gets round to noticing.
#[test]
fn wall_time_covers_the_whole_life_of_the_program() {
    let host = host!();
    for way in Way::all() {
        for _ in 0..20 {
            let run = host
                .launch(["run", "--", "sleep", "0.02"])
                .way(way)
                .json()
                .finish();
            assert!(
                run.usage("wall_ms") >= 20.0,
                "{way:?}: a sleep of 20 ms took {} ms",
                run.usage("wall_ms")
            );
        }
    }
}

/// A limit that is held by looking again and again is held all the same when many run at once.
#[test]
fn many_runs_at_once_do_not_disturb_each_other() {
    let host = host!();
    for way in Way::all() {
        let runs: Vec<_> = (0..12)
            .map(|n: u32| {
                let script = format!("echo {n} >/tmp/own; sleep 0.2; cat /tmp/own; exit {n}");
                (
                    n,
                    host.launch(["run", "--", "sh", "-c", &script])
                        .way(way)
                        .json()
                        .start(),
                )
            })
            .collect();
        for (n, run) in runs {
            let run = run.finish_within(std::time::Duration::from_secs(20));
            assert_eq!(
                (run.out(), run.code()),
                (format!("{n}\n"), i32::try_from(n).unwrap()),
                "{way:?}: {run:#?}"
            );
        }
    }
}
