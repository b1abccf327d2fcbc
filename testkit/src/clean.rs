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
const PATIENCE: Duration = Duration::from_secs(60);
/// A look reads all of /proc, and is itself a load.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
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
            process.environment.contains(Host::MARK) && !carries(&process.environment, &line);
        !of_another
            && (below.contains(&process.pid)
                || carries(&process.environment, &line)
                || carries(&process.command, &line))
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

/// Whether a text names this mark, and not one that only begins like it.
fn carries(text: &str, line: &str) -> bool {
    let mut ends = text.match_indices(line).map(|(at, _)| at + line.len());
    ends.any(|end| !text[end..].starts_with(|next: char| next.is_ascii_digit()))
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
    let locked = locked_files();
    let is_left = |path: &PathBuf| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let known = seen.run_ids.iter().any(|id| name.ends_with(id.as_str()));
        let abandoned =
            || std::fs::metadata(path).is_ok_and(|found| !locked.contains(&lock_name(&found)));
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

/// Everything that somebody holds an flock on, as `device:inode`: hierarchies have the same small numbers.
fn locked_files() -> BTreeSet<String> {
    locked_in(&std::fs::read_to_string("/proc/locks").unwrap_or_default())
}

fn locked_in(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter(|line| line.contains("FLOCK"))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            words.find(|word| word.split(':').count() == 3)
        })
        .map(str::to_owned)
        .collect()
}

/// A file as /proc/locks names it.
fn lock_name(found: &std::fs::Metadata) -> String {
    let (major, minor) = (
        rustix::fs::major(found.dev()),
        rustix::fs::minor(found.dev()),
    );
    format!("{major:02x}:{minor:02x}:{}", found.ino())
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
        process.environment.contains(Host::MARK) && !carries(&process.environment, &line)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_that_only_begins_like_another_is_another() {
        let line = "MARK=mark-7-1";
        assert!(carries("A=1\nMARK=mark-7-1\nB=2", line));
        assert!(carries("MARK=mark-7-12\nMARK=mark-7-1", line));
        assert!(!carries("A=1\nMARK=mark-7-10\nB=2", line));
        assert!(!carries("", line));
    }

    #[test]
    fn a_lock_is_known_by_the_device_and_the_number_of_its_file() {
        let text = "1: FLOCK  ADVISORY  READ 16319 00:24:1 0 EOF\n2: POSIX  ADVISORY  WRITE 7 00:25:2 0 EOF\n2: -> FLOCK  ADVISORY  WRITE 8 fd:01:30 0 EOF\n";
        let found = locked_in(text);
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(found, ["00:24:1", "fd:01:30"]);
        let own = std::fs::metadata("/proc").unwrap();
        let name = lock_name(&own);
        assert!(name.ends_with(&format!(":{}", own.ino())), "{name}");
    }
}
