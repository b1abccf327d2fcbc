//! cgroup v2 for real, on a kernel older than most: boots Debian's cloud kernel under QEMU, without KVM, with nothing but busybox and the binary under test,
//! and judges what `guest/cases.sh` tells over a serial line. `cargo xtask test` fetches kernel and emulator.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
/// A third of this on a quiet machine; tests that run beside this one take their share.
const DEADLINE: Duration = Duration::from_secs(200);

#[test]
fn guest_with_cgroup2_and_an_old_kernel_keeps_every_promise() {
    let Some(vm) = Vm::find() else { return };
    let told = vm.boot();
    root_group(&told);
    service(&told);
    delegated(&told);
    session(&told);
    workspaces(&told);
    old_kernel(&told);
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

/// What the guest told about one case.
#[derive(Debug, Default)]
struct Case {
    out: Vec<String>,
    err: Vec<String>,
    left: Vec<String>,
    rc: i32,
}

impl Case {
    fn record(&self) -> Value {
        assert_eq!((self.out.len(), self.err.as_slice()), (1, [].as_slice()));
        serde_json::from_str(&self.out[0]).unwrap()
    }

    fn exited(&self, code: i32) -> Value {
        let record = self.record();
        let ending = (&record["ending"]["kind"], &record["exit_code"]);
        assert_eq!(ending, (&json!("exited"), &json!(code)));
        assert_eq!(self.rc, code);
        record
    }

    fn stopped_by(&self, cause: &str, rc: i32) {
        let ending = self.record()["ending"].clone();
        let ending = (&ending["kind"], &ending["cause"]);
        assert_eq!(ending, (&json!("stopped"), &json!(cause)));
        assert_eq!(self.rc, rc);
    }

    /// One line with a stable code, and nothing ran.
    fn refused(&self, code: &str) {
        assert_eq!((self.rc, self.out.len(), self.err.len()), (125, 0, 1));
        let line = &self.err[0];
        assert!(
            line.starts_with("cofferdam: ") && line.ends_with(&format!(" [{code}]")),
            "{line}"
        );
    }

    /// Nothing is left is checked for every case.
    fn was_killed(&self) {
        assert_eq!(
            (self.rc, self.out.as_slice()),
            (137, ["it ran".to_owned()].as_slice())
        );
    }
}

/// Everything that the guest told, and which of it did not hold.
struct Told {
    cases: RefCell<BTreeMap<String, Case>>,
    failed: RefCell<Vec<String>>,
}

impl Told {
    /// Judges one case and goes on, so that one boot shows all that is wrong.
    fn check(&self, name: &str, judge: impl FnOnce(&Case)) {
        let case = self.cases.borrow_mut().remove(name);
        let good = case.as_ref().is_some_and(|case| {
            let judged = catch_unwind(AssertUnwindSafe(|| {
                judge(case);
                assert_eq!(case.left, [""; 0], "left behind");
            }));
            judged.is_ok()
        });
        if !good {
            eprintln!("case {name} failed: {case:#?}\n");
            self.failed.borrow_mut().push(name.to_owned());
        }
    }

    fn conclude(self) {
        let unjudged: Vec<String> = self.cases.into_inner().into_keys().collect();
        let failed = self.failed.into_inner();
        assert!(
            failed.is_empty() && unjudged.is_empty(),
            "failed cases: {failed:?}; cases that nothing judges: {unjudged:?}"
        );
    }
}

/// What a guest is booted from.
struct Vm {
    kernel: PathBuf,
    modules: Vec<PathBuf>,
    emulator: PathBuf,
}

/// Not part of the kernel image.
const MODULES: [&str; 2] = ["fs/overlayfs/overlay.ko", "drivers/block/loop.ko"];

impl Vm {
    /// `None` after saying what is missing; in CI that is a failure.
    fn find() -> Option<Self> {
        let vm = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/vm");
        let first = |dir: PathBuf, prefix: &str| {
            let entries = fs::read_dir(dir).ok()?.filter_map(Result::ok);
            let mut paths = entries.map(|entry| entry.path());
            paths.find(|path| {
                path.file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with(prefix))
            })
        };
        let kernel = std::env::var_os("COFFERDAM_TEST_KERNEL")
            .map(PathBuf::from)
            .or_else(|| first(vm.join("kernel/boot"), "vmlinuz-"));
        // The modules lie beside the kernel in the package that both come from.
        let modules = kernel
            .as_ref()
            .and_then(|kernel| first(kernel.parent()?.parent()?.join("lib/modules"), ""));
        let emulator = vm.join("qemu-system-x86_64");
        let tools = ["busybox", "cpio", "gcc", "strip", "setpriv"];
        let missing = tools.into_iter().find(|tool| which(tool).is_none());
        match (kernel, modules, missing) {
            (Some(kernel), Some(modules), None) if emulator.exists() => {
                let modules = MODULES.map(|module| modules.join("kernel").join(module));
                Some(Self {
                    kernel,
                    modules: modules.into(),
                    emulator,
                })
            }
            (.., missing) => {
                let what = missing.unwrap_or("a guest kernel and QEMU in target/vm");
                let why = format!("the guest test needs {what}; `cargo xtask test` gets it");
                assert!(std::env::var_os("CI").is_none(), "{why}");
                eprintln!("SKIPPED (1): {why}");
                None
            }
        }
    }

    /// Boots, lets the guest tell all its cases, and waits until it has powered itself off.
    fn boot(&self) -> Told {
        let dir = tempfile::tempdir().unwrap();
        let initramfs = self.initramfs(dir.path());
        let console = dir.path().join("console");
        // The emulator dies with this process, however that ends.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&self.emulator);
        command.args([
            "-M",
            "q35",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            "768",
        ]);
        command.args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ]);
        command
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(initramfs);
        command.args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off"]);
        command
            .arg("-serial")
            .arg(format!("file:{}", console.display()));
        command.args(["-serial", "stdio"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut emulator = Emulator(command.spawn().unwrap());
        let outcome = listen(&mut emulator.0);
        let cases = outcome.unwrap_or_else(|why| {
            drop(emulator);
            let console = fs::read(&console).unwrap_or_default();
            panic!(
                "{why}; the guest's console:\n{}",
                String::from_utf8_lossy(&console)
            );
        });
        Told {
            cases: RefCell::new(cases),
            failed: RefCell::default(),
        }
    }

    fn initramfs(&self, dir: &Path) -> PathBuf {
        let root = dir.join("root");
        let system = root.join("system");
        let bin = system.join("usr/bin");
        fs::create_dir_all(&bin).unwrap();
        for place in ["dev", "modules", "proc", "sys", "tmp"] {
            fs::create_dir(system.join(place)).unwrap();
        }
        std::os::unix::fs::symlink("usr/bin", system.join("bin")).unwrap();
        fs::copy(which("busybox").unwrap(), bin.join("busybox")).unwrap();
        succeed(
            Command::new("strip")
                .arg("-o")
                .arg(bin.join("cofferdam"))
                .arg(env!("CARGO_BIN_EXE_cofferdam")),
        );
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/actor.c");
        succeed(
            Command::new("gcc")
                .args(["-O1", "-static", "-o"])
                .arg(bin.join("actor"))
                .arg(source),
        );
        for module in &self.modules {
            fs::copy(
                module,
                system.join("modules").join(module.file_name().unwrap()),
            )
            .unwrap();
        }
        fs::write(system.join("cases.sh"), include_str!("guest/cases.sh")).unwrap();
        fs::write(root.join("init"), include_str!("guest/init.sh")).unwrap();
        succeed(Command::new("chmod").arg("755").arg(root.join("init")));
        let archive = dir.join("initramfs");
        let mut pack = Command::new("sh");
        pack.args([
            "-c",
            "find . | cpio --quiet -o -H newc -R 0:0 >../initramfs",
        ]);
        succeed(pack.current_dir(&root));
        archive
    }
}

/// Killed and reaped whatever happens here.
struct Emulator(Child);

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listen(emulator: &mut Child) -> Result<BTreeMap<String, Case>, String> {
    let until = Instant::now() + DEADLINE;
    let stdout = BufReader::new(emulator.stdout.take().ok_or("no stdout")?);
    let (sender, lines) = mpsc::channel();
    // Ends with the emulator, whose end closes the pipe.
    std::thread::spawn(move || {
        stdout
            .split(b'\n')
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(line))
    });
    let mut cases = BTreeMap::new();
    let mut name = String::new();
    let mut case = Case::default();
    loop {
        let line = match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => String::from_utf8_lossy(&line).into_owned(),
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("no end within {DEADLINE:?}, after case `{name}`"));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(format!("the guest ended early, after case `{name}`"));
            }
        };
        let (kind, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match kind {
            "case" => name = rest.to_owned(),
            "out" => case.out.push(rest.to_owned()),
            "err" => case.err.push(rest.to_owned()),
            "left" => case.left.push(rest.to_owned()),
            "rc" => {
                case.rc = rest
                    .parse()
                    .map_err(|_| format!("`{line}` is no exit code"))?;
                let _ = writeln!(
                    std::io::stdout(),
                    "{name} at {:.1} s",
                    (DEADLINE - until.saturating_duration_since(Instant::now())).as_secs_f32()
                );
                cases.insert(name.clone(), std::mem::take(&mut case));
            }
            "done" => return Ok(cases),
            _ => return Err(format!("`{line}` makes no sense, after case `{name}`")),
        }
    }
}

fn which(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(tool))
        .find(|path| path.is_file())
}

fn succeed(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}
