//! Version 1: one hierarchy for each controller. Processes enter by writing `0` to `tasks` themselves: writing another process's pid to `cgroup.procs` takes a
//! global lock and, after a quiet moment, waits for an RCU grace period of many milliseconds.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use super::attributes;
use super::find::V1Places;
use super::run::{Bounds, CgroupError, Counters};

/// The groups of one run, one for each controller that it needs.
#[derive(Debug)]
pub(super) struct Group {
    name: String,
    members: Vec<Member>,
    cpu_usage: Option<OwnedFd>,
    memory_peak: Option<OwnedFd>,
    oom_control: Option<OwnedFd>,
    pids_events: Option<OwnedFd>,
    pids_peak: Option<OwnedFd>,
}

#[derive(Debug)]
struct Member {
    parent: OwnedFd,
    dir: OwnedFd,
    tasks: OwnedFd,
}

impl Group {
    pub(super) fn create(
        places: &V1Places,
        name: &str,
        bounds: &Bounds,
    ) -> Result<Self, CgroupError> {
        let mut group = Self {
            name: name.to_owned(),
            members: Vec::with_capacity(4),
            cpu_usage: None,
            memory_peak: None,
            oom_control: None,
            pids_events: None,
            pids_peak: None,
        };
        // On failure the half-made group is dropped, which removes what was made.
        group.fill(places, bounds).inspect_err(|_| group.remove())?;
        Ok(group)
    }

    fn fill(&mut self, places: &V1Places, bounds: &Bounds) -> Result<(), CgroupError> {
        if let Some(place) = &places.cpuacct {
            let dir = self.add(place)?;
            self.cpu_usage = attributes::open(dir, "cpuacct.usage");
        }
        if let Some(place) = &places.memory {
            let dir = self.add(place)?;
            let (peak, oom) = (
                attributes::open(dir, "memory.max_usage_in_bytes"),
                attributes::open(dir, "memory.oom_control"),
            );
            if let Some(limit) = bounds.memory_bytes {
                bound_memory(dir, limit)?;
            }
            (self.memory_peak, self.oom_control) = (peak, oom);
        }
        if let Some(place) = &places.pids {
            let dir = self.add(place)?;
            let (events, peak) = (
                attributes::open(dir, "pids.events"),
                attributes::open(dir, "pids.peak"),
            );
            if let Some(limit) = bounds.processes {
                attributes::write(dir, "pids.max", &limit.to_string())?;
            }
            (self.pids_events, self.pids_peak) = (events, peak);
        }
        if let (Some(place), Some(milli)) = (&places.cpu, bounds.cpu_milli) {
            let dir = self.add(place)?;
            attributes::write(dir, "cpu.cfs_period_us", "100000")?;
            attributes::write(
                dir,
                "cpu.cfs_quota_us",
                &(u64::from(milli) * 100).to_string(),
            )?;
        }
        Ok(())
    }

    fn add(&mut self, place: &OwnedFd) -> Result<BorrowedFd<'_>, CgroupError> {
        let failed = |errno| CgroupError::Make {
            path: self.name.clone(),
            errno,
        };
        let parent = rustix::io::fcntl_dupfd_cloexec(place, 3).map_err(failed)?;
        rustix::fs::mkdirat(&parent, &self.name, Mode::from_raw_mode(0o755)).map_err(failed)?;
        let undo = |errno| {
            let _ = rustix::fs::unlinkat(&parent, &self.name, AtFlags::REMOVEDIR);
            failed(errno)
        };
        let dir = rustix::fs::openat(
            &parent,
            &self.name,
            OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(undo)?;
        // The lock tells a sweep that somebody still uses this group.
        let _ = rustix::fs::flock(&dir, rustix::fs::FlockOperation::NonBlockingLockShared);
        let tasks = rustix::fs::openat(
            &dir,
            "tasks",
            OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(undo)?;
        self.members.push(Member { parent, dir, tasks });
        self.members
            .last()
            .map(|member| member.dir.as_fd())
            .ok_or(CgroupError::Make {
                path: String::new(),
                errno: Errno::NOENT,
            })
    }

    pub(super) fn joins(&self) -> Vec<BorrowedFd<'_>> {
        self.members
            .iter()
            .map(|member| member.tasks.as_fd())
            .collect()
    }

    pub(super) fn parents(&self) -> Vec<&OwnedFd> {
        self.members.iter().map(|member| &member.parent).collect()
    }

    pub(super) fn counters(&self) -> Counters {
        Counters {
            cpu: attributes::number(self.cpu_usage.as_ref()).map(Duration::from_nanos),
            memory_peak: attributes::number(self.memory_peak.as_ref()),
            oom_kills: attributes::keyed(self.oom_control.as_ref(), "oom_kill").unwrap_or(0),
            processes_peak: attributes::number(self.pids_peak.as_ref()),
            forks_refused: attributes::keyed(self.pids_events.as_ref(), "max").unwrap_or(0),
        }
    }

    /// No new process first, so that one pass over the members is enough.
    pub(super) fn kill(&self) {
        for member in &self.members {
            let _ = attributes::write(member.dir.as_fd(), "pids.max", "0");
        }
        let Some(member) = self.members.first() else {
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

    /// Busy only for the moment in which the last process is still on its way out.
    pub(super) fn remove(&self) {
        for member in &self.members {
            crate::janitor::remove_patiently(member.parent.as_fd(), &self.name);
        }
    }
}

/// Memory and swap together, so that nothing can be swapped out. The plain limit must be lowered first and raised last.
fn bound_memory(dir: BorrowedFd<'_>, limit: u64) -> Result<(), CgroupError> {
    attributes::write(dir, "memory.limit_in_bytes", &limit.to_string())?;
    match attributes::write(dir, "memory.memsw.limit_in_bytes", &limit.to_string()) {
        // A kernel that does not account swap: forbid it instead.
        Err(CgroupError::Attribute {
            errno: Errno::NOENT | Errno::OPNOTSUPP | Errno::ACCESS,
            ..
        }) => attributes::write(dir, "memory.swappiness", "0"),
        other => other,
    }
}
