//! What bubblewrap alone makes necessary: bwrap is not ours, and it must neither be reached from inside nor reach what is ours.

use cofferdam_testkit::{Need, Way, host};

#[test]
fn nothing_of_the_supervisor_reaches_the_program_through_bwrap() {
    let host = host!(Need::Bubblewrap, Need::Root);
    let look = "for p in 1 2; do cat /proc/$p/environ; ls -l /proc/$p/fd/ 2>&1 | grep -c -- '->'; head -c 1 /proc/$p/mem; done; ls /proc/self/fd | wc -l; cat /proc/self/loginuid; cat /proc/keys | wc -l";
    let run = host
        .launch(["run", "--backend", "bubblewrap", "--", "sh", "-c", look])
        .env("A_SECRET", "of the supervisor")
        .json()
        .finish();
    run.assert_success();
    let out = run.out();
    assert!(
        !out.contains("A_SECRET") && !run.err().contains("A_SECRET"),
        "{run:#?}"
    );
    // No link of a descriptor can be read, no environment, no memory. Four descriptors: three streams and the listing itself.
    assert!(out.starts_with("0\n0\n4\n"), "{run:#?}");
    assert_eq!(
        run.err().matches("Permission denied").count() % 2,
        0,
        "{run:#?}"
    );
    let uid = run.record()["isolation"]["uid"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        uid.starts_with("1000 (outside ") && !uid.contains("outside 0)"),
        "{uid}"
    );
}

#[test]
fn no_variable_of_the_request_reaches_bwraps_own_loader() {
    let host = host!(Need::Bubblewrap);
    for way in Way::all() {
        let mut args = vec![
            "run",
            "--backend",
            "bubblewrap",
            "--env",
            "LD_PRELOAD=/work/evil.so",
            "--env",
            "LD_DEBUG=files",
        ];
        if !way.has_cgroups() {
            args.extend(["--waive", "memory"]);
        }
        args.extend(["--", "/bin/sh", "-c", "echo $LD_PRELOAD"]);
        let run = host.launch(args).way(way).json().finish();
        assert_eq!(run.out(), "/work/evil.so\n", "{run:#?}");
        assert!(!run.err().contains("bwrap"), "{run:#?}");
    }
}

#[test]
fn calls_that_the_policy_refuses_are_refused_there_too() {
    let host = host!(Need::Bubblewrap, Need::Python);
    let call = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); \
        print([(libc.syscall(n, 0, 0, 0, 0, 0), ctypes.get_errno()) for n in (101, 272, 321, 165)])";
    let args = [
        "run",
        "--backend",
        "bubblewrap",
        "--waive",
        "memory",
        "--",
        "python3",
        "-c",
        call,
    ];
    for way in Way::all() {
        let run = host.launch(args).way(way).json().finish();
        // ptrace, unshare of nothing is allowed, bpf, mount
        assert!(run.out().starts_with("[(-1, 1)"), "{way:?}: {run:#?}");
        assert!(run.out().contains("(-1, 1)]"), "{way:?}: {run:#?}");
    }
}
