//! The daemon as a process of one test.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cofferdam_testkit::{Host, Started, Way};
use rustix::process::Signal;
use serde_json::Value;

use crate::client::{self, Reply};

pub(crate) struct Daemon<'h> {
    pub(crate) started: Started<'h>,
    pub(crate) address: SocketAddr,
    log: PathBuf,
    /// Sent with every request.
    token: Option<String>,
}

/// A daemon gets ready sooner than this, or not at all.
const SOON: Duration = Duration::from_secs(30);

impl<'h> Daemon<'h> {
    /// On a port of its own; ready.
    pub(crate) fn start(host: &'h Host, way: Way, args: &[&str]) -> Self {
        Self::start_with_env(host, way, args, &[])
    }

    /// The same with these variables.
    pub(crate) fn start_with_env(
        host: &'h Host,
        way: Way,
        args: &[&str],
        env: &[(&str, String)],
    ) -> Self {
        let log = host.dir().join("serve.log");
        let file = File::create(&log).unwrap();
        let args = [&["serve", "--listen", "127.0.0.1:0"], args].concat();
        let mut launch = host.launch(args).way(way);
        for (name, value) in env {
            launch = launch.env(name, value);
        }
        let started = launch.stderr_to(file).start();
        let mut daemon = Self {
            started,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            log,
            token: None,
        };
        daemon.address = daemon.await_address();
        daemon.until("/health", |health| health["status"] == "healthy");
        daemon
    }

    /// With a token that may do everything.
    pub(crate) fn start_with_token(host: &'h Host, way: Way, args: &[&str]) -> (Self, String) {
        let made = host
            .launch(["token", "create", "test", "--scope", "admin"])
            .way(way)
            .finish();
        let secret = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        assert!(secret.starts_with("cfd_"), "{secret}");
        let mut daemon = Self::start(host, way, args);
        daemon.token = Some(secret.clone());
        (daemon, secret)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.ask("POST", path, Some(body))
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let token = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let headers: Vec<_> = token
            .iter()
            .map(|token| ("Authorization", token.as_str()))
            .collect();
        client::ask(self.address, method, path, &headers, body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}\n{}", self.log()))
    }

    /// Asks until the answer is as described.
    pub(crate) fn until(&self, path: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + SOON;
        loop {
            let found = self.get(path).json();
            if is_it(&found) {
                return found;
            }
            assert!(Instant::now() < until, "{path}: {found}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// SIGTERM, and the exit code that says so.
    pub(crate) fn end(self) {
        self.started.signal(Signal::TERM);
        let log = self.log.clone();
        let finished = self.started.finish_within(SOON);
        let log = std::fs::read_to_string(log).unwrap_or_default();
        assert_eq!(finished.code(), 143, "{log}");
        assert!(!log.contains("panicked"), "{log}");
    }

    /// The log says where it listens, whatever the log looks like.
    fn await_address(&self) -> SocketAddr {
        const BEFORE: &str = "127.0.0.1:";
        let until = Instant::now() + SOON;
        loop {
            let log = self.log();
            let address = log.split(BEFORE).nth(1).and_then(|rest| {
                let (port, _) = rest.split_once(|letter: char| !letter.is_ascii_digit())?;
                format!("{BEFORE}{port}").parse().ok()
            });
            if let Some(address) = address {
                return address;
            }
            assert!(!self.started.is_over() && Instant::now() < until, "{log}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
