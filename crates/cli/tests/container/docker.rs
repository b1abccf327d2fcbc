//! A real Docker daemon, an image with the binary under test, and containers of it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Who the binary is in the container.
pub(crate) type Who = &'static [&'static str];
pub(crate) const USER: Who = &["--user", "1000:1000", "--cap-drop", "ALL"];
/// With the capabilities that Docker leaves to root.
pub(crate) const ROOT: Who = &["--user", "0:0"];
pub(crate) const BARE_ROOT: Who = &["--user", "0:0", "--cap-drop", "ALL"];
pub(crate) const NO_SECCOMP: &str = "seccomp=unconfined";

/// A Docker daemon of this test's own. Everything of it lies in one directory, but for its control groups, which have a name of their own.
pub(crate) struct Docker {
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

pub(crate) const IMAGE: &str = "cofferdam-test";
const TOOLS: [&str; 8] = [
    "unshare", "dockerd", "docker", "busybox", "gcc", "strip", "tar", "setpriv",
];

impl Docker {
    /// `None` after saying what is missing; in CI that is a failure.
    pub(crate) fn start() -> Option<Self> {
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
    pub(crate) fn run(&self, who: Who, security: &[&str], args: &[&str]) -> Output {
        let command = [&["cofferdam", "run", "--json"], args].concat();
        self.start_container(who, security, &command)
    }

    pub(crate) fn start_container(&self, who: Who, security: &[&str], command: &[&str]) -> Output {
        let mut client = self.client();
        client.args(["run", "--rm", "--network", "none"]).args(who);
        for option in security {
            client.args(["--security-opt", option]);
        }
        client.arg(IMAGE).args(command);
        client.stdin(Stdio::null()).output().unwrap()
    }

    pub(crate) fn client(&self) -> Command {
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

pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}
