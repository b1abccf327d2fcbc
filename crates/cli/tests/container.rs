//! The binary inside a real container, started by a Docker daemon of its own, as people run it there: an ordinary user or a root without privileges, no
//! control groups to write, and a /proc that Docker has masked or not. The daemon, its files and its control groups are gone afterwards.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "the functions beside a test are as much test as it is"
)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

#[test]
fn container_without_privileges_holds_every_limit() {
    let Some(docker) = Docker::start() else {
        return;
    };
    let inside = |args: &[&str]| docker.run(USER, &[NO_SECCOMP], args);

    let record = exited(
        0,
        &inside(&["--", "sh", "-c", "id -u; echo $HOME; ls /proc"]),
    );
    assert_eq!(record["stdout"]["data"], "1000\n/home/sandbox\n");
    assert_eq!(record["isolation"]["proc"], "absent");
    assert_eq!(record["isolation"]["uid"], "1000 (outside 1000)");
    let expected = json!({
        "wall_time": "supervisor",
        "cpu_time": "poll",
        "memory": "poll",
        "output": "supervisor",
        "processes": "rlimit",
        "disk": "tmpfs+rlimit",
        "open_files": "rlimit",
        "cpus": "unlimited",
    });
    assert_eq!(record["enforced_by"], expected);

    stopped_by(
        "wall_time",
        124,
        &inside(&["--timeout", "300ms", "--", "sleep", "1000"]),
    );
    stopped_by(
        "cpu_time",
        152,
        &inside(&["--cpu-time", "300ms", "--", "actor", "burn", "3", "0"]),
    );
    stopped_by(
        "memory",
        137,
        &inside(&["--memory", "64m", "--", "actor", "memory-held", "256"]),
    );
    stopped_by(
        "output",
        153,
        &inside(&["--output-limit", "64k", "--", "yes"]),
    );
    let flood = ["dd", "if=/dev/zero", "of=/tmp/file", "bs=64k", "count=512"];
    stopped_by(
        "disk",
        153,
        &inside(&[&["--disk", "2m", "--"], &flood[..]].concat()),
    );
    let record = exited(3, &inside(&["--pids", "8", "--", "actor", "forks", "32"]));
    assert_eq!(record["stdout"]["data"], "made 7\n");
    let record = exited(0, &inside(&["--cpus", "1", "--", "nproc"]));
    assert_eq!(record["enforced_by"]["cpus"], "affinity");
    assert_eq!(record["stdout"]["data"], "1\n");
    refused(
        "limit.unenforceable",
        &inside(&["--cpus", "0.5", "--", "true"]),
    );
}

#[test]
fn container_setting_decides_what_is_seen_and_whether_anything_runs() {
    let Some(docker) = Docker::start() else {
        return;
    };
    let id = ["--", "id", "-u"];

    let unmasked = docker.run(USER, &[NO_SECCOMP, "systempaths=unconfined"], &id);
    assert_eq!(exited(0, &unmasked)["isolation"]["proc"], "own");

    // Docker's own filter forbids new namespaces to whoever has no CAP_SYS_ADMIN.
    refused("backend.unavailable", &docker.run(USER, &[], &id));
    refused("backend.unavailable", &docker.run(ROOT, &[], &id));

    let root = exited(0, &docker.run(ROOT, &[NO_SECCOMP], &id));
    assert_eq!(root["stdout"]["data"], "1000\n");
    assert_eq!(root["isolation"]["uid"], "1000 (outside 0)");
    assert_eq!(root["enforced_by"]["memory"], "poll");

    // The kernel lets nobody give root's id to a user namespace without CAP_SETFCAP.
    refused(
        "backend.unavailable",
        &docker.run(BARE_ROOT, &[NO_SECCOMP], &id),
    );
}

/// The first process of a container is often an application that waits for its own children only: what is orphaned there stays until the container ends.
#[test]
fn container_whose_first_process_reaps_nothing_fills_with_nothing() {
    let Some(docker) = Docker::start() else {
        return;
    };
    let again = ["actor", "again", "8", "cofferdam", "run", "--", "true"];
    let output = docker.start_container(USER, &[NO_SECCOMP], &again);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "left 0\n");
}

/// Who the binary is in the container.
type Who = &'static [&'static str];
const USER: Who = &["--user", "1000:1000", "--cap-drop", "ALL"];
/// With the capabilities that Docker leaves to root.
const ROOT: Who = &["--user", "0:0"];
const BARE_ROOT: Who = &["--user", "0:0", "--cap-drop", "ALL"];
const NO_SECCOMP: &str = "seccomp=unconfined";

fn record(output: &Output) -> Value {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((stdout.lines().count(), &*stderr), (1, ""), "{stdout}");
    serde_json::from_str(&stdout).unwrap()
}

fn exited(code: i32, output: &Output) -> Value {
    let record = record(output);
    let ending = (&record["ending"]["kind"], &record["exit_code"]);
    assert_eq!(ending, (&json!("exited"), &json!(code)), "{record}");
    assert_eq!(output.status.code(), Some(code));
    record
}

fn stopped_by(cause: &str, code: i32, output: &Output) {
    let record = record(output);
    let ending = (&record["ending"]["kind"], &record["ending"]["cause"]);
    assert_eq!(ending, (&json!("stopped"), &json!(cause)), "{record}");
    assert_eq!(output.status.code(), Some(code));
}

/// One line with a stable code, and nothing ran.
fn refused(code: &str, output: &Output) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(output.stdout.is_empty());
    let is_clear = stderr.starts_with("cofferdam: ") && stderr.ends_with(&format!(" [{code}]\n"));
    assert!(is_clear && stderr.lines().count() == 1, "{stderr}");
}

/// A Docker daemon of this test's own. Everything of it lies in one directory, but for its control groups, which have a name of their own.
struct Docker {
    daemon: Child,
    dir: tempfile::TempDir,
    groups: String,
}

/// The daemon mounts and writes outside the directories that it is given too, so it sees copies of /run and /etc of its own.
const PRIVATELY: &str = r#"
cp -a /etc "$1/etc"
mount --bind "$1/etc" /etc
mount -t tmpfs tmpfs /run
shift
exec dockerd "$@"
"#;

const IMAGE: &str = "cofferdam-test";
const TOOLS: [&str; 8] = [
    "unshare", "dockerd", "docker", "busybox", "gcc", "strip", "tar", "setpriv",
];

impl Docker {
    /// `None` after saying what is missing; in CI that is a failure.
    fn start() -> Option<Self> {
        let is_root = rustix::process::geteuid().is_root();
        let missing = TOOLS.into_iter().find(|tool| which(tool).is_none());
        if let Some(missing) = missing.or((!is_root).then_some("root")) {
            let why = format!("the container tests need {missing}");
            assert!(std::env::var_os("CI").is_none(), "{why}");
            eprintln!("SKIPPED (1): {why}");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let groups = format!("docker-of-test-{}", std::process::id());
        let at = |name: &str| dir.path().join(name);
        // Ends with this process, however that ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--", "unshare", "--mount"]);
        command.args(["sh", "-ec", PRIVATELY, "sh"]).arg(dir.path());
        command.arg("--data-root").arg(at("data"));
        command.arg("--exec-root").arg(at("exec"));
        command.arg("--pidfile").arg(at("pid"));
        command.arg("--host").arg(socket(dir.path()));
        command.arg("--cgroup-parent").arg(format!("/{groups}"));
        command.args([
            "--storage-driver",
            "vfs",
            "--bridge",
            "none",
            "--iptables=false",
        ]);
        command.args(["--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let daemon = command.spawn().unwrap();
        let mut docker = Self {
            daemon,
            dir,
            groups,
        };
        docker.await_socket();
        docker.import();
        Some(docker)
    }

    /// The daemon says when it listens; what it says after that is read so that it can go on.
    fn await_socket(&mut self) {
        let mut log = BufReader::new(self.daemon.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("API listen on") {
            let read = log.read_line(&mut said).unwrap();
            assert!(read > 0, "dockerd ended: {said}");
        }
        std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
    }

    /// An image with busybox, the binary under test and the program that plays the parts.
    fn import(&self) {
        let root = self.dir.path().join("image");
        let bin = root.join("usr/bin");
        fs::create_dir_all(&bin).unwrap();
        std::os::unix::fs::symlink("usr/bin", root.join("bin")).unwrap();
        let busybox = which("busybox").unwrap();
        fs::copy(&busybox, bin.join("busybox")).unwrap();
        let applets = succeed(Command::new(&busybox).arg("--list"));
        for applet in applets.lines().filter(|&applet| applet != "busybox") {
            std::os::unix::fs::symlink("busybox", bin.join(applet)).unwrap();
        }
        let binary = env!("CARGO_BIN_EXE_cofferdam");
        succeed(
            Command::new("strip")
                .arg("-o")
                .arg(bin.join("cofferdam"))
                .arg(binary),
        );
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/actor.c");
        succeed(
            Command::new("gcc")
                .args(["-O1", "-static", "-o"])
                .arg(bin.join("actor"))
                .arg(source),
        );
        // Docker makes /proc, /sys and /dev; the scratch file system is put on /tmp.
        fs::create_dir(root.join("tmp")).unwrap();
        let archive = self.dir.path().join("image.tar");
        succeed(
            Command::new("tar")
                .arg("-C")
                .arg(&root)
                .arg("-cf")
                .arg(&archive)
                .arg("."),
        );
        succeed(self.client().arg("import").arg(&archive).arg(IMAGE));
    }

    /// `cofferdam run --json` with these arguments in a new container.
    fn run(&self, who: Who, security: &[&str], args: &[&str]) -> Output {
        let command = [&["cofferdam", "run", "--json"], args].concat();
        self.start_container(who, security, &command)
    }

    fn start_container(&self, who: Who, security: &[&str], command: &[&str]) -> Output {
        let mut client = self.client();
        client.args(["run", "--rm", "--network", "none"]).args(who);
        for option in security {
            client.args(["--security-opt", option]);
        }
        client.arg(IMAGE).args(command);
        client.stdin(Stdio::null()).output().unwrap()
    }

    fn client(&self) -> Command {
        let mut client = Command::new("docker");
        client.arg("--host").arg(socket(self.dir.path()));
        client.env("DOCKER_CONFIG", self.dir.path().join("client"));
        client
    }
}

impl Drop for Docker {
    /// The daemon ends its containers and its containerd before itself.
    fn drop(&mut self) {
        let pid = i32::try_from(self.daemon.id()).ok();
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.daemon.wait();
        // One in each hierarchy of version 1, or just one.
        let hierarchies = fs::read_dir("/sys/fs/cgroup")
            .into_iter()
            .flatten()
            .flatten();
        let hierarchies = hierarchies.map(|entry| entry.path());
        for hierarchy in hierarchies.chain([PathBuf::from("/sys/fs/cgroup")]) {
            let _ = fs::remove_dir(hierarchy.join(&self.groups));
        }
    }
}

fn socket(dir: &Path) -> String {
    format!("unix://{}", dir.join("socket").display())
}

fn which(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut dirs = std::env::split_paths(&path).chain(system);
    dirs.find_map(|dir| Some(dir.join(tool)).filter(|path| path.is_file()))
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}
