//! Version 2: one group holds everything. The sandbox's init is cloned straight into it, which needs no migration and no grace period; or, in a sandbox that waits for its run, the program's
//! process has moved into it beforehand, when nobody waits for the kernel to do it.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use super::attributes::{self, Counter};
use super::find::V2Place;
use super::run::{Bounds, CgroupError, Counters, Current, Entry};

/// The group of one run.
#[derive(Debug)]
pub(super) struct Group {
    dir: OwnedFd,
    /// Where it is entered, when init is not born there.
    entrance: Option<OwnedFd>,
    /// What was used before its run began.
    cpu_before: Cell<Duration>,
    cpu_stat: Counter,
    memory_peak: Counter,
    memory_events: Counter,
    pids_events: Counter,
    pids_peak: Counter,
    memory_current: Counter,
    pids_current: Counter,
}

impl Group {
    pub(super) fn create(
        place: &V2Place,
        name: &str,
        bounds: &Bounds,
        entry: Entry,
    ) -> Result<Self, CgroupError> {
        let failed = |errno| CgroupError::Make {
            path: place.path.join(name).display().to_string(),
            errno,
        };
        rustix::fs::mkdirat(&place.parent, name, Mode::from_raw_mode(0o755)).map_err(failed)?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&place.parent, name, flags, Mode::empty()).map_err(failed)?;
        // The lock tells a sweep that somebody still uses this group.
        let _ = rustix::fs::flock(&dir, rustix::fs::FlockOperation::NonBlockingLockShared);
        let entrance = match entry {
            Entry::Born => None,
            Entry::Joined => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&dir, "cgroup.procs", flags, Mode::empty());
                Some(file.map_err(failed)?)
            }
        };
        let group = Self {
            dir,
            entrance,
            cpu_before: Cell::default(),
            cpu_stat: Counter::new("cpu.stat"),
            memory_peak: Counter::new("memory.peak"),
            memory_events: Counter::new("memory.events"),
            pids_events: Counter::new("pids.events"),
            pids_peak: Counter::new("pids.peak"),
            memory_current: Counter::new("memory.current"),
            pids_current: Counter::new("pids.current"),
        };
        group.bound(bounds)?;
        Ok(group)
    }

    /// Init, where it lives in the group too: it is not one of the program's processes.
    fn others(&self) -> u64 {
        u64::from(self.entrance.is_none())
    }

    pub(super) fn bound(&self, bounds: &Bounds) -> Result<(), CgroupError> {
        let write = |file: &str, value: &str| attributes::write(self.dir.as_fd(), file, value);
        if let Some(limit) = bounds.memory_bytes {
            write("memory.max", &limit.to_string())?;
            // The file is absent on a kernel without swap, where there is nothing to forbid.
            match write("memory.swap.max", "0") {
                Err(CgroupError::Attribute {
                    errno: rustix::io::Errno::NOENT,
                    ..
                }) => {}
                other => other?,
            }
            write("memory.oom.group", "1")?;
        }
        if let Some(limit) = bounds.processes {
            write("pids.max", &limit.saturating_add(self.others()).to_string())?;
        }
        if let Some(milli) = bounds.cpu_milli {
            write("cpu.max", &format!("{} 100000", u64::from(milli) * 100))?;
        }
        if let Some(io) = &bounds.io {
            let rates = [
                ("rbps", io.read_bps),
                ("wbps", io.write_bps),
                ("riops", io.read_iops),
                ("wiops", io.write_iops),
            ];
            let set = rates.iter();
            let set = set.filter_map(|(name, rate)| Some(format!(" {name}={}", (*rate)?)));
            let set: String = set.collect();
            for (major, minor) in io.devices.iter().flatten() {
                write("io.max", &format!("{major}:{minor}{set}"))?;
            }
        }
        Ok(())
    }

    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    pub(super) fn entrance(&self) -> Option<BorrowedFd<'_>> {
        self.entrance.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn begin_anew(&self) {
        self.cpu_before.set(self.cpu().unwrap_or_default());
    }

    fn cpu(&self) -> Option<Duration> {
        let used = self.cpu_stat.keyed(Some(self.dir()), "usage_usec");
        used.map(Duration::from_micros)
    }

    pub(super) fn counters(&self) -> Counters {
        let dir = Some(self.dir.as_fd());
        let cpu = self.cpu();
        Counters {
            cpu: cpu.map(|used| used.saturating_sub(self.cpu_before.get())),
            memory_peak: self.memory_peak.number(dir),
            oom_kills: self.memory_events.keyed(dir, "oom_kill").unwrap_or(0),
            processes_peak: self
                .pids_peak
                .number(dir)
                .map(|peak| peak.saturating_sub(self.others())),
            forks_refused: self.pids_events.keyed(dir, "max").unwrap_or(0),
        }
    }

    pub(super) fn current(&self) -> Current {
        let dir = Some(self.dir.as_fd());
        let processes = self.pids_current.number(dir);
        Current {
            memory: self.memory_current.number(dir),
            processes: processes.map(|all| all.saturating_sub(self.others())),
        }
    }

    /// Nobody can tell where init is in it.
    pub(super) fn is_deserted(&self) -> bool {
        self.entrance.is_some() && self.pids_current.number(Some(self.dir())) == Some(0)
    }

    pub(super) fn kill(&self) {
        let _ = attributes::write(self.dir.as_fd(), "cgroup.kill", "1");
    }
}
