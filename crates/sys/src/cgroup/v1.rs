//! Version 1: one hierarchy for each controller. Processes enter by writing `0` to `tasks` themselves: writing another process's pid to `cgroup.procs` takes a
//! global lock and, after a quiet moment, waits for an RCU grace period of many milliseconds.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use super::attributes::{self, Counter};
use super::find::V1Places;
use super::run::{Bounds, CgroupError, Counters, Current, IoBounds};

/// The groups of one run, one for each controller that it needs.
#[derive(Debug)]
pub(super) struct Group {
    cpuacct: Option<Member>,
    memory: Option<Member>,
    pids: Option<Member>,
    cpu: Option<Member>,
    blkio: Option<Member>,
    cpu_usage: Counter,
    memory_peak: Counter,
    oom_control: Counter,
    pids_events: Counter,
    pids_peak: Counter,
    memory_current: Counter,
    pids_current: Counter,
}

#[derive(Debug)]
struct Member {
    dir: OwnedFd,
    tasks: OwnedFd,
}

impl Group {
    pub(super) fn create(
        places: &V1Places,
        name: &str,
        bounds: &Bounds,
    ) -> Result<Self, CgroupError> {
        // Several controllers may share one hierarchy, such as cpu and cpuacct where systemd mounts them: their group is then one.
        let mut homes: Vec<(u64, u64)> = Vec::new();
        let mut make = |place: &Option<OwnedFd>| {
            let Some(place) = place else { return Ok(None) };
            let home = identity(place, name)?;
            if !homes.contains(&home) {
                Member::make(place, name)?;
                homes.push(home);
            }
            Member::open(place, name).map(Some)
        };
        let group = Self {
            cpuacct: make(&places.cpuacct)?,
            memory: make(&places.memory)?,
            pids: make(&places.pids)?,
            cpu: if bounds.cpu_milli.is_some() {
                make(&places.cpu)?
            } else {
                None
            },
            blkio: if bounds.io.is_some() {
                make(&places.blkio)?
            } else {
                None
            },
            cpu_usage: Counter::new("cpuacct.usage"),
            memory_peak: Counter::new("memory.max_usage_in_bytes"),
            oom_control: Counter::new("memory.oom_control"),
            pids_events: Counter::new("pids.events"),
            pids_peak: Counter::new("pids.peak"),
            memory_current: Counter::new("memory.usage_in_bytes"),
            pids_current: Counter::new("pids.current"),
        };
        group.bound(bounds)?;
        Ok(group)
    }

    pub(super) fn bound(&self, bounds: &Bounds) -> Result<(), CgroupError> {
        if let (Some(member), Some(limit)) = (&self.memory, bounds.memory_bytes) {
            bound_memory(member.dir.as_fd(), limit)?;
        }
        if let (Some(member), Some(limit)) = (&self.pids, bounds.processes) {
            attributes::write(member.dir.as_fd(), "pids.max", &limit.to_string())?;
        }
        if let (Some(member), Some(milli)) = (&self.cpu, bounds.cpu_milli) {
            attributes::write(member.dir.as_fd(), "cpu.cfs_period_us", "100000")?;
            let quota = (u64::from(milli) * 100).to_string();
            attributes::write(member.dir.as_fd(), "cpu.cfs_quota_us", &quota)?;
        }
        if let (Some(member), Some(io)) = (&self.blkio, &bounds.io) {
            bound_io(member.dir.as_fd(), io)?;
        }
        Ok(())
    }

    pub(super) fn begin_anew(&self) -> Result<(), CgroupError> {
        if let Some(cpuacct) = dir_of(&self.cpuacct) {
            attributes::write(cpuacct, "cpuacct.usage", "0")?;
        }
        if let Some(memory) = dir_of(&self.memory) {
            attributes::write(memory, "memory.max_usage_in_bytes", "0")?;
        }
        Ok(())
    }

    pub(super) fn joins(&self) -> Vec<BorrowedFd<'_>> {
        self.members().map(|member| member.tasks.as_fd()).collect()
    }

    pub(super) fn counters(&self) -> Counters {
        let (cpuacct, memory, pids) = (
            dir_of(&self.cpuacct),
            dir_of(&self.memory),
            dir_of(&self.pids),
        );
        Counters {
            cpu: self.cpu_usage.number(cpuacct).map(Duration::from_nanos),
            memory_peak: self.memory_peak.number(memory),
            oom_kills: self.oom_control.keyed(memory, "oom_kill").unwrap_or(0),
            processes_peak: self.pids_peak.number(pids),
            forks_refused: self.pids_events.keyed(pids, "max").unwrap_or(0),
        }
    }

    pub(super) fn current(&self) -> Current {
        Current {
            memory: self.memory_current.number(dir_of(&self.memory)),
            processes: self.pids_current.number(dir_of(&self.pids)),
        }
    }

    pub(super) fn is_deserted(&self) -> bool {
        self.pids_current.number(dir_of(&self.pids)) == Some(0)
    }

    /// No new process first, so that one pass over the members is enough.
    pub(super) fn kill(&self) {
        if let Some(pids) = dir_of(&self.pids) {
            let _ = attributes::write(pids, "pids.max", "0");
        }
        let Some(member) = self.members().next() else {
            return;
        };
        let Some(file) = attributes::open(member.dir.as_fd(), "cgroup.procs") else {
            return;
        };
        let mut text = Vec::new();
        let mut chunk = [0u8; 4096];
        while let Ok(length @ 1..) = rustix::io::read(&file, &mut chunk) {
            text.extend_from_slice(chunk.get(..length).unwrap_or_default());
        }
        for pid in String::from_utf8_lossy(&text)
            .lines()
            .filter_map(|line| line.parse().ok())
            .filter_map(Pid::from_raw)
        {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        let all = [
            &self.cpuacct,
            &self.memory,
            &self.pids,
            &self.cpu,
            &self.blkio,
        ];
        all.into_iter().flatten()
    }
}

impl Member {
    fn make(place: &OwnedFd, name: &str) -> Result<(), CgroupError> {
        rustix::fs::mkdirat(place, name, Mode::from_raw_mode(0o755)).map_err(unmade(name))
    }

    fn open(place: &OwnedFd, name: &str) -> Result<Self, CgroupError> {
        let failed = unmade(name);
        let dir = rustix::fs::openat(
            place,
            name,
            OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(&failed)?;
        // The lock tells a sweep that somebody still uses this group.
        let _ = rustix::fs::flock(&dir, rustix::fs::FlockOperation::NonBlockingLockShared);
        let tasks = rustix::fs::openat(
            &dir,
            "tasks",
            OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(failed)?;
        Ok(Self { dir, tasks })
    }
}

fn unmade(name: &str) -> impl Fn(Errno) -> CgroupError {
    move |errno| CgroupError::Make {
        path: name.to_owned(),
        errno,
    }
}

/// Device and inode of a directory.
fn identity(place: &OwnedFd, name: &str) -> Result<(u64, u64), CgroupError> {
    let stat = rustix::fs::fstat(place).map_err(unmade(name))?;
    Ok((stat.st_dev, stat.st_ino))
}

fn dir_of(member: &Option<Member>) -> Option<BorrowedFd<'_>> {
    member.as_ref().map(|member| member.dir.as_fd())
}

/// Reads, and what is written past the page cache; what is written back later is counted for nobody.
fn bound_io(dir: BorrowedFd<'_>, io: &IoBounds) -> Result<(), CgroupError> {
    let rates = [
        ("blkio.throttle.read_bps_device", io.read_bps),
        ("blkio.throttle.write_bps_device", io.write_bps),
        ("blkio.throttle.read_iops_device", io.read_iops),
        ("blkio.throttle.write_iops_device", io.write_iops),
    ];
    for (major, minor) in io.devices.iter().flatten() {
        for (file, rate) in rates {
            if let Some(rate) = rate {
                attributes::write(dir, file, &format!("{major}:{minor} {rate}"))?;
            }
        }
    }
    Ok(())
}

/// Memory and swap together, so that nothing can be swapped out. The plain limit must be lowered first and raised last: it may never be the larger one.
fn bound_memory(dir: BorrowedFd<'_>, limit: u64) -> Result<(), CgroupError> {
    let plain = || attributes::write(dir, "memory.limit_in_bytes", &limit.to_string());
    match plain() {
        Err(CgroupError::Attribute {
            errno: Errno::INVAL,
            ..
        }) => {
            attributes::write(dir, "memory.memsw.limit_in_bytes", &limit.to_string())?;
            plain()?;
        }
        other => other?,
    }
    match attributes::write(dir, "memory.memsw.limit_in_bytes", &limit.to_string()) {
        // A kernel that does not account swap: forbid it instead.
        Err(CgroupError::Attribute {
            errno: Errno::NOENT | Errno::OPNOTSUPP | Errno::ACCESS,
            ..
        }) => attributes::write(dir, "memory.swappiness", "0"),
        other => other,
    }
}
