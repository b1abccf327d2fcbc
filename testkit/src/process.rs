//! Processes as /proc shows them, read from outside.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// A process, at the moment it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    pub name: String,
    pub is_zombie: bool,
    /// Real, effective, saved and file system uid, as seen from outside.
    pub uids: Vec<u32>,
    pub command: String,
    pub environment: String,
}

impl Process {
    pub(crate) fn read(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (open, close) = (stat.find('(')?, stat.rfind(')')?);
        let fields: Vec<&str> = stat.get(close + 2..)?.split(' ').collect();
        let text = |file: &str| {
            let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', "\n")
        };
        Some(Self {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            name: stat.get(open + 1..close)?.to_owned(),
            is_zombie: matches!(*fields.first()?, "Z" | "X"),
            uids: uids(&text("status")),
            command: text("cmdline"),
            environment: text("environ"),
        })
    }

    /// One line of /proc/PID/status.
    pub fn status(&self, key: &str) -> Option<String> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }

    /// Its namespaces, such as `net:[4026531840]`.
    pub fn namespaces(&self) -> BTreeSet<String> {
        links(&format!("/proc/{}/ns", self.pid))
            .into_iter()
            .map(|link| link.display().to_string())
            .collect()
    }
}

/// Everything alive or not yet reaped.
pub(crate) fn all() -> Vec<Process> {
    pids().into_iter().filter_map(Process::read).collect()
}

pub(crate) fn pids() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc");
    let names = entries.flatten().map(|entry| entry.file_name());
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect()
}

/// Where the links in a directory such as /proc/PID/fd lead.
pub(crate) fn links(dir: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .collect()
}

/// All of `processes` that are below `root`, however far.
pub(crate) fn descendants(root: u32, processes: &[Process]) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for process in processes.iter().filter(|process| process.parent == parent) {
            if found.insert(process.pid) {
                next.push(process.pid);
            }
        }
    }
    found
}

fn uids(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    line.unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}
