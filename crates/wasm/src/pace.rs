//! What is looked at at every beat while a program runs: its CPU time, its deadline, the directories that it fills, and whoever watches it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_contract::ending::StopCause;
use cofferdam_contract::limits::Limits;
use cofferdam_contract::units::Cap;
use cofferdam_engine::backend::Directories;
use cofferdam_engine::pipeline::{LiveUsage, Sample};
use rustix::time::ClockId;
use wasmtime::{StoreContextMut, UpdateDeadline};

use crate::guest::Guest;
use crate::settings::Determinism;
use crate::stdio::Shared;

/// The looks at one run. Made in the thread that the program runs in, and used there.
pub(crate) struct Pace {
    shared: Arc<Shared>,
    clock: Clock,
    cpu_time: Option<Duration>,
    wall_time: Option<Duration>,
    directories: Arc<Mutex<Directories>>,
    next_directories: Instant,
    usage: Option<Arc<LiveUsage>>,
    next_sample: Instant,
}

/// When a run began, by the clock on the wall and by that of its thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    began: Instant,
    cpu: Duration,
}

const LOOK_AT_DIRECTORIES: Duration = Duration::from_millis(20);
/// Nobody needs samples more often.
const SAMPLE: Duration = Duration::from_millis(250);

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            began: Instant::now(),
            cpu: cpu_of_thread(),
        }
    }

    pub(crate) fn wall(self) -> Duration {
        self.began.elapsed()
    }

    /// Of this thread, which runs nothing else meanwhile.
    pub(crate) fn cpu(self) -> Duration {
        cpu_of_thread().saturating_sub(self.cpu)
    }
}

impl Pace {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        clock: Clock,
        limits: &Limits,
        determinism: Determinism,
        directories: &Arc<Mutex<Directories>>,
        usage: Option<Arc<LiveUsage>>,
    ) -> Self {
        // Where instructions are counted, how long they took must not matter.
        let cpu_time = match determinism {
            Determinism::Off => limits.cpu_time.at_most(),
            Determinism::Exact { .. } => None,
        };
        Self {
            shared: Arc::clone(shared),
            clock,
            cpu_time,
            wall_time: limits.wall_time.at_most(),
            directories: Arc::clone(directories),
            next_directories: clock.began + LOOK_AT_DIRECTORIES,
            usage,
            next_sample: clock.began,
        }
    }

    /// Lets the program go on, or ends it. Others get their turn either way.
    pub(crate) fn look(
        &mut self,
        store: &StoreContextMut<'_, Guest>,
    ) -> wasmtime::Result<UpdateDeadline> {
        let now = Instant::now();
        let cpu = self.clock.cpu();
        if let Some(usage) = self.usage.as_ref().filter(|_| now >= self.next_sample) {
            self.next_sample = now + SAMPLE;
            usage.set(Sample {
                cpu,
                memory: Some(store.data().memory.used()),
                processes: None,
            });
        }
        match self.cause(now, cpu) {
            Some(cause) => Err(self.shared.stop(cause).into()),
            None => Ok(UpdateDeadline::Yield(1)),
        }
    }

    fn cause(&mut self, now: Instant, cpu: Duration) -> Option<StopCause> {
        if let Some(limit) = self.wall_time
            && self.clock.wall() >= limit
        {
            return Some(StopCause::WallTime { limit });
        }
        if let Some(limit) = self.cpu_time
            && cpu >= limit
        {
            return Some(StopCause::CpuTime { limit });
        }
        if now < self.next_directories {
            return None;
        }
        let mut directories = self
            .directories
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let cause = directories.look();
        self.next_directories = Instant::now() + LOOK_AT_DIRECTORIES;
        cause
    }
}

/// How many instructions stand for a CPU time.
pub(crate) fn fuel(cpu_time: Cap<Duration>) -> u64 {
    match cpu_time {
        Cap::AtMost(limit) => u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
        Cap::Unlimited => u64::MAX,
    }
}

fn cpu_of_thread() -> Duration {
    let now = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}
