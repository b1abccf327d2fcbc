//! A Docker daemon of the benchmark's own, in a directory of its own, with an image that holds nothing but links into the host's /usr.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::oci::LINKS;
use crate::process::read;

#[derive(Debug)]
pub(in crate::bench) struct Docker {
    daemon: Child,
    host: String,
}

const IMAGE: &str = "peers";
/// The one container that `docker exec` goes into.
const STANDING: &str = "standing";
const SOON: Duration = Duration::from_secs(60);
/// The daemon mounts and writes outside of the directories that it is given too, so it sees a /run of its own.
const PRIVATELY: &str = "mount -t tmpfs tmpfs /run && exec dockerd \"$@\"";

impl Docker {
    pub(in crate::bench) fn start(dir: &Path) -> Result<Self, String> {
        let dir = dir.join("docker");
        let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
        fs::create_dir_all(&dir).map_err(failed)?;
        let at = |name: &str| dir.join(name).display().to_string();
        let host = format!("unix://{}", at("socket"));
        let log = fs::File::create(dir.join("log")).map_err(failed)?;
        let daemon = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--", "unshare", "--mount"])
            .args(["sh", "-ec", PRIVATELY, "sh"])
            .args(["--data-root", &at("data"), "--exec-root", &at("exec")])
            .args(["--pidfile", &at("pid"), "--host", &host])
            .args(["--bridge", "none", "--iptables=false", "--ip6tables=false"])
            .args(["--ip-forward=false", "--ip-masq=false"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("dockerd cannot be started: {error}"))?;
        let docker = Self { daemon, host };
        docker.await_answer(&dir.join("log"))?;
        let image = dir.join("image");
        lay_out(&image)?;
        docker.import(&image, IMAGE)?;
        let words = docker.words("run", &["--detach", "--name", STANDING, IMAGE]);
        read(command(&words).args(["/usr/bin/sleep", "infinity"]))?;
        Ok(docker)
    }

    /// A container for each run.
    pub(super) fn run(&self) -> Vec<String> {
        self.words("run", &["--rm", IMAGE])
    }

    /// Into one that stands.
    pub(super) fn exec(&self) -> Vec<String> {
        ["docker", "--host", &self.host, "exec", STANDING]
            .map(str::to_owned)
            .to_vec()
    }

    fn words(&self, verb: &str, rest: &[&str]) -> Vec<String> {
        let fixed = [
            "docker",
            "--host",
            &self.host,
            verb,
            "--network",
            "none",
            "--volume",
            "/usr:/usr:ro",
            "--read-only",
        ];
        fixed
            .iter()
            .chain(rest)
            .map(|word| (*word).to_owned())
            .collect()
    }

    fn await_answer(&self, log: &Path) -> Result<(), String> {
        let until = Instant::now() + SOON;
        loop {
            if read(Command::new("docker").args(["--host", &self.host, "version"])).is_ok() {
                return Ok(());
            }
            if Instant::now() > until {
                let said = fs::read_to_string(log).unwrap_or_default();
                let last = said.lines().last().unwrap_or_default();
                return Err(format!("dockerd does not answer: {last}"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// For `DOCKER_HOST`.
    pub(in crate::bench) fn host(&self) -> &str {
        &self.host
    }

    /// A directory becomes an image.
    pub(in crate::bench) fn import(&self, image: &Path, name: &str) -> Result<(), String> {
        let tar = image.with_extension("tar");
        read(
            Command::new("tar")
                .arg("-C")
                .arg(image)
                .arg("-cf")
                .arg(&tar)
                .arg("."),
        )?;
        let import = ["--host", &self.host, "import"];
        read(Command::new("docker").args(import).arg(&tar).arg(name)).map(drop)
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        let remove = ["--host", &self.host, "rm", "--force", STANDING];
        let _ = read(Command::new("docker").args(remove));
        let _ = kill_process(Pid::from_child(&self.daemon), Signal::TERM);
        let _ = self.daemon.wait();
    }
}

fn lay_out(image: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", image.display());
    fs::create_dir_all(image.join("usr")).map_err(failed)?;
    for (target, link) in LINKS {
        symlink(target, image.join(link)).map_err(failed)?;
    }
    Ok(())
}

fn command(words: &[String]) -> Command {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or("docker", String::as_str));
    command.args(words);
    command
}
