//! What a container uses, as the kernel counts it: from its control groups where they can be read from here, otherwise from the daemon's own figures.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::StatsOptionsBuilder;
use cofferdam_contract::ending::StopCause;
use cofferdam_contract::limits::Limits;
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_engine::pipeline::Sample;
use futures_util::StreamExt as _;

/// What has been counted so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) cpu: Duration,
    pub(crate) memory: Option<u64>,
    pub(crate) memory_peak: Option<u64>,
    pub(crate) processes: Option<u64>,
    pub(crate) processes_peak: Option<u64>,
    /// How often a process was refused.
    pub(crate) processes_refused: u64,
    /// How often the kernel killed for want of memory.
    pub(crate) memory_kills: u64,
}

impl Counted {
    pub(crate) fn sample(&self) -> Sample {
        Sample {
            cpu: self.cpu,
            memory: self.memory.map(Bytes::new),
            processes: self.processes,
        }
    }

    /// What the kernel refused the program, or killed it for.
    pub(crate) fn refused(&self, limits: &Limits) -> Option<StopCause> {
        match (limits.memory, limits.processes) {
            (Cap::AtMost(limit), _) if self.memory_kills > 0 => Some(StopCause::Memory { limit }),
            (_, Cap::AtMost(limit)) if self.processes_refused > 0 => {
                Some(StopCause::Processes { limit })
            }
            _ => None,
        }
    }

    /// Counters only grow; a look at a group that is going away must not take anything back.
    fn note(&mut self, new: Self) {
        let most = |old: Option<u64>, new: Option<u64>| old.max(new);
        *self = Self {
            cpu: self.cpu.max(new.cpu),
            memory: new.memory.or(self.memory),
            memory_peak: most(self.memory_peak, new.memory_peak.or(new.memory)),
            processes: new.processes.or(self.processes),
            processes_peak: most(self.processes_peak, new.processes_peak.or(new.processes)),
            processes_refused: self.processes_refused.max(new.processes_refused),
            memory_kills: self.memory_kills.max(new.memory_kills),
        };
    }
}

/// Looks at one container.
#[derive(Debug)]
pub(crate) struct Meter {
    groups: Option<Groups>,
    /// The daemon's init is not the program's.
    own_processes: u64,
    counted: Counted,
}

/// Between two looks.
const LOOK_AT_GROUPS: Duration = Duration::from_millis(10);
const ASK_DAEMON: Duration = Duration::from_millis(250);

impl Meter {
    pub(crate) fn new(own_processes: u64) -> Self {
        Self {
            groups: None,
            own_processes,
            counted: Counted::default(),
        }
    }

    /// Finds the control groups of the container's first process. A process of another machine that has its number is not in a group of that name.
    pub(crate) fn find(&mut self, pid: i64, container: &str) {
        let memberships = std::fs::read_to_string(format!("/proc/{pid}/cgroup"));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo");
        if let (Ok(memberships), Ok(mounts)) = (memberships, mounts) {
            self.groups = Groups::open(&memberships, &mounts, container);
        }
        self.look();
    }

    pub(crate) fn pause(&self) -> Duration {
        match self.groups {
            Some(_) => LOOK_AT_GROUPS,
            None => ASK_DAEMON,
        }
    }

    pub(crate) fn counted(&self) -> Counted {
        let less = |count: Option<u64>| count.map(|count| count.saturating_sub(self.own_processes));
        Counted {
            processes: less(self.counted.processes),
            processes_peak: less(self.counted.processes_peak),
            ..self.counted
        }
    }

    pub(crate) fn reads_groups(&self) -> bool {
        self.groups.is_some()
    }

    /// Only with groups of its own to read.
    pub(crate) fn look(&mut self) {
        if let Some(groups) = &self.groups {
            self.counted.note(groups.read());
        }
    }

    pub(crate) fn take(&mut self, told: Counted) {
        self.counted.note(told);
    }
}

/// How long the figures of a container may take.
const STATS: Duration = Duration::from_secs(10);

/// The daemon's figures.
pub(crate) async fn ask(client: &Docker, container: &str) -> Option<Counted> {
    let once = StatsOptionsBuilder::default()
        .stream(false)
        .one_shot(true)
        .build();
    let mut answers = client.stats(container, Some(once));
    // An answer that stops in the middle is asked for again: somebody has to look at the time.
    let stats = tokio::time::timeout(STATS, answers.next())
        .await
        .ok()??
        .ok()?;
    let cpu = stats.cpu_stats.and_then(|cpu| cpu.cpu_usage?.total_usage);
    let memory = stats.memory_stats.unwrap_or_default();
    Some(Counted {
        cpu: Duration::from_nanos(cpu.unwrap_or(0)),
        memory: memory.usage,
        memory_peak: memory.max_usage,
        processes: stats.pids_stats.and_then(|pids| pids.current),
        ..Counted::default()
    })
}

/// The files that are read again and again; held open, since a group keeps its files as long as it is there.
#[derive(Debug)]
struct Groups {
    version: Version,
    cpu: Option<File>,
    memory: Option<File>,
    memory_peak: Option<File>,
    memory_events: Option<File>,
    processes: Option<File>,
    processes_peak: Option<File>,
    processes_events: Option<File>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Groups {
    fn open(memberships: &str, mounts: &str, container: &str) -> Option<Self> {
        let place = |controller: &str| place(memberships, mounts, controller, container);
        let open = |dir: &Option<PathBuf>, name: &str| File::open(dir.as_ref()?.join(name)).ok();
        if let Some(memory) = place("memory") {
            let (memory, cpu, pids) = (Some(memory), place("cpuacct"), place("pids"));
            return Some(Self {
                version: Version::One,
                cpu: open(&cpu, "cpuacct.usage"),
                memory: open(&memory, "memory.usage_in_bytes"),
                memory_peak: open(&memory, "memory.max_usage_in_bytes"),
                memory_events: open(&memory, "memory.oom_control"),
                processes: open(&pids, "pids.current"),
                processes_peak: None,
                processes_events: open(&pids, "pids.events"),
            });
        }
        let dir = Some(place("")?);
        Some(Self {
            version: Version::Two,
            cpu: open(&dir, "cpu.stat"),
            memory: open(&dir, "memory.current"),
            memory_peak: open(&dir, "memory.peak"),
            memory_events: open(&dir, "memory.events"),
            processes: open(&dir, "pids.current"),
            processes_peak: open(&dir, "pids.peak"),
            processes_events: open(&dir, "pids.events"),
        })
    }

    fn read(&self) -> Counted {
        let number = |file: &Option<File>| text(file)?.trim().parse().ok();
        let keyed = |file: &Option<File>, key: &str| keyed(&text(file)?, key);
        let cpu = match self.version {
            Version::One => number(&self.cpu).map(Duration::from_nanos),
            Version::Two => keyed(&self.cpu, "usage_usec").map(Duration::from_micros),
        };
        Counted {
            cpu: cpu.unwrap_or_default(),
            memory: number(&self.memory),
            memory_peak: number(&self.memory_peak),
            processes: number(&self.processes),
            processes_peak: number(&self.processes_peak),
            processes_refused: keyed(&self.processes_events, "max").unwrap_or(0),
            memory_kills: keyed(&self.memory_events, "oom_kill").unwrap_or(0),
        }
    }
}

fn text(file: &Option<File>) -> Option<String> {
    let mut buffer = [0; 4096];
    let read = file.as_ref()?.read_at(&mut buffer, 0).ok()?;
    Some(String::from_utf8_lossy(buffer.get(..read)?).into_owned())
}

fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
        .and_then(|value| value.trim().parse().ok())
}

/// The directory of a group, from `/proc/PID/cgroup` and `/proc/self/mountinfo`. The empty controller is version 2.
fn place(memberships: &str, mounts: &str, controller: &str, container: &str) -> Option<PathBuf> {
    let path = memberships.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (names, path) = (parts.next()?, parts.next()?);
        names
            .split(',')
            .any(|name| name == controller)
            .then_some(path)
    })?;
    if !path.contains(container) {
        return None;
    }
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let is_wanted = match (kind.next()?, controller) {
            ("cgroup2", "") => true,
            ("cgroup", controller) if !controller.is_empty() => {
                kind.nth(1)?.split(',').any(|option| option == controller)
            }
            _ => false,
        };
        let mut fields = mount.split(' ').skip(3);
        let (root, at) = (fields.next()?, fields.next()?);
        let below = path.strip_prefix(root.trim_end_matches('/'))?;
        let dir = Path::new(at).join(below.trim_start_matches('/'));
        is_wanted.then_some(dir)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 24 0:26 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory
31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";

    #[test]
    fn the_group_of_a_controller_is_found_by_its_mount() {
        let memberships = "7:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/docker/abc\n";
        let find = |controller| place(memberships, MOUNTS, controller, "abc");
        assert_eq!(
            find("memory"),
            Some("/sys/fs/cgroup/memory/docker/abc".into())
        );
        assert_eq!(
            find("cpuacct"),
            Some("/sys/fs/cgroup/cpu,cpuacct/docker/abc".into())
        );
        assert_eq!(find(""), Some("/sys/fs/cgroup/unified/docker/abc".into()));
        assert_eq!(find("pids"), None);
    }

    #[test]
    fn a_stranger_with_the_same_number_is_not_taken_for_the_container() {
        let memberships = "7:memory:/user.slice\n0::/user.slice\n";
        assert_eq!(place(memberships, MOUNTS, "memory", "abc"), None);
        assert!(Groups::open(memberships, MOUNTS, "abc").is_none());
    }

    #[test]
    fn a_mount_of_a_part_shows_that_part() {
        let mounts = "30 24 0:26 /docker /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        let found = place("0::/docker/abc\n", mounts, "", "abc");
        assert_eq!(found, Some("/sys/fs/cgroup/abc".into()));
    }

    #[test]
    fn what_was_counted_is_not_taken_back() {
        let mut meter = Meter::new(1);
        let much = Counted {
            cpu: Duration::from_secs(2),
            memory: Some(10),
            processes: Some(5),
            ..Counted::default()
        };
        meter.take(much);
        meter.take(Counted::default());
        let counted = meter.counted();
        assert_eq!(counted.cpu, Duration::from_secs(2));
        assert_eq!(counted.memory_peak, Some(10));
        assert_eq!(counted.processes_peak, Some(4));
    }
}
