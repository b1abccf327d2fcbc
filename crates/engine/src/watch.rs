//! Looks after the limits that no byte counter and no wall clock can hold: CPU time, memory, processes and disk, from the control group's counters
//! where there is one and from /proc where there is none.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_contract::ending::{DiskPlace, StopCause};
use cofferdam_contract::enforcement::{Enforcer, LimitName};
use cofferdam_contract::limits::Limits;
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_contract::usage::Usage;
use cofferdam_sys::cgroup::{Counters, RunGroup};
use cofferdam_sys::proc::{self, Process};
use cofferdam_sys::seccomp::SharedMapping;

use crate::cpu_account::CpuAccount;
use crate::disk::{self, Growth, Moment, ScratchUse};
use crate::live_usage::{LiveUsage, Sampler};
use crate::memory_count::MemoryCount;
use crate::plan::Terms;

/// The watch over one run.
#[derive(Debug)]
pub(crate) struct Watch {
    limits: Limits,
    parallelism: u32,
    memory_by: MemoryBy,
    /// The sandbox's init, as seen from outside.
    root: u32,
    /// The program's process, where it is not below init.
    guest: Option<u32>,
    scratch: Option<Scratch>,
    growths: Vec<Growth>,
    cpu: CpuAccount,
    memory: MemoryCount,
    /// Highest seen, where nothing else counts.
    seen: Seen,
    next_look: Instant,
    /// For whoever watches.
    sampler: Option<Sampler>,
}

#[derive(Debug)]
struct Scratch {
    dir: OwnedFd,
    /// What the sandbox's own files take.
    used_at_start: Bytes,
}

/// Who holds the memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemoryBy {
    Kernel,
    Looking,
}

#[derive(Debug, Default)]
struct Seen {
    memory: Option<u64>,
    tasks: u64,
}

/// With a group, counters only have to be looked at; without one, everything that happens between two looks is missed.
const LOOK_AT_GROUP: Duration = Duration::from_millis(50);
const LOOK_AT_TREE: Duration = Duration::from_millis(10);
const SHORTEST: Duration = Duration::from_millis(1);
/// Looking at a large tree takes long: this part of the time at most.
const LOOK_SHARE: u32 = 5;

impl Watch {
    pub(crate) fn new(terms: &Terms, root: u32, growths: Vec<Growth>) -> Self {
        let memory_is_polled = terms
            .enforced_by
            .get(&LimitName::Memory)
            .is_some_and(|by| by.0.contains(&Enforcer::Poll));
        Self {
            limits: terms.request.limits.clone(),
            parallelism: terms.parallelism,
            memory_by: if memory_is_polled {
                MemoryBy::Looking
            } else {
                MemoryBy::Kernel
            },
            root,
            guest: None,
            scratch: None,
            growths,
            cpu: CpuAccount::default(),
            memory: MemoryCount::default(),
            seen: Seen::default(),
            next_look: Instant::now(),
            sampler: None,
        }
    }

    /// The program's process is this one, and not below init.
    pub(crate) fn look_at_guest(&mut self, pid: u32) {
        self.guest = Some(pid);
    }

    pub(crate) fn tell(&mut self, to: Arc<LiveUsage>) {
        self.sampler = Some(Sampler::new(to));
    }

    pub(crate) fn set_scratch(&mut self, dir: OwnedFd) {
        let used_at_start =
            disk::scratch_use(dir.as_fd()).map_or(Bytes::new(0), |scratch| scratch.used);
        self.scratch = Some(Scratch { dir, used_at_start });
    }

    /// From now on [`Watch::shared_memory_asked`] is told of every request.
    pub(crate) fn expect_shared_memory_reports(&mut self) {
        self.memory.expect_reports();
    }

    /// A process is about to map shared memory: new, or by way of /dev/zero, which is the same. A program that exchanges the descriptor behind our back is not
    /// caught at it.
    pub(crate) fn shared_memory_asked(&mut self, pid: u32, mapping: SharedMapping) {
        let is_file = |descriptor| proc::is_regular_file(pid, descriptor);
        if !mapping.descriptor.is_some_and(is_file) {
            self.memory.report(mapping.bytes);
        }
    }

    pub(crate) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// Looks at everything once and says which limit has been passed, if one has.
    pub(crate) fn look(&mut self, group: Option<&RunGroup>) -> Option<StopCause> {
        let start = Instant::now();
        let counters = group.map(RunGroup::counters).unwrap_or_default();
        let memory_limit = self
            .limits
            .memory
            .at_most()
            .filter(|_| self.memory_by == MemoryBy::Looking);
        let (cpu, tree) = match counters.cpu {
            Some(cpu) if memory_limit.is_none() => (cpu, None),
            counted => {
                let tree = self.look_at_tree();
                (counted.unwrap_or(self.cpu.total()), Some(tree))
            }
        };
        if let Some(sampler) = &mut self.sampler {
            sampler.take(cpu, group, tree.as_deref());
        }
        if let Cap::AtMost(limit) = self.limits.cpu_time
            && cpu >= limit
        {
            return Some(StopCause::CpuTime { limit });
        }
        let over = self
            .refused(&counters)
            .or_else(|| self.over_memory(tree.as_deref()?, memory_limit?))
            .or_else(|| self.over_disk(Moment::Running));
        let pause = match tree {
            Some(_) => LOOK_AT_TREE,
            None => LOOK_AT_GROUP,
        };
        self.schedule(cpu, pause.max(start.elapsed() * LOOK_SHARE));
        over
    }

    /// What the kernel refused or killed, by its own counters: also true after the program has ended.
    pub(crate) fn refused(&self, counters: &Counters) -> Option<StopCause> {
        match (self.limits.memory, self.limits.processes) {
            (Cap::AtMost(limit), _) if counters.oom_kills > 0 => Some(StopCause::Memory { limit }),
            (_, Cap::AtMost(limit)) if counters.forks_refused > 0 => {
                Some(StopCause::Processes { limit })
            }
            _ => None,
        }
    }

    /// After a failure: whether the disk limit is what the program met.
    pub(crate) fn met_disk_limit(&mut self) -> Option<StopCause> {
        self.over_disk(Moment::Failed)
    }

    fn over_disk(&mut self, moment: Moment) -> Option<StopCause> {
        let limit = self.limits.disk.at_most()?;
        let stopped = |place| StopCause::Disk { limit, place };
        if self.is_scratch_over(moment, limit) {
            return Some(stopped(DiskPlace::Scratch));
        }
        let (root, guest) = (self.root, self.guest);
        let pids = || {
            let roots = std::iter::once(root).chain(guest);
            let trees = roots.flat_map(|root| proc::tree(root, std::iter::empty()));
            trees.map(|process| process.pid).collect()
        };
        let over = self
            .growths
            .iter_mut()
            .any(|growth| growth.is_over(moment, pids));
        over.then_some(stopped(DiskPlace::Workspace))
    }

    /// One file meets its size limit before the file system, which also holds the sandbox's own files, is full.
    fn is_scratch_over(&self, moment: Moment, limit: Bytes) -> bool {
        let (Some(scratch), Some(now)) = (&self.scratch, self.scratch_use()) else {
            return false;
        };
        let written = now.used.get().saturating_sub(scratch.used_at_start.get());
        now.is_full || moment == Moment::Failed && written >= limit.get()
    }

    fn scratch_use(&self) -> Option<ScratchUse> {
        disk::scratch_use(self.scratch.as_ref()?.dir.as_fd())
    }

    /// The final figures. `cpu_by_wait` is what wait4 counted, for when nothing else did.
    pub(crate) fn usage(&self, counters: &Counters, cpu_by_wait: Duration) -> Usage {
        Usage {
            cpu: counters.cpu.unwrap_or(cpu_by_wait.max(self.cpu.total())),
            memory_peak: counters.memory_peak.or(self.seen.memory).map(Bytes::new),
            processes_peak: counters
                .processes_peak
                .or((self.seen.tasks > 0).then_some(self.seen.tasks)),
            disk: self.scratch_use().map(|scratch| scratch.used),
            ..Usage::default()
        }
    }

    /// Everything below the sandbox's init, whose own CPU time is counted too. Init, and whatever has not executed the program yet, live in our own memory.
    fn look_at_tree(&mut self) -> Vec<Process> {
        let mut tree = proc::tree(self.root, self.cpu.known());
        self.cpu.note(&tree);
        let init = self.root;
        tree.retain(|process| process.pid != init && !proc::share_memory(init, process.pid));
        let tasks = tree.iter().map(|process| process.threads).sum();
        self.seen.tasks = self.seen.tasks.max(tasks);
        tree
    }

    fn over_memory(&mut self, tree: &[Process], limit: Bytes) -> Option<StopCause> {
        let scratch = self.scratch_use().map_or(0, |scratch| scratch.used.get());
        let bytes = self.memory.bytes(tree, scratch, limit.get())?;
        self.seen.memory = self.seen.memory.max(Some(bytes));
        (bytes > limit.get()).then_some(StopCause::Memory { limit })
    }

    /// CPU time cannot run out sooner than the rest of it divided by the CPUs.
    fn schedule(&mut self, cpu: Duration, pause: Duration) {
        let soonest = match self.limits.cpu_time {
            Cap::AtMost(limit) => (limit.saturating_sub(cpu) / self.parallelism).max(SHORTEST),
            Cap::Unlimited => pause,
        };
        self.next_look = Instant::now() + pause.min(soonest);
    }
}
