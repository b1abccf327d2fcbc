//! A NATS server of a test's own, on loopback, with JetStream in a directory that goes with it. It can be stopped and started again with what it had.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::docker::{skip, which};

#[derive(Debug)]
pub struct Nats {
    process: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl Nats {
    /// `None` after saying what is missing; in CI that is a failure.
    pub fn start() -> Option<Self> {
        if which("nats-server").is_none() {
            return skip("nats-server");
        }
        let dir = tempfile::tempdir().unwrap();
        // Another process may take the port before the server does: then another port is tried.
        for _ in 0..20 {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            if let Some(process) = started(port, &dir) {
                return Some(Self { process, port, dir });
            }
        }
        panic!("nats-server does not start");
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
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
            if let Some(process) = started(self.port, &self.dir) {
                self.process = process;
                return;
            }
            assert!(Instant::now() < until, "nats-server does not start again");
        }
    }
}

fn started(port: u16, dir: &tempfile::TempDir) -> Option<Child> {
    let mut command = Command::new(which("nats-server")?);
    command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"]);
    command.arg(dir.path());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut process = command.stderr(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while Instant::now() < until {
        if process.try_wait().unwrap().is_some() {
            return None;
        }
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Some(process);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = process.kill();
    let _ = process.wait();
    None
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
