//! The control group of one run, whichever version holds it: its bounds, its counters, its end.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::io::Errno;

use super::find::Hierarchy;
use super::{v1, v2};

/// How the processes of a run come into its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Version 2: the sandbox's init is cloned into it, and all others are born there.
    Born,
    /// The program's process enters by itself, and init stays outside.
    Joined,
}

/// What a run may use, as far as a control group can hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    pub memory_bytes: Option<u64>,
    pub processes: Option<u64>,
    /// Thousandths of a CPU.
    pub cpu_milli: Option<u32>,
    pub io: Option<IoBounds>,
}

/// How fast these devices may be read and written; what is not set is not bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoBounds {
    /// Whole disks, by major and minor number.
    pub devices: [Option<(u32, u32)>; IoBounds::MAX_DEVICES],
    pub read_bps: Option<u64>,
    pub write_bps: Option<u64>,
    pub read_iops: Option<u64>,
    pub write_iops: Option<u64>,
}

impl IoBounds {
    pub const MAX_DEVICES: usize = 4;
}

/// What the kernel counted. `None` where this kernel or version has no such counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    pub cpu: Option<Duration>,
    pub memory_peak: Option<u64>,
    /// Processes that the kernel killed because the group was out of memory.
    pub oom_kills: u64,
    pub processes_peak: Option<u64>,
    /// Forks refused because of the process limit.
    pub forks_refused: u64,
}

/// What is in the group at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Current {
    pub memory: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
}

/// Why a control group could not be made or bounded.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("cannot make control group {path}: {errno}")]
    Make { path: String, errno: Errno },
    #[error("cannot write `{value}` to {file} of the control group: {errno}")]
    Attribute {
        file: String,
        value: String,
        errno: Errno,
    },
}

/// The control group of one run. Whoever makes one has started its [`crate::janitor::Janitor`] before, which removes it.
#[derive(Debug)]
pub struct RunGroup {
    version: Version,
}

#[derive(Debug)]
enum Version {
    V1(v1::Group),
    V2(v2::Group),
}

impl RunGroup {
    /// Makes the group `name` in `hierarchy`. On version 1 everybody joins. `Ok(None)` when there is no hierarchy that could hold anything.
    pub fn create(
        hierarchy: &Hierarchy,
        name: &str,
        bounds: &Bounds,
        entry: Entry,
    ) -> Result<Option<Self>, CgroupError> {
        let version = match hierarchy {
            Hierarchy::V1(places) => Version::V1(v1::Group::create(places, name, bounds)?),
            Hierarchy::V2(place) => Version::V2(v2::Group::create(place, name, bounds, entry)?),
            Hierarchy::None { .. } => return Ok(None),
        };
        Ok(Some(Self { version }))
    }

    /// Sets bounds on a group that was made before they were known. A bound on CPUs must have been there from the start: it decides which groups there are.
    pub fn bound(&self, bounds: &Bounds) -> Result<(), CgroupError> {
        match &self.version {
            Version::V1(group) => group.bound(bounds),
            Version::V2(group) => group.bound(bounds),
        }
    }

    /// What was used so far counts no more. The count of processes at most stays as it is, and on version 2 the most memory that was used at once: it only grows there.
    pub fn begin_anew(&self) -> Result<(), CgroupError> {
        match &self.version {
            Version::V1(group) => group.begin_anew(),
            Version::V2(group) => {
                group.begin_anew();
                Ok(())
            }
        }
    }

    /// Version 1: the files through which a process enters the group by writing `0`, when it is told to go.
    pub fn joins(&self) -> Vec<BorrowedFd<'_>> {
        match &self.version {
            Version::V1(group) => group.joins(),
            Version::V2(_) => Vec::new(),
        }
    }

    /// Version 2: the same for a process that is to wait in the group, since entering it takes long.
    pub fn joins_ahead(&self) -> Option<BorrowedFd<'_>> {
        match &self.version {
            Version::V1(_) => None,
            Version::V2(group) => group.entrance(),
        }
    }

    /// Version 2: the directory to clone into.
    pub fn clone_into(&self) -> Option<BorrowedFd<'_>> {
        match &self.version {
            Version::V1(_) => None,
            Version::V2(group) => Some(group.dir()),
        }
    }

    pub fn counters(&self) -> Counters {
        match &self.version {
            Version::V1(group) => group.counters(),
            Version::V2(group) => group.counters(),
        }
    }

    pub fn current(&self) -> Current {
        match &self.version {
            Version::V1(group) => group.current(),
            Version::V2(group) => group.current(),
        }
    }

    /// Whether every process of the run has ended and been waited for. Nobody can tell where init is in the group too.
    pub fn is_deserted(&self) -> bool {
        match &self.version {
            Version::V1(group) => group.is_deserted(),
            Version::V2(group) => group.is_deserted(),
        }
    }

    /// Ends every process in the group and lets no new one be born: for a run without a pid namespace.
    pub fn kill(&self) {
        match &self.version {
            Version::V1(group) => group.kill(),
            Version::V2(group) => group.kill(),
        }
    }
}
