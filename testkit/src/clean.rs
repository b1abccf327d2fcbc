//! Finds what a test's runs have left behind. Other tests run at the same time, so everything found is attributed before it counts.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};

use crate::host::{Host, Seen};
use crate::process::{self, Process};

/// The testkit's own directories.
pub(crate) const OWN_PREFIX: &str = "cdtest-";
/// Of somebody who measures on the same machine.
const BENCHMARKS: &str = "cofferdam-bench-";
/// The kernel takes namespaces and empty groups apart in its own time, which is long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// Outside ids of sandboxes that root starts.
const SANDBOX_UIDS: std::ops::Range<u32> = 0x7000_0000..0x7440_0000;

/// The host before the test.
#[derive(Debug)]
pub(crate) struct Before {
    /// The test's own directory.
    dir: PathBuf,
    mounts: BTreeSet<String>,
    temporary: BTreeSet<PathBuf>,
    cgroups: BTreeSet<PathBuf>,
    pub(crate) namespaces: BTreeSet<String>,
}

impl Before {
    pub(crate) fn look(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            mounts: mounts(),
            temporary: temporary(),
            cgroups: cgroups().into_iter().collect(),
            namespaces: process::links("/proc/self/ns")
                .into_iter()
                .map(|link| link.display().to_string())
                .collect(),
        }
    }
}

/// Looks until nothing is left or patience is.
pub(crate) fn left_behind(before: &Before, mark: &str, seen: &Seen) -> Vec<String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let found = look(before, mark, seen);
        if found.is_empty() || Instant::now() >= until {
            return found;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

fn look(before: &Before, mark: &str, seen: &Seen) -> Vec<String> {
    let all = process::all();
    let mut found: Vec<String> = processes(&all, mark, seen)
        .iter()
        .map(|process| format!("process {process:?}"))
        .collect();
    found.extend(
        groups(before, seen)
            .iter()
            .map(|path| format!("cgroup {}", path.display())),
    );
    found.extend(
        mounts()
            .difference(&before.mounts)
            .filter(|line| is_our_mount(line, &before.dir))
            .map(|line| format!("mount {line}")),
    );
    found.extend(
        temporary()
            .difference(&before.temporary)
            .filter(|path| is_ours(path))
            .map(|path| format!("file {}", path.display())),
    );
    found.extend(
        namespaces(&all, mark, seen)
            .into_iter()
            .map(|name| format!("namespace {name}")),
    );
    found
}

/// Descendants of this process, or carriers of the mark. Orphans that have ended are reaped: they are dead.
fn processes(all: &[Process], mark: &str, seen: &Seen) -> Vec<Process> {
    let own = std::process::id();
    let below = process::descendants(own, all);
    let line = format!("{}={mark}", Host::MARK);
    let is_ours = |process: &&Process| {
        let of_another =
            process.environment.contains(Host::MARK) && !process.environment.contains(&line);
        !of_another
            && (below.contains(&process.pid)
                || process.environment.contains(&line)
                || process.command.contains(&line))
    };
    for orphan in all.iter().filter(|process| {
        process.is_zombie && process.parent == own && !seen.children.contains(&process.pid)
    }) {
        let pid = Pid::from_raw(orphan.pid.cast_signed());
        let _ = rustix::process::waitpid(pid, WaitOptions::NOHANG);
    }
    all.iter()
        .filter(|process| !process.is_zombie && process.pid != own)
        .filter(is_ours)
        .cloned()
        .collect()
}

/// Ends what is left of a test that failed.
pub(crate) fn end_processes(mark: &str, seen: &Seen) {
    for process in processes(&process::all(), mark, seen) {
        if let Some(pid) = Pid::from_raw(process.pid.cast_signed()) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// Groups of runs that this test knows, and new groups that nobody holds any more: a living supervisor locks its own.
fn groups(before: &Before, seen: &Seen) -> Vec<PathBuf> {
    let locked = locked_inodes();
    let is_left = |path: &PathBuf| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let known = seen.run_ids.iter().any(|id| name.ends_with(id.as_str()));
        let abandoned =
            || std::fs::metadata(path).is_ok_and(|found| !locked.contains(&found.ino()));
        known || !before.cgroups.contains(path) && abandoned()
    };
    cgroups().into_iter().filter(is_left).collect()
}

fn cgroups() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = open.pop() {
        let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        // Never through links: `cpu,cpuacct` has two of them.
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if entry
                .file_name()
                .to_string_lossy()
                .starts_with("cofferdam-")
            {
                found.push(entry.path());
            } else {
                open.push(entry.path());
            }
        }
    }
    found
}

/// Inodes of everything that somebody holds an flock on.
fn locked_inodes() -> BTreeSet<u64> {
    let text = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    text.lines()
        .filter(|line| line.contains("FLOCK"))
        .filter_map(|line| {
            line.split_whitespace()
                .find_map(|word| word.splitn(3, ':').nth(2)?.parse().ok())
        })
        .collect()
}

fn mounts() -> BTreeSet<String> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    text.lines().map(str::to_owned).collect()
}

/// What a sandbox mounts, should it ever reach the host: scratch space on /tmp, layers, trees of a test's own, and namespaces.
/// Other tests mount things in their own directories, and give network namespaces names.
fn is_our_mount(line: &str, dir: &Path) -> bool {
    let fields: Vec<&str> = line.split(' ').collect();
    let place = Path::new(fields.get(4).copied().unwrap_or_default());
    let owner = line
        .split([',', ' '])
        .find_map(|option| option.strip_prefix("uid=")?.parse().ok());
    place == "/tmp"
        || place.starts_with(dir)
        || line.contains(" nsfs ") && !place.starts_with("/run/netns")
        || owner.is_some_and(|uid| SANDBOX_UIDS.contains(&uid))
}

fn temporary() -> BTreeSet<PathBuf> {
    let entries = TEMPORARY
        .iter()
        .filter_map(|dir| std::fs::read_dir(dir).ok())
        .flatten()
        .flatten();
    entries.map(|entry| entry.path()).collect()
}

fn is_ours(path: &Path) -> bool {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let owner = std::fs::symlink_metadata(path)
        .map(|found| found.uid())
        .unwrap_or_default();
    let is_known = name.starts_with(OWN_PREFIX) || name.starts_with(BENCHMARKS);
    !is_known && (name.contains("cofferdam") || SANDBOX_UIDS.contains(&owner))
}

/// Namespaces that were seen while a run lived, and that a process still is in or holds open. The kernel gives their numbers out again, so what belongs to
/// another test is none of ours.
fn namespaces(all: &[Process], mark: &str, seen: &Seen) -> BTreeSet<String> {
    if seen.namespaces.is_empty() {
        return BTreeSet::new();
    }
    let line = format!("{}={mark}", Host::MARK);
    let others = |process: &&Process| {
        process.environment.contains(Host::MARK) && !process.environment.contains(&line)
    };
    let mut found = BTreeSet::new();
    for process in all.iter().filter(|process| !others(process)) {
        let held = process::links(&format!("/proc/{}/fd", process.pid))
            .into_iter()
            .map(|link| link.display().to_string());
        found.extend(
            held.chain(process.namespaces())
                .filter(|name| seen.namespaces.contains(name)),
        );
    }
    found
}
