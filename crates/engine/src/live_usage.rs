//! What a run uses right now, for whoever watches it. Written by its supervisor a few times a second, read by anybody; a figure that nothing measured is absent.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_contract::units::Bytes;
use cofferdam_sys::cgroup::RunGroup;
use cofferdam_sys::proc::{self, Process};

/// The last sample of one run; nothing before its program has started.
#[derive(Debug, Default)]
pub struct LiveUsage {
    last: Mutex<Option<Sample>>,
}

/// What a run used up to a moment, and had at that moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Of the whole tree, so far.
    pub cpu: Duration,
    pub memory: Option<Bytes>,
    /// Processes and threads alive.
    pub processes: Option<u64>,
}

impl LiveUsage {
    pub fn last(&self) -> Option<Sample> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, sample: Sample) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(sample);
    }
}

/// Takes the samples of one run.
#[derive(Debug)]
pub(crate) struct Sampler {
    to: Arc<LiveUsage>,
    next: Instant,
}

/// Nobody needs them more often.
const EVERY: Duration = Duration::from_millis(250);

impl Sampler {
    pub(crate) fn new(to: Arc<LiveUsage>) -> Self {
        Self {
            to,
            next: Instant::now(),
        }
    }

    /// Beside a look at the run, when it is time; `tree` is there where the look needed it.
    pub(crate) fn take(
        &mut self,
        cpu: Duration,
        group: Option<&RunGroup>,
        tree: Option<&[Process]>,
    ) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + EVERY;
        let current = group.map(RunGroup::current).unwrap_or_default();
        let resident = || {
            let tree = tree?.iter();
            Some(tree.map(|process| proc::resident_bytes(process.pid)).sum())
        };
        let tasks = || Some(tree?.iter().map(|process| process.threads).sum());
        self.to.set(Sample {
            cpu,
            memory: current.memory.or_else(resident).map(Bytes::new),
            processes: current.processes.or_else(tasks),
        });
    }
}
