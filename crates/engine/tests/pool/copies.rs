//! Copies of an interpreter that waits: what a script says, sees and may do is what it would be after a cold start.

use std::time::Duration;

use cofferdam_contract::limits::Limits;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{Request, Workspace, WorkspaceAccess};
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_engine::pool::Private;

use crate::place::{PYTHON_ENV, Place, ROOMY, assert_nothing_is_left, place, request};

fn python(limits: Limits) -> Request {
    Request {
        argv: ["python3", "main.py", "one", "two"]
            .map(Into::into)
            .to_vec(),
        env: PYTHON_ENV
            .map(|(name, value)| (name.into(), value.into()))
            .to_vec(),
        ..request("", limits)
    }
}

/// Runs the script as a copy and as a cold start.
fn both(place: &Place, script: &str, limits: &Limits) -> (RunRecord, RunRecord) {
    let copied = copied(place, script, python(limits.clone()));
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("main.py"), script).unwrap();
    let mut cold = python(limits.clone());
    cold.workspace = Some(Workspace {
        path: dir.path().to_owned(),
        access: WorkspaceAccess::ReadWrite,
    });
    (copied, place.run(None, cold).unwrap())
}

fn copied(place: &Place, script: &str, mut request: Request) -> RunRecord {
    let mut seat = place.seat(&request, Private::Workspace).unwrap();
    let workspace = seat.take_workspace().unwrap();
    std::fs::write(workspace.path().join("main.py"), script).unwrap();
    request.workspace = Some(Workspace {
        path: workspace.path().to_owned(),
        access: WorkspaceAccess::ReadWrite,
    });
    let record = place.run(Some(seat), request).unwrap();
    assert_eq!(
        record.isolation.get("start").map(String::as_str),
        Some("copy of a waiting python3"),
        "{record:?}"
    );
    record
}

#[test]
fn a_script_cannot_tell_by_what_it_usually_looks_at() {
    let Some(place) = place(ROOMY).unwrap() else {
        return;
    };
    let script = r#"
import os, sys, time, resource, signal, threading
print(sys.argv, sys.path, sys.flags, __name__, __file__, sys.orig_argv)
print(sorted(os.environ.items()), os.getcwd(), os.getuid(), os.getgid(), os.getgroups())
print(sorted(os.listdir("/proc/self/fd")), os.umask(0), os.getsid(0) == os.getpid())
print({name: resource.getrlimit(getattr(resource, name)) for name in ("RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIMIT_CORE", "RLIMIT_CPU")})
print([line for line in open("/proc/self/status") if line.split(":")[0] in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "SigBlk", "SigIgn")])
print(os.sched_getaffinity(0) and len(os.sched_getaffinity(0)), os.cpu_count())
print(sorted(os.listdir("/")), sorted(os.listdir("/dev")), sorted(os.listdir("/tmp")), os.listdir("/sys/class/net") if os.path.exists("/sys") else None)
print(sys.stdin.read(), sys.stdout.encoding, sys.stdout.line_buffering, sys.stdin.name, sys.stdout.isatty())
print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGPIPE), threading.current_thread().name, len(threading.enumerate()))
print(open("/proc/self/cgroup").read().count("cofferdam-"), open("/proc/self/oom_score_adj").read(), open("/proc/self/personality").read())
print("to stderr", file=sys.stderr)
os.write(3, b"answer")
sys.exit(9)
"#;
    let (copied, cold) = both(&place, script, &Limits::DEFAULT);
    assert_eq!(copied.stdout.data, cold.stdout.data, "{copied:#?}");
    assert_eq!(
        (copied.exit_code, copied.stderr.data.as_str()),
        (Some(9), "to stderr\n"),
        "{copied:?}"
    );
    assert_eq!(copied.result.as_ref().unwrap().data, "answer");
    assert_eq!(copied.enforced_by, cold.enforced_by);
    let data = place.data.clone();
    drop(place);
    assert_nothing_is_left(&data);
}
