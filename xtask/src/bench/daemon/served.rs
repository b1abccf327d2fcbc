//! A daemon of the benchmark's own, and what the kernel says of it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::super::contestant::{Binary, Privilege};
use super::http::Client;

#[derive(Debug)]
pub(in crate::bench) struct Served {
    child: Child,
    address: SocketAddr,
    data: PathBuf,
}

/// What a daemon holds while nothing is asked of it. None of these may grow with what it has done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Holdings {
    pub(super) rss_mb: f64,
    pub(super) descriptors: usize,
    pub(super) threads: usize,
    pub(super) groups: usize,
    /// Files that are free to be used again are not counted: there are 512 of them at most.
    pub(super) journals: usize,
    pub(super) workspaces: usize,
}

const SOON: Duration = Duration::from_secs(100);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
const AT_REST: Duration = Duration::from_millis(300);

impl Served {
    /// Ready; with a data directory of this name.
    pub(in crate::bench) fn start(
        binary: &Binary,
        privilege: Privilege,
        name: &str,
        flags: &[&str],
    ) -> Result<Self, String> {
        let data = binary.directory(&format!("daemon-{name}"))?;
        let log = binary.directory("logs")?.join(name);
        let file = fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let place = data.to_string_lossy();
        let words = ["--data-dir", &*place, "serve", "--listen", "127.0.0.1:0"];
        let daemon = binary.verb(privilege, &[&words, flags].concat());
        let child = daemon.command().stderr(file).spawn();
        let child = child.map_err(|error| format!("the daemon cannot be started: {error}"))?;
        let mut served = Self {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            data,
        };
        served.address = until("the daemon listens", || address_in(&log))?;
        until("the daemon is ready", || {
            let health = served.health()?;
            (health.get("status")? == "healthy").then_some(())
        })?;
        Ok(served)
    }

    pub(in crate::bench) fn client(&self) -> Result<Client, String> {
        Client::connect(self.address)
    }

    pub(in crate::bench) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    pub(in crate::bench) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Nothing runs, nothing waits, and what has run is history.
    /// Also nothing waits in its pool any more, which takes a minute: what is kept ready on purpose is not what a load leaves behind.
    pub(super) fn await_idle(&self) -> Result<(), String> {
        until("the daemon is idle", || {
            let health = self.health()?;
            let count = |field: &str| health.get(field).and_then(Value::as_u64);
            let is_idle =
                count("active_executions") == Some(0) && count("queued_executions") == Some(0);
            let work = entries(&self.data.join("work"));
            let is_clear = work == 0 && self.journals() == 0 && self.ready()? == 0.0;
            (is_idle && is_clear).then_some(())
        })?;
        // What waited is counted as gone when its end begins.
        until("what waited has gone", || {
            let before = self.holdings().ok()?;
            std::thread::sleep(AT_REST);
            let now = self.holdings().ok()?;
            let held = |holdings: &Holdings| (holdings.descriptors, holdings.groups);
            (held(&before) == held(&now)).then_some(())
        })
    }

    /// Asks until this many runs wait.
    pub(in crate::bench) fn await_waiting(&self, wanted: u64) -> Result<(), String> {
        until("everybody waits", || {
            let health = self.health()?;
            let waiting = health.get("queued_executions")?.as_u64()?;
            (waiting == wanted).then_some(())
        })
    }

    /// Asks until this many run.
    pub(in crate::bench) fn await_running(&self, wanted: u64) -> Result<(), String> {
        until("enough is running", || {
            let health = self.health()?;
            (health.get("active_executions")? == wanted).then_some(())
        })
    }

    pub(super) fn rss_mb(&self) -> Result<f64, String> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        kib.map(|kib| kib * 1024.0 / 1e6)
            .ok_or_else(|| format!("{path} has no VmRSS"))
    }

    pub(super) fn holdings(&self) -> Result<Holdings, String> {
        let process = PathBuf::from(format!("/proc/{}", self.child.id()));
        Ok(Holdings {
            rss_mb: self.rss_mb()?,
            descriptors: entries(&process.join("fd")),
            threads: entries(&process.join("task")),
            groups: groups(Path::new("/sys/fs/cgroup")),
            journals: self.journals(),
            workspaces: entries(&self.data.join("work")),
        })
    }

    /// SIGTERM; an exit code other than 143 is a failure.
    pub(in crate::bench) fn end(mut self) -> Result<(), String> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).map_err(|error| format!("SIGTERM: {error}"))?;
        let status = self
            .child
            .wait()
            .map_err(|error| format!("wait: {error}"))?;
        match status.code() {
            Some(143) => Ok(()),
            _ => Err(format!("the daemon ended with {status} after SIGTERM")),
        }
    }

    fn journals(&self) -> usize {
        let entries = fs::read_dir(self.data.join("spool")).into_iter().flatten();
        let is_journal = |path: &PathBuf| path.extension() == Some("run".as_ref());
        entries
            .flatten()
            .map(|entry| entry.path())
            .filter(is_journal)
            .count()
    }

    /// How many sandboxes stand ready.
    fn ready(&self) -> Option<f64> {
        let mut client = self.client().ok()?;
        client.send("GET", "/metrics", None).ok()?;
        let (_, text) = client.receive().ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("cofferdam_pool_waiting "));
        line.map_or(Some(0.0), |figure| figure.trim().parse().ok())
    }

    fn health(&self) -> Option<Value> {
        let answer = self.client().ok()?.ask("GET", "/health", None);
        answer.ok().map(|(_, health)| health)
    }
}

/// A benchmark that fails leaves no daemon behind.
impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
    let last = Instant::now() + SOON;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() > last {
            return Err(format!("waited for {SOON:?} until {what}, in vain"));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// The log says where it listens, whatever the log looks like.
fn address_in(log: &Path) -> Option<SocketAddr> {
    const BEFORE: &str = "127.0.0.1:";
    let text = fs::read_to_string(log).ok()?;
    let rest = text.split(BEFORE).nth(1)?;
    let (port, _) = rest.split_once(|letter: char| !letter.is_ascii_digit())?;
    format!("{BEFORE}{port}").parse().ok()
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

/// Control groups of runs, on the whole machine: the benchmark has it to itself.
fn groups(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|entry| {
        if entry
            .file_name()
            .to_string_lossy()
            .starts_with("cofferdam-")
        {
            1
        } else {
            groups(&entry.path())
        }
    })
    .sum()
}
