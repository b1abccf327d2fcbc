//! Threads for runs. One that is done waits a while for the next run: starting a thread takes as long as much of what it does for a short one.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long one without work waits for more.
const PATIENCE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Clone, Default)]
pub(crate) struct Hands(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Those who wait; each takes one job.
    idle: usize,
}

/// How deep a job may go. One that waits for a fleet goes deeper than the usual 2 MiB where nothing was optimised; what is not touched costs nothing.
const ROOM: usize = 8 << 20;

impl Hands {
    /// Does it at once, by whoever waits or by a new thread. However many there are at a time is the caller's affair.
    pub(crate) fn give(&self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut state = self.0.state();
        if state.idle > state.jobs.len() {
            state.jobs.push_back(Box::new(job));
            drop(state);
            self.0.wake.notify_one();
            return Ok(());
        }
        drop(state);
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("run".to_owned());
        let thread = thread.stack_size(ROOM);
        thread
            .spawn(move || {
                job();
                while let Some(job) = shared.next() {
                    job();
                }
            })
            .map(drop)
    }
}

impl std::fmt::Debug for Hands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hands")
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when nothing came for a while.
    fn next(&self) -> Option<Job> {
        let mut state = self.state();
        state.idle += 1;
        let waited = self
            .wake
            .wait_timeout_while(state, PATIENCE, |state| state.jobs.is_empty());
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.idle -= 1;
        state.jobs.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc;
    use std::thread::ThreadId;

    use super::*;

    fn who(hands: &Hands) -> ThreadId {
        let (tell, told) = mpsc::channel();
        let say = move || tell.send(std::thread::current().id()).unwrap();
        hands.give(say).unwrap();
        told.recv().unwrap()
    }

    #[test]
    fn one_thread_does_what_comes_one_after_the_other() {
        let hands = Hands::default();
        let seen: HashSet<ThreadId> = (0..200)
            .map(|_| {
                let who = who(&hands);
                while hands.0.state().idle == 0 {
                    std::thread::yield_now();
                }
                who
            })
            .collect();
        assert_eq!(seen.len(), 1);
    }

    #[test]
    fn nothing_waits_for_what_takes_long() {
        let hands = Hands::default();
        let (hold, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..8 {
            let held = Arc::clone(&held);
            // All but one wait for the lock, and it for the word.
            hands
                .give(move || {
                    let _ = held.lock().unwrap().recv();
                })
                .unwrap();
        }
        let _ = who(&hands);
        drop(hold);
    }

    #[test]
    fn a_job_that_panics_takes_only_its_own_thread() {
        let hands = Hands::default();
        let _ = who(&hands);
        hands.give(|| panic!("as asked")).unwrap();
        for _ in 0..20 {
            let _ = who(&hands);
        }
    }
}
