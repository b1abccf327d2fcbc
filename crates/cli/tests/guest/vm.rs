//! Boots the guest and reads what it tells. Knows where `cargo xtask test` puts kernel and emulator; knows nothing of the cases.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::told::{Case, Told};

/// Five times what it takes on a quiet machine; tests that run beside this one take their share.
const DEADLINE: Duration = Duration::from_secs(200);

/// What a guest is booted from.
pub(crate) struct Vm {
    kernel: PathBuf,
    modules: Vec<PathBuf>,
    emulator: PathBuf,
}

/// Not part of the kernel image.
const MODULES: [&str; 2] = ["fs/overlayfs/overlay.ko", "drivers/block/loop.ko"];

impl Vm {
    /// `None` after saying what is missing; in CI that is a failure.
    pub(crate) fn find() -> Option<Self> {
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
    pub(crate) fn boot(&self) -> Told {
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
        Told::new(cases)
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
        succeed(
            Command::new("sh")
                .args(["-c", include_str!("python.sh"), "python.sh"])
                .arg(&system),
        );
        for module in &self.modules {
            fs::copy(
                module,
                system.join("modules").join(module.file_name().unwrap()),
            )
            .unwrap();
        }
        fs::write(system.join("cases.sh"), include_str!("cases.sh")).unwrap();
        fs::write(root.join("init"), include_str!("init.sh")).unwrap();
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
