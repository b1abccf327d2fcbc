//! A Podman service of a test's own, which speaks Docker's API, with the same image as the Docker daemon of the tests.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};

use crate::docker::{IMAGE, pack_image, skip, succeed, until, which};

/// The service.
#[derive(Debug)]
pub struct Podman {
    service: Child,
    dir: tempfile::TempDir,
}

/// It keeps state in /run too, so it sees one of its own.
const PRIVATELY: &str = r#"mount -t tmpfs tmpfs /run; exec podman "$@""#;
const TOOLS: [&str; 7] = [
    "unshare",
    "setpriv",
    "podman",
    "catatonit",
    "runc",
    "busybox",
    "tar",
];

impl Podman {
    /// `None` after saying what is missing; in CI that is a failure.
    pub fn start() -> Option<Self> {
        let is_root = rustix::process::geteuid().is_root();
        let missing = TOOLS.into_iter().find(|tool| which(tool).is_none());
        if let Some(missing) = missing.or((!is_root).then_some("root")) {
            return skip(missing);
        }
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("setpriv");
        // Its helpers leave files where they are started.
        command.current_dir(dir.path());
        command.args(["--pdeathsig", "TERM", "--", "unshare", "--mount"]);
        command.args(["sh", "-ec", PRIVATELY, "sh"]);
        command.arg("--root").arg(dir.path().join("root"));
        command.args([
            "--runroot",
            "/run/podman-of-test",
            "--storage-driver",
            "vfs",
        ]);
        command.args(["--cgroup-manager", "cgroupfs", "--runtime", "runc"]);
        command.args([
            "--events-backend",
            "file",
            "system",
            "service",
            "--time",
            "0",
        ]);
        command.arg(format!("unix://{}", dir.path().join("socket").display()));
        command.stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let service = command.spawn().unwrap();
        let podman = Self { service, dir };
        until("podman listens", || podman.socket().exists());
        let archive = pack_image(podman.dir.path());
        podman.docker(&["import", archive.to_str().unwrap(), IMAGE]);
        Some(podman)
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// What Docker's client prints about it.
    pub fn docker(&self, args: &[&str]) -> String {
        let mut client = Command::new("docker");
        client.env("DOCKER_CONFIG", self.dir.path().join("client"));
        let host = format!("unix://{}", self.socket().display());
        succeed(client.arg("--host").arg(host).args(args))
    }

    #[track_caller]
    pub fn assert_clean(&self) {
        let containers = self.docker(&["ps", "--all", "--quiet"]);
        let volumes = self.docker(&["volume", "ls", "--quiet"]);
        assert_eq!((&*containers, &*volumes), ("", ""));
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let pid = i32::try_from(self.service.id()).ok();
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let _ = self.service.wait();
    }
}
