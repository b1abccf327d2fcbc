//! A NATS server of a test's own, on loopback, with JetStream in a directory that goes with it. It can be stopped and started again with what it had.

use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::docker::{skip, which};

#[derive(Debug)]
pub struct Nats {
    process: Child,
    host: String,
    port: u16,
    /// Of a server that is told more than where to listen.
    config: Option<PathBuf>,
    dir: tempfile::TempDir,
}

impl Nats {
    /// `None` after saying what is missing; in CI that is a failure.
    pub fn start() -> Option<Self> {
        Self::start_with("")
    }

    /// With this in its configuration: who may come in, and how.
    pub fn start_with(config: &str) -> Option<Self> {
        Self::start_at("127.0.0.1", config)
    }

    /// On an address that this machine has.
    pub fn start_at(host: &str, config: &str) -> Option<Self> {
        if which("nats-server").is_none() {
            return skip("nats-server");
        }
        let dir = tempfile::tempdir().unwrap();
        let file = (!config.is_empty()).then(|| {
            let file = dir.path().join("nats.conf");
            std::fs::write(&file, config).unwrap();
            file
        });
        // Another process may take the port before the server does: then another port is tried.
        for _ in 0..20 {
            let free = TcpListener::bind((host, 0)).unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            if let Some(process) = started((host, port), &dir, file.as_deref()) {
                return Some(Self {
                    process,
                    host: host.to_owned(),
                    port,
                    config: file,
                    dir,
                });
            }
        }
        panic!("nats-server does not start");
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://{}:{}", self.host, self.port)
    }

    /// With a user, or whatever else stands before the host.
    #[must_use]
    pub fn url_as(&self, who: &str) -> String {
        format!("nats://{who}@{}:{}", self.host, self.port)
    }

    /// Killed, so that nothing can be tidied up.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Again, where it was and with what it had.
    pub fn again(&mut self) {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(process) =
                started((&self.host, self.port), &self.dir, self.config.as_deref())
            {
                self.process = process;
                return;
            }
            assert!(Instant::now() < until, "nats-server does not start again");
        }
    }
}

fn started(
    (host, port): (&str, u16),
    dir: &tempfile::TempDir,
    config: Option<&Path>,
) -> Option<Child> {
    let mut command = Command::new(which("nats-server")?);
    let name = format!("of-test-{}-{port}", std::process::id());
    command.args(["-a", host, "-p", &port.to_string(), "-js", "-sd"]);
    command.arg(dir.path()).args(["--name", &name]);
    if let Some(config) = config {
        command.arg("-c").arg(config);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut process = command.stderr(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while Instant::now() < until {
        if process.try_wait().unwrap().is_some() {
            return None;
        }
        if greets(host, port, &name) {
            return Some(process);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = process.kill();
    let _ = process.wait();
    None
}

/// Whether it is this server that answers: another process may have taken the port. A server says its name to whoever connects.
fn greets(host: &str, port: u16, name: &str) -> bool {
    let Ok(stream) = TcpStream::connect((host, port)) else {
        return false;
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let mut said = String::new();
    let read = BufReader::new(stream).read_line(&mut said);
    read.is_ok() && said.contains(&format!("\"{name}\""))
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
