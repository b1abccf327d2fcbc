//! The backend without isolation: the limits hold all the same, and the whole tree ends.

use std::path::PathBuf;

use cofferdam_testkit::hostile::Hostile;
use cofferdam_testkit::{Host, Launch, Need, Way, host};
use rustix::process::Signal;

/// Without a group nothing can count the processes of one run, which has to be accepted by name.
fn launch<'h>(host: &'h Host, way: Way, flags: &[&str], command: &[&str]) -> Launch<'h> {
    let mut args = vec!["run", "--backend", "host"];
    if !way.has_cgroups() {
        args.extend(["--waive", "processes"]);
    }
    args.extend(flags);
    args.push("--");
    args.extend(command);
    host.launch(args).way(way)
}

fn tree() -> PathBuf {
    Hostile::Tree.compile().on_host()
}

#[test]
fn a_limit_that_nothing_can_hold_is_refused_unless_waived() {
    let host = host!();
    for way in Way::all().into_iter().filter(|way| !way.has_cgroups()) {
        let refused = host
            .launch(["run", "--backend", "host", "--", "true"])
            .way(way)
            .finish();
        refused.assert_refused(125, "limit.unenforceable");
        assert!(refused.err().contains("--waive processes"), "{refused:#?}");
        let waived = launch(&host, way, &[], &["true"]).json().finish();
        waived.assert_success();
        assert_eq!(waived.enforced_by("processes"), "waived");
    }
}

#[test]
fn limits_hold_without_isolation() {
    let host = host!(Need::Gcc);
    let memory = Hostile::Memory.compile().on_host();
    let (memory, tree) = (
        memory.to_str().unwrap().to_owned(),
        tree().to_str().unwrap().to_owned(),
    );
    for way in Way::all() {
        let cases: [(&[&str], &[&str], &str, i32); 5] = [
            (&["--timeout", "300ms"], &["sleep", "60"], "wall_time", 124),
            (
                &["--cpu-time", "300ms"],
                &[&tree, "burn", "3"],
                "cpu_time",
                152,
            ),
            (
                &["--memory", "48m"],
                &[&memory, "heap", "192"],
                "memory",
                137,
            ),
            (
                &["--memory", "48m"],
                &[&memory, "children", "192"],
                "memory",
                137,
            ),
            (&["--output-limit", "10k"], &["yes"], "output", 153),
        ];
        for (flags, command, ending, code) in cases {
            let run = launch(&host, way, flags, command).json().finish();
            assert_eq!(
                (run.ending(), run.code()),
                (ending, code),
                "{way:?} {command:?}: {run:#?}"
            );
            assert_eq!(run.record()["backend"], "host");
            assert_eq!(
                run.record()["isolation"],
                serde_json::json!({}),
                "no isolation may be claimed"
            );
            host.assert_clean();
        }
    }
    let run = launch(
        &host,
        Way::Root,
        &["--pids", "20", "--timeout", "3s"],
        &[&tree, "fork"],
    )
    .json()
    .finish();
    assert_eq!((run.ending(), run.code()), ("processes", 137), "{run:#?}");
}

#[test]
fn a_file_beyond_the_disk_limit_is_stopped_without_isolation() {
    let host = host!();
    for way in Way::all() {
        let dir = host.workspace(way);
        let workspace = format!("{}:rw", dir.display());
        let run = launch(
            &host,
            way,
            &["--disk", "4m", "--workspace", &workspace],
            &["dd", "if=/dev/zero", "of=big", "bs=1M", "count=16"],
        )
        .json()
        .finish();
        assert_eq!(
            (run.ending(), run.code()),
            ("disk", 153),
            "{way:?}: {run:#?}"
        );
        assert!(
            std::fs::metadata(dir.join("big")).unwrap().len() <= 4 << 20,
            "{way:?}"
        );
    }
}

#[test]
fn daemons_end_with_the_run() {
    let host = host!(Need::Gcc);
    let tree = tree();
    for way in Way::all() {
        let script = format!(
            "{} daemon; {} deaf & exit 7",
            tree.display(),
            tree.display()
        );
        let run = launch(&host, way, &[], &["sh", "-c", &script])
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
fn a_deadline_takes_daemons_with_it() {
    let host = host!(Need::Gcc);
    let tree = tree();
    for way in Way::all() {
        let script = format!("{} daemon; exec sleep 60", tree.display());
        let run = launch(&host, way, &["--timeout", "300ms"], &["sh", "-c", &script])
            .json()
            .finish();
        assert_eq!(
            (run.ending(), run.code()),
            ("wall_time", 124),
            "{way:?}: {run:#?}"
        );
        host.assert_clean();
    }
}

#[test]
fn a_kill_of_cofferdam_takes_the_tree_with_it() {
    let host = host!(Need::Gcc);
    let tree = tree();
    for way in Way::all() {
        for attack in ["daemon; exec sleep 60", "count 40", "deaf"] {
            let script = format!("{} {attack}", tree.display());
            let run = launch(&host, way, &[], &["sh", "-c", &script]).start();
            run.await_process(|process| process.name == "tree");
            run.signal(Signal::KILL);
            assert_eq!(run.finish().status.code(), None);
            host.assert_clean();
        }
    }
}

#[test]
fn a_kill_of_cofferdam_at_any_moment_leaves_nothing_without_isolation() {
    let host = host!();
    for way in Way::all() {
        for n in 0..40_u32 {
            let run = launch(&host, way, &[], &["sleep", "60"])
                .stdout_to(std::process::Stdio::null())
                .stderr_to(std::process::Stdio::null())
                .start();
            let until = std::time::Instant::now() + std::time::Duration::from_micros(150) * n;
            while std::time::Instant::now() < until {
                std::hint::spin_loop();
            }
            run.signal(Signal::KILL);
            drop(run);
        }
        host.assert_clean();
    }
}

/// The program runs as the same user as its init here, so it can kill it. That must not set it free.
#[test]
fn killing_init_does_not_set_the_tree_free() {
    let host = host!();
    for way in Way::all() {
        let run = launch(
            &host,
            way,
            &["--timeout", "10s"],
            &["sh", "-c", "sleep 60 & kill -9 $PPID; exec sleep 60"],
        )
        .json()
        .finish();
        assert_ne!(run.code(), 0, "{way:?}: {run:#?}");
        host.assert_clean();
    }
}

/// Nor may an init that the program has stopped keep the supervisor waiting for it.
#[test]
fn stopping_init_does_not_stop_the_deadline() {
    let host = host!();
    for way in Way::all() {
        let run = launch(
            &host,
            way,
            &["--timeout", "500ms"],
            &["sh", "-c", "kill -STOP $PPID; exec sleep 60"],
        )
        .json()
        .finish();
        assert_eq!(
            (run.ending(), run.code()),
            ("wall_time", 124),
            "{way:?}: {run:#?}"
        );
        host.assert_clean();
    }
}
