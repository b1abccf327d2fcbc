//! Looks after the limits that no byte counter and no wall clock can hold: CPU time, memory, processes and disk, from the control group's counters
//! where there is one and from /proc where there is none.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use cofferdam_contract::ending::{DiskPlace, StopCause};
use cofferdam_contract::limits::Limits;
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_contract::usage::Usage;
use cofferdam_sys::cgroup::{Counters, RunGroup};
use cofferdam_sys::proc::{self, TreeUsage};

use crate::disk::{self, Growth};

/// The watch over one run.
#[derive(Debug)]
pub(crate) struct Watch {
    limits: Limits,
    parallelism: u32,
    /// The sandbox's init, as seen from outside.
    root: u32,
    scratch: Option<OwnedFd>,
    growths: Vec<Growth>,
    /// Highest seen, where nothing else counts.
    seen: Seen,
    next_look: Instant,
}

#[derive(Debug, Default)]
struct Seen {
    cpu: Duration,
    memory: u64,
    tasks: u64,
}

/// With a group, counters only have to be looked at; without one, everything that happens between two looks is missed.
const LOOK_AT_GROUP: Duration = Duration::from_millis(50);
const LOOK_AT_TREE: Duration = Duration::from_millis(10);
const SHORTEST: Duration = Duration::from_millis(1);

impl Watch {
    pub(crate) fn new(limits: Limits, parallelism: u32, root: u32, growths: Vec<Growth>) -> Self {
        Self {
            limits,
            parallelism,
            root,
            scratch: None,
            growths,
            seen: Seen::default(),
            next_look: Instant::now(),
        }
    }

    pub(crate) fn set_scratch(&mut self, scratch: OwnedFd) {
        self.scratch = Some(scratch);
    }

    pub(crate) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// Looks at everything once and says which limit has been passed, if one has.
    pub(crate) fn look(&mut self, group: Option<&RunGroup>) -> Option<StopCause> {
        let counters = group.map(RunGroup::counters).unwrap_or_default();
        let polled = (group.is_none() || counters.cpu.is_none()).then(|| self.look_at_tree());
        let cpu = counters.cpu.unwrap_or(self.seen.cpu);
        self.schedule(
            cpu,
            if polled.is_some() {
                LOOK_AT_TREE
            } else {
                LOOK_AT_GROUP
            },
        );
        if let Cap::AtMost(limit) = self.limits.cpu_time
            && cpu >= limit
        {
            return Some(StopCause::CpuTime { limit });
        }
        self.refused(&counters)
            .or_else(|| self.over_memory(polled.as_ref()))
            .or_else(|| self.over_disk())
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

    pub(crate) fn over_disk(&mut self) -> Option<StopCause> {
        let Cap::AtMost(limit) = self.limits.disk else {
            return None;
        };
        let scratch = self
            .scratch
            .as_ref()
            .and_then(|scratch| disk::scratch_use(scratch.as_fd()));
        if scratch.is_some_and(|scratch| scratch.is_full) {
            return Some(StopCause::Disk {
                limit,
                place: DiskPlace::Scratch,
            });
        }
        let root = self.root;
        let over = self
            .growths
            .iter_mut()
            .any(|growth| growth.is_over(|| proc::tree_usage(root).pids));
        over.then_some(StopCause::Disk {
            limit,
            place: DiskPlace::Workspace,
        })
    }

    /// The final figures. `cpu_by_wait` is what wait4 counted, for when nothing else did.
    pub(crate) fn usage(&self, counters: &Counters, cpu_by_wait: Duration) -> Usage {
        let seen = |value: u64| (value > 0).then_some(value);
        Usage {
            cpu: counters.cpu.unwrap_or(cpu_by_wait.max(self.seen.cpu)),
            memory_peak: counters
                .memory_peak
                .or(seen(self.seen.memory))
                .map(Bytes::new),
            processes_peak: counters.processes_peak.or(seen(self.seen.tasks)),
            disk: self
                .scratch
                .as_ref()
                .and_then(|scratch| disk::scratch_use(scratch.as_fd()))
                .map(|scratch| scratch.used),
            ..Usage::default()
        }
    }

    fn look_at_tree(&mut self) -> TreeUsage {
        let tree = proc::tree_usage(self.root);
        self.seen.cpu = self.seen.cpu.max(tree.cpu);
        self.seen.tasks = self.seen.tasks.max(tree.tasks);
        tree
    }

    /// Without a memory controller: resident pages first, which are cheap and count shared ones too often; only above the limit the exact figure.
    fn over_memory(&mut self, tree: Option<&TreeUsage>) -> Option<StopCause> {
        let (Cap::AtMost(limit), Some(tree)) = (self.limits.memory, tree) else {
            return None;
        };
        let files = self
            .scratch
            .as_ref()
            .and_then(|scratch| disk::scratch_use(scratch.as_fd()))
            .map_or(0, |scratch| scratch.used.get())
            + proc::nameless_bytes(&tree.pids, None);
        let mut bytes = tree.resident_bytes + files;
        if bytes > limit.get() {
            bytes = proc::proportional_bytes(&tree.pids) + files;
        }
        self.seen.memory = self.seen.memory.max(bytes);
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
