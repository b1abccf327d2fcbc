//! That a run goes on, said every few seconds until it has ended: one thread for all runs.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_store::RunId;

/// Which runs go on, and when each is due.
#[derive(Debug)]
pub(super) struct Heart {
    every: Duration,
    state: Mutex<State>,
    change: Condvar,
}

#[derive(Debug, Default)]
struct State {
    runs: BTreeMap<RunId, Beat>,
    stopping: bool,
}

#[derive(Debug, Clone)]
struct Beat {
    /// What the run is called outside.
    execution: String,
    due: Instant,
}

/// How often the caller's other upkeep is done while nothing beats.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Heart {
    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            state: Mutex::default(),
            change: Condvar::new(),
        }
    }

    pub(super) fn add(&self, run: RunId, execution: String) {
        let due = Instant::now() + self.every;
        self.state().runs.insert(run, Beat { execution, due });
        self.change.notify_all();
    }

    /// When this has returned, nothing is said about the run any more.
    pub(super) fn remove(&self, run: RunId) {
        self.state().runs.remove(&run);
    }

    pub(super) fn stop(&self) {
        self.state().stopping = true;
        self.change.notify_all();
    }

    /// Calls `say` for every run that is due, and `look` about every second. Returns after [`Self::stop`].
    pub(super) fn beat(&self, say: impl Fn(RunId, &str), look: impl Fn()) {
        let mut looked = Instant::now();
        let mut state = self.state();
        while !state.stopping {
            let now = Instant::now();
            let next = state.runs.iter().min_by_key(|(_, beat)| beat.due);
            let next = next.map(|(run, beat)| (*run, beat.clone()));
            if let Some((run, beat)) = &next
                && beat.due <= now
            {
                // Under the lock, so that a run whose result is about to be told is not said to go on afterwards.
                say(*run, &beat.execution);
                if let Some(beat) = state.runs.get_mut(run) {
                    beat.due = now + self.every;
                }
                continue;
            }
            if looked.elapsed() >= LOOK_EVERY {
                drop(state);
                look();
                looked = Instant::now();
                state = self.state();
                continue;
            }
            let until = next.map_or(LOOK_EVERY, |(_, beat)| beat.due.duration_since(now));
            let waited = self.change.wait_timeout(state, until.min(LOOK_EVERY));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
