//! A Docker daemon of a test's own, with an image that holds busybox. Everything of it lies in one directory, but for its control groups, which have a name of their
//! own; all of it is gone afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::host::Host;
use crate::ready::await_line;
use crate::started::SOON;

/// The daemon.
#[derive(Debug)]
pub struct Dockerd {
    daemon: Child,
    dir: tempfile::TempDir,
    groups: String,
}

/// The daemon mounts and writes outside the directories that it is given too, so it sees copies of /run and /etc of its own. Its network is its own too: a test
/// reaches nothing else through it.
const PRIVATELY: &str = r#"
cp -a /etc "$1/etc"
mount --bind "$1/etc" /etc
mount -t tmpfs tmpfs /run
shift
exec dockerd "$@"
"#;
const TOOLS: [&str; 6] = ["unshare", "setpriv", "dockerd", "docker", "busybox", "tar"];
/// Its name in the daemon.
pub const IMAGE: &str = "cofferdam-busybox";

impl Dockerd {
    /// `None` after saying what is missing; in CI that is a failure.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with more flags.
    pub fn start_with(flags: &[&str]) -> Option<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let is_root = rustix::process::geteuid().is_root();
        let missing = TOOLS.into_iter().find(|tool| which(tool).is_none());
        if let Some(missing) = missing.or((!is_root).then_some("root")) {
            return skip(missing);
        }
        let dir = tempfile::tempdir().unwrap();
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let groups = format!("dockerd-of-test-{}-{number}", std::process::id());
        let at = |name: &str| dir.path().join(name);
        // Ends with this process, however that ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--", "unshare", "--mount"]);
        command.args(["sh", "-ec", PRIVATELY, "sh"]).arg(dir.path());
        command.arg("--data-root").arg(at("data"));
        command.arg("--exec-root").arg(at("exec"));
        command.arg("--pidfile").arg(at("pid"));
        command.arg("--host").arg(endpoint(dir.path()));
        command.arg("--cgroup-parent").arg(format!("/{groups}"));
        command.args(["--storage-driver", "vfs", "--bridge", "none"]);
        command.args(["--iptables=false", "--ip6tables=false"]);
        command.args(["--ip-forward=false", "--ip-masq=false"]);
        command.args(flags);
        // It outlives what a test's runs may leave behind, and is none of it.
        command.env(Host::MARK, "of-the-daemon");
        // Whoever it starts may outlive it for a moment, and must not hold what the test writes to.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::piped());
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

    /// For `DOCKER_HOST`.
    pub fn endpoint(&self) -> String {
        endpoint(self.dir.path())
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// As members of the daemon's group may: everybody on this machine uses it.
    pub fn let_everybody_in(&self) {
        let open = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(self.dir.path(), open(0o755)).unwrap();
        fs::set_permissions(self.socket(), open(0o666)).unwrap();
    }

    /// What Docker's own client prints.
    pub fn docker(&self, args: &[&str]) -> String {
        succeed(self.client().args(args))
    }

    pub fn client(&self) -> Command {
        let mut client = Command::new("docker");
        client.arg("--host").arg(self.endpoint());
        client.env("DOCKER_CONFIG", self.dir.path().join("client"));
        client
    }

    /// The ids of all containers, running or not, and the names of all volumes.
    pub fn left(&self) -> Vec<String> {
        let containers = self.docker(&["ps", "--all", "--quiet", "--no-trunc"]);
        let volumes = self.docker(&["volume", "ls", "--quiet"]);
        let all = containers.lines().chain(volumes.lines());
        all.map(str::to_owned).collect()
    }

    #[track_caller]
    pub fn assert_clean(&self) {
        assert_eq!(self.left(), Vec::<String>::new());
    }

    /// Ends the daemon as if somebody had stopped its service.
    pub fn stop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let _ = self.daemon.wait();
    }

    pub fn signal(&self, signal: Signal) {
        let pid = self.pid().unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn pid(&self) -> Option<Pid> {
        let pid = i32::try_from(self.daemon.id()).ok();
        pid.and_then(Pid::from_raw)
    }

    fn await_socket(&mut self) {
        let log = self.daemon.stderr.take().unwrap();
        let listens = await_line(log, |line| line.contains("API listen on"));
        listens.unwrap_or_else(|said| panic!("dockerd does not listen: {said}"));
    }

    fn import(&self) {
        let archive = pack_image(self.dir.path());
        let archive = archive.to_str().unwrap();
        self.docker(&[
            "import",
            "--change",
            "ENV FROM_IMAGE=yes",
            "--change",
            "VOLUME /data",
            archive,
            IMAGE,
        ]);
    }
}

/// A root file system with busybox, as an archive.
pub(crate) fn pack_image(dir: &Path) -> PathBuf {
    let root = dir.join("image");
    let bin = root.join("bin");
    put_busybox(&bin);
    fs::write(bin.join("not-executable"), "x").unwrap();
    fs::create_dir(root.join("tmp")).unwrap();
    let sticky = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    fs::set_permissions(root.join("tmp"), sticky).unwrap();
    pack(&root)
}

/// The archive of a root file system, beside it.
pub fn pack(root: &Path) -> PathBuf {
    let archive = root.with_extension("tar");
    let mut pack = Command::new("tar");
    pack.arg("-C").arg(root).arg("-cf").arg(&archive).arg(".");
    succeed(&mut pack);
    archive
}

/// Makes a directory with busybox and all that it can be.
pub fn put_busybox(bin: &Path) {
    fs::create_dir_all(bin).unwrap();
    let busybox = which("busybox").unwrap();
    fs::copy(&busybox, bin.join("busybox")).unwrap();
    let applets = succeed(Command::new(&busybox).arg("--list"));
    for applet in applets.lines().filter(|&applet| applet != "busybox") {
        std::os::unix::fs::symlink("busybox", bin.join(applet)).unwrap();
    }
}

impl Drop for Dockerd {
    /// The daemon ends its containers and its containerd before itself.
    fn drop(&mut self) {
        let _ = self
            .pid()
            .map(|pid| rustix::process::kill_process(pid, Signal::CONT));
        self.stop();
        end_those_of(self.dir.path());
        // One in each hierarchy of version 1, or just one.
        let hierarchies = fs::read_dir("/sys/fs/cgroup")
            .into_iter()
            .flatten()
            .flatten();
        let hierarchies = hierarchies.map(|entry| entry.path());
        for hierarchy in hierarchies.chain([PathBuf::from("/sys/fs/cgroup")]) {
            remove_groups(&hierarchy.join(&self.groups));
        }
    }
}

/// A daemon that was killed leaves its containers, in their groups.
pub(crate) fn remove_groups(group: &Path) {
    let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for pid in members.lines().filter_map(|line| line.parse().ok()) {
        end(pid);
    }
    let below = fs::read_dir(group).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.path().is_dir()) {
        remove_groups(&entry.path());
    }
    let _ = fs::remove_dir(group);
}

fn end(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid);
    let _ = pid.map(|pid| rustix::process::kill_process(pid, Signal::KILL));
}

/// Whoever was started with something below this directory: what held a container for a daemon that is gone.
fn end_those_of(dir: &Path) {
    let dir = dir.display().to_string();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(&dir) {
            end(pid);
        }
    }
}

/// Waits until something is so, and fails when it does not become so.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Says what is missing; in CI that is a failure.
pub fn skip<T>(missing: &str) -> Option<T> {
    let why = format!("the tests of containers need {missing}");
    assert!(std::env::var_os("CI").is_none(), "{why}");
    eprintln!("SKIPPED (1): {why}");
    None
}

fn endpoint(dir: &Path) -> String {
    format!("unix://{}", dir.join("socket").display())
}

pub fn which(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut dirs = std::env::split_paths(&path).chain(system);
    dirs.find_map(|dir| Some(dir.join(tool)).filter(|path| path.is_file()))
}

/// What a command prints; it must succeed.
pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}
