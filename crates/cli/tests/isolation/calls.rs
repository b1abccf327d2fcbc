//! System calls that lead out of a sandbox, and what a program may still do.

use std::collections::BTreeMap;

use cofferdam_testkit::hostile::Hostile;
use cofferdam_testkit::{Need, Way, host};

/// Refused without a word, since libraries merely ask whether they exist; the last one is gone from the kernel itself.
const QUIET: [&str; 3] = ["clone3", "io_uring_setup", "lookup_dcookie"];

#[test]
fn calls_that_lead_out_are_refused_and_named_in_the_record() {
    let host = host!(Need::Gcc);
    let calls = Hostile::Calls.compile();
    for way in Way::all() {
        let run = host
            .launch(["run", "--mount", &calls.mount(), "--", &calls.inside()])
            .way(way)
            .json()
            .finish();
        run.assert_success();
        let mut tried: BTreeMap<String, u64> = BTreeMap::new();
        let out = run.out();
        for line in out.lines() {
            let (name, errno) = line.split_once(' ').unwrap();
            assert_ne!(errno, "0", "{way:?}: `{name}` was granted: {run:#?}");
            *tried.entry(name.to_owned()).or_default() += 1;
        }
        assert!(tried.len() > 45, "{run:#?}");
        for (name, count) in tried
            .into_iter()
            .filter(|(name, _)| !QUIET.contains(&name.as_str()))
        {
            // A raw socket of ping's protocol is the kernel's own to refuse.
            let refused_by_us = if name == "socket" { count - 1 } else { count };
            assert_eq!(
                run.denied(&name),
                refused_by_us,
                "{way:?}: `{name}` is missing among the denials: {run:#?}"
            );
        }
    }
}

#[test]
fn a_refused_call_does_not_end_the_program() {
    let host = host!(Need::Python);
    let script = "import ctypes; c = ctypes.CDLL(None, use_errno=True); print(c.unshare(0x10000000), ctypes.get_errno())";
    let run = host.json(["run", "--", "python3", "-c", script]);
    run.assert_success();
    assert_eq!(run.out(), "-1 1\n");
    assert_eq!(
        run.record()["denials"],
        serde_json::json!([{"kind": "syscall", "what": "unshare", "count": 1}])
    );
}

/// Interpreters load and threads, pipes, sockets and subprocesses work: a sandbox that refuses too much is not used.
#[test]
fn ordinary_programs_are_refused_nothing() {
    let host = host!(Need::Python);
    let script = "
import threading, subprocess, socket, tempfile, os, mmap, time, json
thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
assert subprocess.run(['echo', 'hi'], capture_output=True).stdout == b'hi\\n'
a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'
with tempfile.NamedTemporaryFile() as f: f.write(b'x'); f.flush(); os.fsync(f.fileno())
m = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m[0] = 1
time.sleep(0.001); print('fine')
";
    for way in Way::all() {
        let run = host
            .launch(["run", "--", "python3", "-c", script])
            .way(way)
            .json()
            .finish();
        assert_eq!(
            (run.out().as_str(), run.code()),
            ("fine\n", 0),
            "{way:?}: {run:#?}"
        );
        assert_eq!(run.record()["denials"], serde_json::json!([]), "{way:?}");
    }
}
