//! Version 2: one group holds everything. The sandbox's init is cloned straight into it, which needs no migration and no grace period.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags};

use super::attributes;
use super::find::V2Place;
use super::run::{Bounds, CgroupError, Counters};

/// The sandbox's init lives in the group too and is not one of the program's processes.
const INIT: u64 = 1;

/// The group of one run.
#[derive(Debug)]
pub(super) struct Group {
    name: String,
    parent: OwnedFd,
    dir: OwnedFd,
    cpu_stat: Option<OwnedFd>,
    memory_peak: Option<OwnedFd>,
    memory_events: Option<OwnedFd>,
    pids_events: Option<OwnedFd>,
    pids_peak: Option<OwnedFd>,
}

impl Group {
    pub(super) fn create(
        place: &V2Place,
        name: &str,
        bounds: &Bounds,
    ) -> Result<Self, CgroupError> {
        let failed = |errno| CgroupError::Make {
            path: place.path.join(name).display().to_string(),
            errno,
        };
        let parent = rustix::io::fcntl_dupfd_cloexec(&place.parent, 3).map_err(failed)?;
        rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)).map_err(failed)?;
        let dir = rustix::fs::openat(
            &parent,
            name,
            OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|errno| {
            let _ = rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR);
            failed(errno)
        })?;
        // The lock tells a sweep that somebody still uses this group.
        let _ = rustix::fs::flock(&dir, rustix::fs::FlockOperation::NonBlockingLockShared);
        let open = |file| attributes::open(dir.as_fd(), file);
        let group = Self {
            cpu_stat: open("cpu.stat"),
            memory_peak: open("memory.peak"),
            memory_events: open("memory.events"),
            pids_events: open("pids.events"),
            pids_peak: open("pids.peak"),
            name: name.to_owned(),
            parent,
            dir,
        };
        group.bound(bounds).inspect_err(|_| group.remove())?;
        Ok(group)
    }

    fn bound(&self, bounds: &Bounds) -> Result<(), CgroupError> {
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
            write("pids.max", &limit.saturating_add(INIT).to_string())?;
        }
        if let Some(milli) = bounds.cpu_milli {
            write("cpu.max", &format!("{} 100000", u64::from(milli) * 100))?;
        }
        Ok(())
    }

    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    pub(super) fn parent(&self) -> &OwnedFd {
        &self.parent
    }

    pub(super) fn counters(&self) -> Counters {
        Counters {
            cpu: attributes::keyed(self.cpu_stat.as_ref(), "usage_usec").map(Duration::from_micros),
            memory_peak: attributes::number(self.memory_peak.as_ref()),
            oom_kills: attributes::keyed(self.memory_events.as_ref(), "oom_kill").unwrap_or(0),
            processes_peak: attributes::number(self.pids_peak.as_ref())
                .map(|peak| peak.saturating_sub(INIT)),
            forks_refused: attributes::keyed(self.pids_events.as_ref(), "max").unwrap_or(0),
        }
    }

    pub(super) fn kill(&self) {
        let _ = attributes::write(self.dir.as_fd(), "cgroup.kill", "1");
    }

    pub(super) fn remove(&self) {
        crate::janitor::remove_patiently(self.parent.as_fd(), &self.name);
    }
}
