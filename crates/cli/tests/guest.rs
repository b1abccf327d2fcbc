//! cgroup v2 for real, on a kernel older than most: boots Debian's cloud kernel under QEMU, without KVM, with nothing but busybox and the binary under test,
//! and judges what `guest/cases.sh` tells over a serial line. `cargo xtask test` fetches kernel and emulator.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "the functions beside a test are as much test as it is"
)]

#[path = "guest/told.rs"]
mod told;
#[path = "guest/vm.rs"]
mod vm;

use serde_json::{Value, json};

use told::{Case, Told};
use vm::Vm;

const MIB: u64 = 1 << 20;

#[test]
fn guest_with_cgroup2_and_an_old_kernel_keeps_every_promise() {
    let Some(vm) = Vm::find() else { return };
    let told = vm.boot();
    root_group(&told);
    service(&told);
    delegated(&told);
    warm(&told, "service_warm");
    copies(&told);
    warm(&told, "delegated_warm");
    session(&told);
    workspaces(&told);
    old_kernel(&told);
    the_same_each_time(&told);
    told.conclude();
}

/// Root in the root group of the hierarchy.
fn root_group(told: &Told) {
    told.check("plain", |case| {
        let record = case.record();
        assert_eq!(record["stdout"]["data"], "hello\n1000\n0::/\n");
        assert_eq!(enforcers(&record), ["cgroup2"; 4]);
        assert_eq!(record["isolation"]["landlock"], "abi 2");
        assert_eq!(record["isolation"]["proc"], "own");
    });
    told.check("memory_hog", |case| case.stopped_by("memory", 137));
    told.check("memory_hog_in_child", |case| case.stopped_by("memory", 137));
    told.check("memory_in_scratch_files", |case| {
        case.stopped_by("memory", 137);
    });
    told.check("memory_enough", |case| {
        let record = case.exited(0);
        within(&record, "memory_peak_bytes", 24 * MIB, 32 * MIB);
        within(&record, "processes_peak", 1, 1);
    });
    told.check("fork_bomb", |case| {
        case.stopped_by("processes", 137);
        within(&case.record(), "processes_peak", 16, 16);
    });
    told.check("forks_enough", |case| {
        within(&case.exited(0), "processes_peak", 13, 13);
    });
    told.check("forks_not_at_all", |case| {
        within(&case.exited(0), "processes_peak", 1, 1);
    });
    told.check("forks_to_the_limit", |case| {
        within(&case.exited(0), "processes_peak", 16, 16);
    });
    told.check("cpu_burners", |case| {
        case.stopped_by("cpu_time", 152);
        within(&case.record(), "cpu_ms", 500, 1000);
    });
    told.check("cpu_enough", |case| {
        within(&case.exited(0), "cpu_ms", 400, 1500);
    });
    told.check("cpu_quota", |case| half_a_cpu(&case.exited(0)));
    told.check("wall_time", |case| {
        case.stopped_by("wall_time", 124);
        within(&case.record(), "wall_ms", 500, 1500);
    });
    told.check("output_flood", |case| case.stopped_by("output", 153));
    told.check("disk_flood", |case| case.stopped_by("disk", 153));
    told.check("host_backend", |case| {
        assert_eq!(case.exited(0)["enforced_by"]["processes"], "cgroup2");
    });
    told.check("host_backend_memory", |case| case.stopped_by("memory", 137));
    told.check("host_backend_bomb", |case| {
        case.stopped_by("processes", 137);
    });
    told.check("killed_supervisor", Case::was_killed);
}

/// Root in a service: its run's group is a sibling of the service's.
fn service(told: &Told) {
    told.check("service_plain", |case| {
        assert_eq!(enforcers(&case.exited(0)), ["cgroup2"; 4]);
    });
    told.check("service_memory_hog", |case| case.stopped_by("memory", 137));
    told.check("service_killed_supervisor", Case::was_killed);
}

/// An ordinary user to whom systemd has delegated a subtree.
fn delegated(told: &Told) {
    told.check("delegated_plain", |case| {
        let record = case.exited(0);
        assert_eq!(record["stdout"]["data"], "1000\n0::/\n");
        assert_eq!(enforcers(&record), ["cgroup2"; 4]);
    });
    told.check("delegated_memory_hog", |case| {
        case.stopped_by("memory", 137)
    });
    told.check("delegated_fork_bomb", |case| {
        case.stopped_by("processes", 137);
    });
    told.check("delegated_cpu_burners", |case| {
        case.stopped_by("cpu_time", 152);
        within(&case.record(), "cpu_ms", 500, 1000);
    });
    told.check("delegated_cpu_quota", |case| half_a_cpu(&case.exited(0)));
    told.check("delegated_host_backend", |case| {
        assert_eq!(case.exited(0)["enforced_by"]["processes"], "cgroup2");
    });
    told.check("delegated_killed_supervisor", Case::was_killed);
    told.check("delegated_scope_untouched", |case| {
        assert_eq!(case.out, ["domain"]);
    });
    told.check("delegated_without_cpu", |case| {
        case.stopped_by("memory", 137);
        assert_eq!(case.record()["enforced_by"]["cpu_time"], "cgroup2");
    });
    told.check("delegated_without_cpu_whole", |case| {
        let record = case.exited(0);
        assert_eq!(record["stdout"]["data"], "1\n");
        let expected = ["cgroup2", "cgroup2", "cgroup2", "affinity"];
        assert_eq!(enforcers(&record), expected);
    });
    told.check("delegated_without_cpu_fraction", |case| {
        case.refused("limit.unenforceable");
    });
}

/// Runs in sandboxes that stood before, whose processes entered their groups by themselves. Where anything of them was left after the daemon's end, all of these fail.
fn warm(told: &Told, daemon: &str) {
    let stopped = |name: &str, cause: &str| {
        told.check(&format!("{daemon}_{name}"), |case| {
            let ending = case.record()["ending"].clone();
            let expected = (&json!("stopped"), &json!(cause));
            assert_eq!((&ending["kind"], &ending["cause"]), expected);
        });
    };
    let exited = |name: &str, figure: &str, [least, most]: [u64; 2]| {
        told.check(&format!("{daemon}_{name}"), |case| {
            let record = case.record();
            assert_eq!(record["exit_code"], 0, "{record:#}");
            within(&record, figure, least, most);
        });
    };
    told.check(&format!("{daemon}_plain"), |case| {
        let record = case.record();
        assert_eq!(record["stdout"]["data"], "1000\n");
        assert_eq!(enforcers(&record)[..3], ["cgroup2"; 3]);
    });
    stopped("memory_hog", "memory");
    exited("memory_enough", "memory_peak_bytes", [24 * MIB, 32 * MIB]);
    stopped("fork_bomb", "processes");
    exited("forks_not_at_all", "processes_peak", [1, 1]);
    exited("forks_to_the_limit", "processes_peak", [16, 16]);
    stopped("cpu_burners", "cpu_time");
    // One that waited for half a minute is built anew, on a machine that is so slow.
    told.check(&format!("{daemon}_taken"), |case| {
        let taken: Vec<u32> = case.out.iter().map(|line| line.parse().unwrap()).collect();
        assert!(matches!(taken[..], [5..=7]), "{taken:?} of 7");
    });
    told.check(&format!("{daemon}_failed"), |case| {
        assert_eq!(case.out, ["0"])
    });
}

/// Copies of an interpreter, in groups that they have entered by themselves.
fn copies(told: &Told) {
    let is_copy = |record: &Value| {
        let start = &record["isolation"]["start"];
        assert_eq!(start, "copy of a waiting python3", "{record:#}");
        assert_eq!(enforcers(record)[..3], ["cgroup2"; 3]);
    };
    told.check("service_warm_copy", |case| {
        let record = case.record();
        is_copy(&record);
        assert_eq!(record["stdout"]["data"], "1000\n");
        within(&record, "processes_peak", 1, 1);
    });
    told.check("service_warm_copy_hog", |case| {
        let record = case.record();
        is_copy(&record);
        assert_eq!(record["ending"]["cause"], "memory", "{record:#}");
    });
}

/// An ordinary user with no group of their own: resource limits and a watching supervisor.
fn session(told: &Told) {
    told.check("session_plain", |case| {
        let record = case.exited(0);
        assert_eq!(record["stdout"]["data"], "1000\n");
        let expected = ["poll", "poll", "rlimit", "affinity"];
        assert_eq!(enforcers(&record), expected);
    });
    told.check("session_memory_hog", |case| case.stopped_by("memory", 137));
    told.check("session_forks", |case| {
        assert_eq!(case.exited(3)["stdout"]["data"], "made 15\n");
    });
    told.check("session_fork_bomb", |case| {
        // Nothing tells the supervisor that the kernel refuses the forks, so they go on being refused.
        case.stopped_by("wall_time", 124);
        within(&case.record(), "processes_peak", 2, 16);
    });
    told.check("session_cpu_burners", |case| {
        case.stopped_by("cpu_time", 152);
        within(&case.record(), "cpu_ms", 500, 1000);
    });
    told.check("session_host_backend", |case| {
        assert_eq!(case.exited(0)["enforced_by"]["processes"], "waived");
    });
}

const OLD: [&str; 3] = [
    "./file OWNER old",
    "./gone/deep/file OWNER old",
    "./kept/file OWNER old",
];
const NEW: [&str; 3] = [
    "./file OWNER new",
    "./kept/file OWNER old",
    "./made/file OWNER x",
];

fn workspaces(told: &Told) {
    for (at, owner) in [
        ("root_on_disk_of_0", "0"),
        ("root_on_disk_of_1000", "1000"),
        ("root_on_tmp_of_1000", "1000"),
        ("user_on_disk", "1000"),
        ("user_on_tmp", "1000"),
    ] {
        read_only(told, at);
        copy_on_write(told, at, owner);
        told.check(&format!("{at}_rw"), |case| {
            let record = case.exited(0);
            assert_eq!(record["stdout"]["data"], "1000\nfile\ngone\nkept\nmade\n");
            assert_eq!(record["changes"], Value::Null);
        });
        told.check(&format!("{at}_rw_look"), |case| {
            assert_eq!(case.out, NEW.map(|line| line.replace("OWNER", owner)));
        });
    }
    // Root's own files on a file system that this kernel cannot map: readable, and a clear refusal for the rest.
    read_only(told, "root_on_tmp_of_0");
    for access in ["cow", "cow_remove", "rw"] {
        told.check(&format!("root_on_tmp_of_0_{access}"), |case| {
            case.refused("backend.unavailable");
        });
    }
    for look in ["cow_look", "rw_look"] {
        told.check(&format!("root_on_tmp_of_0_{look}"), |case| {
            assert_eq!(case.out, OLD.map(|line| line.replace("OWNER", "0")));
        });
    }
}

fn read_only(told: &Told, at: &str) {
    told.check(&format!("{at}_ro"), |case| {
        let record = case.exited(1);
        assert_eq!(record["stdout"]["data"], "old\n");
        assert_eq!(
            record["stderr"]["data"],
            "sh: can't create file: Read-only file system\n"
        );
    });
}

fn copy_on_write(told: &Told, at: &str, owner: &str) {
    told.check(&format!("{at}_cow"), |case| {
        let record = case.exited(0);
        assert_eq!(record["stdout"]["data"], "1000\nfile\ngone\nkept\nmade\n");
        let expected = json!([
            {"path": "file", "kind": "modified"},
            {"path": "gone/deep/file", "kind": "deleted"},
            {"path": "made", "kind": "added"},
            {"path": "made/file", "kind": "added"},
        ]);
        assert_eq!(record["changes"], expected);
    });
    told.check(&format!("{at}_cow_remove"), |case| {
        // Before Linux 6.6 tmpfs has no user attributes, and without them overlayfs cannot hide a directory that is not empty. It says so, and nothing
        // pretends that it worked.
        let record = case.exited(1);
        assert_eq!(
            record["stderr"]["data"],
            "rm: can't remove 'gone/deep': Input/output error\n"
        );
        let expected = json!([{"path": "gone/deep/file", "kind": "deleted"}]);
        assert_eq!(record["changes"], expected);
    });
    told.check(&format!("{at}_cow_look"), |case| {
        assert_eq!(case.out, OLD.map(|line| line.replace("OWNER", owner)));
    });
}

fn old_kernel(told: &Told) {
    told.check("facts", |case| {
        assert!(case.out[0].starts_with("6.1."), "{:?}", case.out);
    });
    told.check("inside", |case| {
        let record = case.exited(0);
        // Init is hidden, and there is no network device but loopback, which is up.
        assert_eq!(
            record["stderr"]["data"],
            "ls: /proc/1: No such file or directory\n"
        );
        let stdout = record["stdout"]["data"].as_str().unwrap();
        let lines: Vec<&str> = stdout.lines().collect();
        assert!(lines[0].starts_with("1: lo: <LOOPBACK,UP"), "{stdout}");
        assert_eq!(lines[1..], ["0::/"]);
    });
    told.check("denied_call", |case| {
        let expected = json!([{"kind": "syscall", "what": "unshare", "count": 1}]);
        assert_eq!(case.exited(1)["denials"], expected);
    });
    told.check("given_root", |case| case.refused("backend.unavailable"));
    for name in ["given_root_on_disk", "given_root_as_user"] {
        told.check(name, |case| {
            let stdout = case.exited(0)["stdout"]["data"].clone();
            assert_eq!(stdout, "bin\ndev\netc\nhome\nproc\ntmp\nusr\n");
        });
    }
    told.check("stdin", |case| {
        assert_eq!(case.exited(0)["stdout"]["data"], "text\n");
    });
    told.check("doctor", |case| {
        assert_eq!((case.rc, &case.err), (0, &vec![]))
    });
    told.check("mounts_left", |case| assert_eq!(case.out, [""; 0]));
}

/// On version 2 groups and without them, whatever the machine's clock says.
fn the_same_each_time(told: &Told) {
    let first = std::cell::RefCell::new(Value::Null);
    for (name, enforcer) in [
        ("fixed_before", "cgroup2"),
        ("fixed_after", "cgroup2"),
        ("fixed_user", "poll"),
    ] {
        told.check(name, |case| {
            let record = case.record();
            assert_eq!(record["enforced_by"]["memory"], enforcer);
            let determinism = &record["determinism"];
            let clock = determinism["clock"].as_str().unwrap();
            assert!(clock.starts_with("fixed: "), "{determinism:#}");
            let stdout = record["stdout"]["data"].clone();
            let lines: Vec<&str> = stdout.as_str().unwrap().lines().collect();
            assert!(lines[0].starts_with("946684800."), "{lines:#?}");
            assert_eq!(lines[1..3], ["946684801", "2"], "{lines:#?}");
            let mut first = first.borrow_mut();
            if first.is_null() {
                *first = stdout.clone();
            }
            assert_eq!(*first, stdout);
        });
    }
}

fn enforcers(record: &Value) -> [&str; 4] {
    let by = &record["enforced_by"];
    ["cpu_time", "memory", "processes", "cpus"].map(|limit| by[limit].as_str().unwrap_or("absent"))
}

fn within(record: &Value, figure: &str, least: u64, most: u64) {
    let value = record["usage"][figure].as_f64();
    let (least, most) = (least as f64, most as f64);
    assert!(
        value.is_some_and(|value| (least..=most).contains(&value)),
        "{figure} is {value:?}, not within {least} to {most}"
    );
}

/// 500 ms of CPU time at half a CPU: it took about a second, and no CPU time was lost.
fn half_a_cpu(record: &Value) {
    assert_eq!(record["enforced_by"]["cpus"], "cgroup2");
    within(record, "cpu_ms", 500, 900);
    within(record, "wall_ms", 850, 3000);
}
