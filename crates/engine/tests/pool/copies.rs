//! Copies of an interpreter that waits: what a script says, sees and may do is what it would be after a cold start.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_contract::io_rates::IoRates;
use cofferdam_contract::limits::Limits;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{Request, Workspace, WorkspaceAccess};
use cofferdam_contract::units::{Bytes, Cap, CpuShare};
use cofferdam_engine::pool::Private;

use crate::place::{
    KNOWN, PYTHON_ENV, Place, ROOMY, assert_nothing_is_left, kill_and_wait, place, request,
};

pub(crate) fn python(limits: Limits) -> Request {
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
fn both(place: &Place, script: &str, limits: &Limits) -> Result<[RunRecord; 2], Box<dyn Error>> {
    let copied = copied(place, script, python(limits.clone()))?;
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("main.py"), script)?;
    let mut cold = python(limits.clone());
    cold.workspace = Some(writable(dir.path()));
    Ok([copied, place.run(None, cold)?])
}

/// Where an interpreter took too long, on a machine that has much else to do, runs start cold for some seconds.
pub(crate) fn copied(
    place: &Place,
    script: &str,
    request: Request,
) -> Result<RunRecord, Box<dyn Error>> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let record = run_once(place, script, request.clone())?;
        match record.isolation.get("start").map(String::as_str) {
            Some("copy of a waiting python3") => return Ok(record),
            None if Instant::now() < until => std::thread::sleep(Duration::from_millis(500)),
            _ => return Err(format!("no copy: {record:?}").into()),
        }
    }
}

fn run_once(
    place: &Place,
    script: &str,
    mut request: Request,
) -> Result<RunRecord, Box<dyn Error>> {
    let mut seat = place.seat(&request, Private::Workspace)?;
    let workspace = seat.take_workspace().ok_or("no workspace")?;
    std::fs::write(workspace.path().join("main.py"), script)?;
    request.workspace = Some(writable(workspace.path()));
    place.run(Some(seat), request)
}

fn writable(path: &Path) -> Workspace {
    Workspace {
        path: path.to_owned(),
        access: WorkspaceAccess::ReadWrite,
    }
}

#[test]
fn a_script_cannot_tell_by_what_it_usually_looks_at() {
    let place = place(ROOMY).unwrap();
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
    let [copied, cold] = both(&place, script, &Limits::DEFAULT).unwrap();
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

#[test]
fn whatever_way_a_script_ends_it_ends_like_a_cold_one() {
    let place = place(ROOMY).unwrap();
    let scripts = [
        "print('plain')",
        // Compiled ahead, and one that only looks like it.
        KNOWN,
        "print('Known')\n",
        "import sys; sys.exit(3)",
        "import sys; sys.exit('told')",
        "import sys; sys.exit(None)",
        "raise SystemExit(256 + 7)",
        "def f():\n    raise ValueError('deep')\nf()",
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('second') from error",
        "this is no python",
        "x = '\\x00' * 3\n  bad indent",
        "raise KeyboardInterrupt",
        "import os; os._exit(5)",
        "import os; os.kill(os.getpid(), 15)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os; os.abort()",
        "import ctypes; ctypes.string_at(0)",
        "import atexit; atexit.register(print, 'at exit'); print('before')",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\nprint('main')",
        "class C:\n    def __del__(self):\n        print('gone')\nc = C()\nprint('here')",
        "import sys\nsys.excepthook = lambda *a: print('hooked', a[0].__name__)\nraise OSError(1)",
        "import sys; sys.stdout.close(); sys.stderr.write('closed\\n')",
        "import subprocess; print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout)",
        "import os\npid = os.fork()\nif pid == 0:\n    print('child', flush=True); os._exit(4)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
        "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n    with m.get_context('fork').Pool(2) as p: print(p.map(f, [1, 2, 3]))",
        "import os; os.execv('/bin/echo', ['echo', 'another program'])",
        "import signal, os\nsignal.signal(signal.SIGUSR1, lambda *a: print('signal'))\nos.kill(os.getpid(), signal.SIGUSR1)",
        "import pickle, __main__\nclass P: pass\nprint(type(pickle.loads(pickle.dumps(P()))).__module__, __main__.__file__)",
        "import asyncio\nasync def f(): return 'awaited'\nprint(asyncio.run(f()))",
        "def f(n): return f(n + 1)\nf(0)",
        "open('made', 'w').write('x'); import os; print(sorted(os.listdir()))",
        "import os; print(os.readlink('/proc/self/exe'), open('/proc/self/comm').read())",
        // What is open at the end reaches its file, whoever holds it.
        "class Holder:\n    file = open('kept', 'w')\nHolder.file.write('abc')\nHolder.me = Holder\nimport atexit, os\nos.register_at_fork()\nprint('held')",
        "import sys\nclass Tee:\n    def __init__(self, to): self.to = to\n    def write(self, text): self.to.write(text)\n    def flush(self): self.to.flush()\nsys.stdout = Tee(sys.stdout)\nprint('tee')",
        "print(__annotations__, __file__)",
        "import time, threading; print(time.clock_gettime(time.pthread_getcpuclockid(threading.get_ident())) > 0)",
        "import site; print(site.USER_SITE, site.ENABLE_USER_SITE)",
        "print(input() if False else 'é', ascii('é'))",
    ];
    for script in scripts {
        let [copied, cold] = both(&place, script, &Limits::DEFAULT).unwrap();
        let told = |record: &RunRecord| {
            // A stack that ran over is cut at a depth that depends on what is below it.
            let stderr = match script.contains("f(n + 1)") {
                true => record
                    .stderr
                    .data
                    .lines()
                    .last()
                    .unwrap_or_default()
                    .to_owned(),
                false => record.stderr.data.clone(),
            };
            (
                record.exit_code,
                record.signal.clone(),
                record.stdout.data.clone(),
                stderr,
            )
        };
        assert_eq!(told(&copied), told(&cold), "{script}");
    }
}

#[test]
fn a_program_among_the_words_runs_as_a_cold_one_does() {
    let place = place(ROOMY).unwrap();
    let programs = [
        "print(1)",
        "import os, sys; print(sys.argv, sys.path, sys.flags, sys.orig_argv, sorted(globals()), __name__, __loader__, __spec__, sorted(os.environ.items()), os.getcwd())",
        "import sys; print(sys.stdout.encoding, sys.stdout.errors, sys.stdout.line_buffering, sys.stdout.write_through, sys.dont_write_bytecode, sys.executable)",
        "import helper; print(helper.OWN, helper.__file__)",
        "import json; print(json.OWN)",
        "def f():\n    raise ValueError('deep')\nf()",
        "print('é', ascii('é'))\nthis is no python",
        "  indented = 1",
        "",
        "import sys; sys.exit(3)",
        "print('no newline', end=''); raise KeyboardInterrupt",
        "import inspect\ndef f(): pass\ntry:\n    inspect.getsource(f)\nexcept OSError as error:\n    print(error)",
        "import pickle, __main__\nclass P: pass\nprint(type(pickle.loads(pickle.dumps(P()))).__module__, hasattr(__main__, '__file__'))",
        "# -*- coding: latin-1 -*-\nprint('é')",
        "import os; print(sorted(os.listdir()))",
    ];
    let kinds = [
        ("python3", PYTHON_ENV.as_slice()),
        ("python3", &[]),
        ("/usr/bin/python3", &[]),
    ];
    for ((name, kind), program) in kinds
        .into_iter()
        .flat_map(|kind| programs.map(|program| (kind, program)))
    {
        let request = Request {
            argv: [name, "-c", program, "-x", "two"].map(Into::into).to_vec(),
            env: kind
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            ..request("", Limits::DEFAULT)
        };
        let beside = [("helper.py", "OWN = 1\n"), ("json.py", "OWN = 2\n")];
        let mut seat = place.seat(&request, Private::Workspace).unwrap();
        let workspace = seat.take_workspace().unwrap();
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in beside {
            std::fs::write(workspace.path().join(name), text).unwrap();
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let within = |path: &Path| Request {
            workspace: Some(writable(path)),
            ..request.clone()
        };
        let copied = place.run(Some(seat), within(workspace.path())).unwrap();
        let cold = place.run(None, within(dir.path())).unwrap();
        let start = copied.isolation.get("start").map(String::as_str);
        assert_eq!(start, Some("copy of a waiting python3"), "{copied:?}");
        let told = |record: &RunRecord| {
            let streams = (record.stdout.data.clone(), record.stderr.data.clone());
            (record.exit_code, record.signal.clone(), streams)
        };
        assert_eq!(told(&copied), told(&cold), "{program}");
    }
}

#[test]
fn what_a_script_leaves_open_is_written_and_its_own_modules_are_found() {
    let place = place(ROOMY).unwrap();
    let helper = "file = open('by_helper', 'w')\nfile.write('abcd')\n";
    let script = "import helper, resource, random\nclass Holder:\n    pass\nh = Holder()\nh.file = open('in_a_circle', 'w')\nh.me = h\nh.file.write('xyz')\nprint(resource.OWN, random.OWN)\n";
    let request = python(Limits::DEFAULT);
    let mut seat = place.seat(&request, Private::Workspace).unwrap();
    let workspace = seat.take_workspace().unwrap();
    let files = [
        ("main.py", script),
        ("helper.py", helper),
        ("resource.py", "OWN = 1\n"),
        ("random.py", "OWN = 2\n"),
    ];
    for (name, text) in files {
        std::fs::write(workspace.path().join(name), text).unwrap();
    }
    let mut request = request;
    request.workspace = Some(writable(workspace.path()));
    let record = place.run(Some(seat), request).unwrap();
    assert_eq!(record.stdout.data, "1 2\n", "{record:?}");
    let read = |name: &str| std::fs::read_to_string(workspace.path().join(name)).unwrap();
    assert_eq!(
        (read("by_helper").as_str(), read("in_a_circle").as_str()),
        ("abcd", "xyz")
    );
}

#[test]
fn files_without_a_name_count_for_copies_too() {
    let place = place(ROOMY).unwrap();
    let mut limits = Limits::DEFAULT;
    limits.disk = Cap::AtMost(Bytes::new(4 << 20));
    limits.wall_time = Cap::AtMost(Duration::from_secs(20));
    let script = "import os, time\nkept = []\nfor i in range(20):\n    file = open('x%d' % i, 'wb')\n    os.unlink('x%d' % i)\n    file.write(b'x' * (3 << 20))\n    file.flush()\n    kept.append(file)\ntime.sleep(20)\n";
    let record = copied(&place, script, python(limits)).unwrap();
    let told = serde_json::to_value(&record).unwrap();
    assert_eq!(told["ending"]["cause"], "disk", "{told:#}");
}

#[test]
fn limits_hold_for_copies() {
    let place = place(ROOMY).unwrap();
    let limits = |change: fn(&mut Limits)| {
        let mut limits = Limits::DEFAULT;
        change(&mut limits);
        limits
    };
    let cases = [
        (
            "import time; print('partial'); time.sleep(60)",
            limits(|limits| limits.wall_time = Cap::AtMost(Duration::from_millis(200))),
            "wall_time",
        ),
        (
            "print('partial')\nwhile True: pass",
            limits(|limits| limits.cpu_time = Cap::AtMost(Duration::from_millis(200))),
            "cpu_time",
        ),
        (
            "print('partial')\nx = bytearray(200 << 20)",
            limits(|limits| limits.memory = Cap::AtMost(Bytes::new(48 << 20))),
            "memory",
        ),
        (
            "print('partial')\nwhile True: print('x' * 1000)",
            limits(|limits| limits.output = Cap::AtMost(Bytes::new(3000))),
            "output",
        ),
        (
            "print('partial')\nopen('/tmp/x', 'wb').write(b'x' * (8 << 20))",
            limits(|limits| limits.disk = Cap::AtMost(Bytes::new(4 << 20))),
            "disk",
        ),
        (
            "import os, sys\nprint('partial')\ntry:\n    for _ in range(9):\n        if os.fork() == 0:\n            import time; time.sleep(9); os._exit(0)\nexcept OSError:\n    sys.exit(1)",
            limits(|limits| limits.processes = Cap::AtMost(4)),
            "processes",
        ),
    ];
    for (script, limits, cause) in cases {
        let record = copied(&place, script, python(limits)).unwrap();
        let told = serde_json::to_value(&record).unwrap();
        assert_eq!(told["ending"]["cause"], cause, "{told:#}");
        assert!(record.stdout.data.starts_with("partial"), "{told:#}");
    }
    let record = copied(
        &place,
        "x = bytearray(64 << 20)\nfor i in range(3000000): pass",
        python(Limits::DEFAULT),
    )
    .unwrap();
    let memory = record.usage.memory_peak_bytes.unwrap();
    assert!(
        memory > 64 << 20 && memory < 128 << 20,
        "{:?}",
        record.usage
    );
    assert!(record.usage.cpu_ms > 5.0, "{:?}", record.usage);
}

#[test]
fn a_copy_enters_every_group_that_there_is() {
    let place = place(ROOMY).unwrap();
    let mut limits = Limits::DEFAULT;
    limits.cpus = Cap::AtMost(CpuShare::from_milli(500).unwrap());
    if place.host.cgroups.controllers().io {
        limits.disk_io = Cap::AtMost(IoRates {
            read_bps: Some(1 << 30),
            ..IoRates::EMPTY
        });
    }
    // With all of them, and the channel for the answer, the word to go brings as many descriptors as it ever does.
    let script = "import os; os.write(3, b'answer'); print(open('/proc/self/cgroup').read().count('cofferdam-') > 0)";
    let record = copied(&place, script, python(limits)).unwrap();
    assert_eq!(record.stdout.data, "True\n", "{record:?}");
    assert_eq!(record.result.unwrap().data, "answer");
}

#[test]
fn a_copy_has_nothing_of_the_host_or_of_another() {
    let place = place(ROOMY).unwrap();
    let script = r#"
import ctypes, os, random, secrets, socket, uuid
def attempt(work):
    try:
        return work()
    except BaseException as error:
        return type(error).__name__
print("exe", attempt(lambda: os.open("/proc/self/exe", os.O_WRONLY)))
print("usr", attempt(lambda: os.open("/usr/bin/python3", os.O_WRONLY)))
print("up", os.path.samefile("/", "/.."), attempt(lambda: os.listdir("/root")))
print("parents", os.getppid(), [p for p in os.listdir("/proc") if p.isdigit()])
libc = ctypes.CDLL(None, use_errno=True)
print("keyring", libc.syscall(250, 0, -3, 1), "setns", libc.setns(0, 0), "unshare", libc.unshare(0x10000000))
print("network", attempt(lambda: socket.create_connection(("192.0.2.1", 80), 1)), attempt(lambda: socket.create_connection(("127.0.0.1", 9), 1)))
print("namespaces", sorted(os.readlink("/proc/self/ns/" + name) for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")))
print("maps", any(word in open("/proc/self/environ").read() + open("/proc/self/cmdline").read() for word in ("CARGO", "NEXTEST")))
print("random", random.random(), secrets.token_hex(4), uuid.uuid4())
"#;
    let all: Vec<RunRecord> = (0..3)
        .map(|_| copied(&place, script, python(Limits::DEFAULT)).unwrap())
        .collect();
    for record in &all {
        let line = |name: &str| {
            let found = record
                .stdout
                .data
                .lines()
                .find(|line| line.starts_with(name));
            found.unwrap_or_else(|| panic!("{record:#?}")).to_owned()
        };
        assert_eq!(line("exe"), "exe PermissionError");
        assert!(
            line("usr").ends_with("OSError") || line("usr").ends_with("PermissionError"),
            "{}",
            line("usr")
        );
        assert_eq!(line("up"), "up True FileNotFoundError");
        // Init is hidden, and nobody else is there.
        assert!(
            line("parents").starts_with("parents 0 ['"),
            "{}",
            line("parents")
        );
        assert_eq!(
            line("parents").matches('\'').count(),
            2,
            "{}",
            line("parents")
        );
        assert_eq!(line("keyring"), "keyring -1 setns -1 unshare -1");
        assert_eq!(line("network"), "network OSError ConnectionRefusedError");
        assert_eq!(line("maps"), "maps False");
        for name in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
            let host = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
            let line = line("namespaces");
            assert!(!line.contains(&*host.to_string_lossy()), "{line}");
        }
    }
    let own = |record: &RunRecord, name: &str| {
        record
            .stdout
            .data
            .lines()
            .find(|line| line.starts_with(name))
            .map(str::to_owned)
    };
    for (first, second) in [(0, 1), (1, 2), (0, 2)] {
        assert_ne!(own(&all[first], "random"), own(&all[second], "random"));
    }
}

#[test]
fn a_request_that_starts_python_another_way_is_started_cold() {
    let place = place(ROOMY).unwrap();
    let change = [
        |request: &mut Request| request.env.push(("PYTHONHASHSEED".into(), "7".into())),
        |request: &mut Request| request.env.push(("LD_PRELOAD".into(), "x.so".into())),
        |request: &mut Request| drop(request.env.pop()),
        |request: &mut Request| request.argv.insert(1, "-O".into()),
        |request: &mut Request| request.argv[0] = "/bin/python3".into(),
        |request: &mut Request| request.env.push(("PATH".into(), "/work:/usr/bin".into())),
    ];
    // One is there for the usual way.
    drop(
        place
            .seat(&python(Limits::DEFAULT), Private::Workspace)
            .unwrap(),
    );
    for change in change {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("main.py"), "print('ran')").unwrap();
        let mut request = python(Limits::DEFAULT);
        change(&mut request);
        let seat = place.seat(&request, Private::Workspace).unwrap();
        request.workspace = Some(writable(dir.path()));
        let record = place.run(Some(seat), request).unwrap();
        assert_eq!(
            (record.isolation.get("start"), record.stdout.data.as_str()),
            (None, "ran\n"),
            "{record:?}"
        );
    }
}

#[test]
fn an_interpreter_that_was_killed_costs_nothing_but_time() {
    let place = place(ROOMY).unwrap();
    let run = |request: Request| copied(&place, "print('ran')", request).unwrap();
    assert_eq!(run(python(Limits::DEFAULT)).stdout.data, "ran\n");
    for _ in 0..5 {
        // Whatever of it waits: the one that is copied, or a copy in its sandbox.
        for pid in waiting_pythons() {
            kill_and_wait(&pid.to_string());
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("main.py"), "print('ran')").unwrap();
        let mut request = python(Limits::DEFAULT);
        let seat = place.pool.seat(
            &request,
            cofferdam_engine::pipeline::Evidence::Full,
            Private::Workspace,
        );
        request.workspace = Some(writable(dir.path()));
        let record = place.run(seat, request).unwrap();
        assert_eq!(record.stdout.data, "ran\n", "{record:?}");
    }
    let data = place.data.clone();
    drop(place);
    assert_nothing_is_left(&data);
}

fn waiting_pythons() -> Vec<i32> {
    let children = crate::place::children().into_iter();
    let pythons = children.filter(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|comm| comm.trim() == "python3")
    });
    pythons.filter_map(|pid| pid.parse().ok()).collect()
}

#[test]
fn a_copy_waits_in_little_memory_of_its_own() {
    let place = place(ROOMY).unwrap();
    let _seat = place
        .seat(&python(Limits::DEFAULT), Private::Workspace)
        .unwrap();
    let private = |pid: &i32| {
        let rollup =
            std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        // Pages of files that only it has mapped are the page cache's, and cost nothing.
        let lines = rollup
            .lines()
            .filter(|line| line.starts_with("Private_Dirty"));
        let kilobytes =
            lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kilobytes.sum::<u64>()
    };
    let most = waiting_pythons().iter().map(private).collect::<Vec<_>>();
    // The one that is copied has its own; the copies share it.
    assert!(
        most.iter().filter(|&&kilobytes| kilobytes > 1200).count() <= 1,
        "{most:?}"
    );
    assert!(most.len() > 1, "{most:?}");
}
