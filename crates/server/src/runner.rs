//! Who runs when. Every run waits in one bounded queue and then has a thread to itself; one lock holds the queue and what is taken of the capacity, and nothing slow happens under it.

mod admission;
mod away;
mod endings;
mod warmth;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_engine::host::Host;
use cofferdam_engine::interpreter::Interpreter;
use cofferdam_engine::pool::Pool;
use cofferdam_store::RunId;
use jiff::Timestamp;

use crate::accepted::Accepted;
use crate::archive::Archive;
use crate::away::FrontDoor;
use crate::backends::Backends;
use crate::capacity::{self, Capacity};
use crate::config::RunBounds;
use crate::fault::{Fault, Refusal};
use crate::hands::Hands;
use crate::live::{Ended, Live, Outcome, Phase};
use crate::metrics::Metrics;
use crate::queue::{Queue, Verdict};
use crate::reports::{Reports, Told};
use crate::work::{Left, Place};
use endings::{canceled, expired, never_started};

pub(crate) use admission::{Asked, KeptPlace, TakenUp, unkept};

/// Each reserves addresses for its memory, of which there are not so many.
const MOST_INSTANCES: u32 = 1000;

/// Takes work on and sees it through.
#[derive(Debug)]
pub(crate) struct Runner {
    bounds: RunBounds,
    pub(crate) host: Arc<Host>,
    /// Sandboxes that stand ready, until the daemon stops.
    pool: Mutex<Option<Arc<Pool>>>,
    backends: Backends,
    archive: Arc<Archive>,
    metrics: Arc<Metrics>,
    reports: Arc<Reports>,
    accepted: Accepted,
    hands: Hands,
    /// Where runs are carried out elsewhere.
    front_door: Option<FrontDoor>,
    state: Mutex<State>,
    /// Told when something enters the queue or the daemon stops.
    clock: Condvar,
    /// Told when a run has ended.
    quiet: Condvar,
}

#[derive(Debug)]
struct State {
    queue: Queue<Arc<Live>>,
    capacity: Capacity,
    running: BTreeMap<RunId, Arc<Live>>,
    /// How many runs at once each tenant with a quota may have.
    quotas: HashMap<String, usize>,
    known: HashMap<RunId, Arc<Live>>,
    /// In the order of their endings.
    ended: VecDeque<Remembered>,
    /// What they take together.
    weight: usize,
    stopping: bool,
    /// Whose runs are being written down and have a place in the queue already.
    reserved: Vec<String>,
    arrivals: u64,
    /// Runs that have ended and whose files are just being removed.
    clearing: usize,
    /// Had their turn, and there was no thread for them.
    threadless: Vec<(Arc<Live>, Fault)>,
}

#[derive(Debug, Clone, Copy)]
struct Remembered {
    at: Instant,
    id: RunId,
    weight: usize,
}

/// How a run came out, weighed.
struct Conclusion {
    ended: Arc<Ended>,
    weight: usize,
}

/// What can be counted at any moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) running: usize,
    pub(crate) queued: usize,
    pub(crate) at_once: usize,
    pub(crate) memory_taken: u64,
}

impl Runner {
    pub(crate) fn new(
        bounds: RunBounds,
        archive: Arc<Archive>,
        metrics: Arc<Metrics>,
        reports: Arc<Reports>,
        accepted: Accepted,
        interpreters: Vec<Interpreter>,
    ) -> Self {
        let host = Arc::new(Host::detect());
        let available = capacity::available_memory();
        let capacity = Capacity::new(&bounds, host.cpus.len(), available);
        let at_once = u32::try_from(capacity.at_once()).unwrap_or(u32::MAX);
        let backends = Backends::of_daemon(archive.dir(), at_once.clamp(1, MOST_INSTANCES));
        #[cfg(feature = "docker")]
        let backends = backends.with_docker(cofferdam_docker::Settings {
            // Whoever sends work does not decide what is fetched.
            pull: cofferdam_docker::Pull::Never,
            ..bounds.images.docker.clone()
        });
        Self {
            state: Mutex::new(State {
                queue: Queue::new(bounds.queue),
                capacity,
                running: BTreeMap::new(),
                quotas: HashMap::new(),
                known: HashMap::new(),
                ended: VecDeque::new(),
                weight: 0,
                stopping: false,
                reserved: Vec::new(),
                arrivals: 0,
                clearing: 0,
                threadless: Vec::new(),
            }),
            pool: Mutex::new(warmth::pool(&bounds, &host, archive.dir(), interpreters)),
            backends,
            bounds,
            host,
            archive,
            metrics,
            reports,
            accepted,
            front_door: None,
            hands: Hands::default(),
            clock: Condvar::new(),
            quiet: Condvar::new(),
        }
    }

    pub(crate) fn bounds(&self) -> &RunBounds {
        &self.bounds
    }

    pub(crate) fn pool(&self) -> Option<Arc<Pool>> {
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.clone()
    }

    pub(crate) fn load(&self) -> Load {
        let state = self.state();
        Load {
            running: state.capacity.running(),
            queued: state.queue.len(),
            at_once: state.capacity.at_once(),
            memory_taken: state.capacity.memory_taken(),
        }
    }

    /// A run that is queued, runs, or has ended not long ago.
    pub(crate) fn find(&self, id: RunId) -> Option<Arc<Live>> {
        self.state().known.get(&id).cloned()
    }

    pub(crate) fn queued(&self) -> Vec<Arc<Live>> {
        let mut queued: Vec<_> = self.state().queue.iter().cloned().collect();
        queued.sort_by_key(|live| live.id);
        queued
    }

    /// Cancels a run that waits or goes on. Blocks on the disk for a moment.
    pub(crate) fn cancel(self: &Arc<Self>, live: &Live) -> Result<(), Fault> {
        let removed = self.state().queue.remove(|queued| queued.id == live.id);
        if removed.is_empty() {
            if matches!(live.phase(), Phase::Ended(_)) {
                return Err(Refusal::RunEnded.because(format!("run {}", live.id)));
            }
            live.cancel.ask();
        }
        if !removed.is_empty() {
            for live in removed {
                self.end_unrun(&live, Outcome::CanceledInQueue);
            }
            // What everybody waited for is gone.
            self.dispatch(&mut self.state());
        }
        self.clock.notify_all();
        Ok(())
    }

    /// Ends what waits past its deadline, and forgets what ended long ago. Returns when the daemon stops.
    pub(crate) fn keep_time(self: &Arc<Self>) {
        const FORGET_EVERY: Duration = Duration::from_secs(5);
        let mut state = self.state();
        while !state.stopping {
            let now = Instant::now();
            self.forget(&mut state, now);
            let expires = |live: &Arc<Live>| !self.may_have_answer(live);
            let expired = state
                .queue
                .remove(|live| live.deadline <= now && expires(live));
            let threadless = std::mem::take(&mut state.threadless);
            if !expired.is_empty() || !threadless.is_empty() {
                drop(state);
                for (live, fault) in threadless {
                    self.end_unrun(&live, Outcome::Failed(fault));
                }
                self.end_expired(expired);
                state = self.state();
                self.dispatch(&mut state);
                continue;
            }
            let waiting = state.queue.iter().filter(|live| expires(live));
            let next = waiting.map(|live| live.deadline).min();
            let wait = next.map_or(FORGET_EVERY, |next| {
                next.saturating_duration_since(now).min(FORGET_EVERY)
            });
            let waited = self.clock.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// No new work; what waits is cancelled, what runs may go on for `grace` and is cancelled then. Returns how many had to be.
    pub(crate) fn stop(&self, grace: Duration) -> usize {
        let began = Instant::now();
        self.reports.stopping();
        let mut state = self.state();
        state.stopping = true;
        let waiting = state.queue.remove(|_| true);
        let threadless = std::mem::take(&mut state.threadless);
        drop(state);
        self.clock.notify_all();
        // What is on the fleet or on its way there was promised, and the next daemon finds it.
        for live in waiting.iter().filter(|_| self.front_door.is_none()) {
            self.end_unrun(live, Outcome::CanceledInQueue);
        }
        for (live, fault) in threadless {
            self.end_unrun(&live, Outcome::Failed(fault));
        }
        // What waited is told meanwhile, which takes its time.
        let left = grace.saturating_sub(began.elapsed());
        let (state, _) = self.wait_quiet(self.state(), left);
        let left: Vec<_> = state.running.values().cloned().collect();
        match &self.front_door {
            Some(door) => door.leave(),
            None => left.iter().for_each(|live| live.cancel.ask()),
        }
        // The engine ends a cancelled run within milliseconds; this bound is for a kernel that does not.
        let (state, _) = self.wait_quiet(state, Duration::from_secs(5));
        drop(state);
        let pool = self
            .pool
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(pool);
        left.len()
    }

    fn wait_quiet<'a>(
        &self,
        state: MutexGuard<'a, State>,
        most: Duration,
    ) -> (MutexGuard<'a, State>, bool) {
        let busy = |state: &mut State| !state.running.is_empty() || state.clearing > 0;
        let waited = self.quiet.wait_timeout_while(state, most, busy);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        (state, waited.timed_out())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dispatch(self: &Arc<Self>, state: &mut State) {
        while let Some(live) = state.next() {
            state.capacity.take(live.share);
            state.running.insert(live.id, Arc::clone(&live));
            let runner = Arc::clone(self);
            let of_thread = Arc::clone(&live);
            let started = self.hands.give(move || runner.perform(&of_thread));
            if let Err(error) = started {
                state.release(&live);
                let fault = Fault::internal(format!("no thread could be started: {error}"));
                // Its end is written and told, which takes a moment.
                state.threadless.push((live, fault));
                self.clock.notify_all();
            }
        }
    }

    fn perform(self: &Arc<Self>, live: &Live) {
        let _log = live.trace.log_span(live.id).entered();
        if Instant::now() >= live.deadline && !self.may_have_answer(live) {
            // Its turn came too late, for one because no daemon was there.
            self.end_unrun(live, Outcome::Expired);
            let mut state = self.state();
            state.release(live);
            self.dispatch(&mut state);
            drop(state);
            self.quiet.notify_all();
            return;
        }
        if let Some(door) = &self.front_door {
            return self.perform_away(door, live);
        }
        self.begin(live);
        let pool = self.pool();
        let place = self.place(pool.as_deref());
        let mut left = Left::default();
        let carried_out = catch_unwind(AssertUnwindSafe(|| match live.take_work() {
            Some(work) => work.carry_out(live, place, &mut left),
            None => Err(Fault::internal("the work was taken already")),
        }));
        let outcome = match carried_out {
            Ok(Ok(finished)) => Outcome::Finished(Box::new(finished)),
            Ok(Err(fault)) => Outcome::Failed(fault),
            Err(_) => Outcome::Failed(Fault::internal("a fault of the daemon; its log says more")),
        };
        match &outcome {
            Outcome::Failed(fault) => self.archive.keep_unrun(live, never_started(fault)),
            Outcome::Finished(_) | Outcome::CanceledInQueue | Outcome::Expired => {
                self.archive.ended();
            }
        }
        drop(pool);
        let conclusion = self.conclude(live, outcome);
        self.tell(live, &conclusion);
        let mut state = self.state();
        state.release(live);
        self.finish(live, conclusion, &mut state);
        self.dispatch(&mut state);
        state.clearing += 1;
        drop(state);
        // Nobody waits for this any more, but whoever wants the daemon to end.
        drop(left);
        self.state().clearing -= 1;
        self.quiet.notify_all();
    }

    fn begin(&self, live: &Live) {
        live.trace.dequeued();
        let queued = live.arrived.elapsed();
        let since = Timestamp::now();
        live.set(Phase::Running { since, queued });
        self.reports.started(live, since);
    }

    fn place<'a>(&'a self, pool: Option<&'a Pool>) -> Place<'a> {
        Place {
            dir: self.archive.dir(),
            kept: self.archive.kept(),
            known: self.archive.known(),
            host: &self.host,
            pool,
            backends: &self.backends,
        }
    }

    /// In a thread of its own: telling of their end may have to wait, and the clock must not.
    fn end_expired(self: &Arc<Self>, expired: Vec<Arc<Live>>) {
        let runner = Arc::clone(self);
        let of_thread = expired.clone();
        let end = move || {
            for live in of_thread {
                runner.end_unrun(&live, Outcome::Expired);
            }
        };
        let thread = std::thread::Builder::new().name("expired".to_owned());
        if thread.spawn(end).is_err() {
            for live in expired {
                self.end_unrun(&live, Outcome::Expired);
            }
        }
    }

    /// A run whose turn never came.
    fn end_unrun(&self, live: &Live, outcome: Outcome) {
        live.trace.dequeued();
        let ending = match &outcome {
            Outcome::Expired => expired(live),
            Outcome::Failed(fault) => never_started(fault),
            Outcome::CanceledInQueue | Outcome::Finished(_) => {
                canceled("canceled before its turn came")
            }
        };
        self.archive.keep_unrun(live, ending);
        let conclusion = self.conclude(live, outcome);
        self.tell(live, &conclusion);
        self.finish(live, conclusion, &mut self.state());
    }

    /// Before anybody sees that it has ended: whoever is to be told will be.
    fn tell(&self, live: &Live, conclusion: &Conclusion) {
        let told = self.reports.ended(live, &conclusion.ended);
        self.metrics.ended(&conclusion.ended, &live.trace);
        live.trace
            .ended(live.id, live.kind.as_str(), &conclusion.ended);
        if live.promised && told == Told::Yes {
            self.accepted.done(live.id);
        }
    }

    /// Without the lock: weighing a result reads all of it.
    fn conclude(&self, live: &Live, outcome: Outcome) -> Conclusion {
        let total = live.arrived.elapsed();
        let queued = match live.phase() {
            Phase::Running { queued, .. } => queued,
            Phase::Queued | Phase::Ended(_) => total,
        };
        let ended = Ended {
            outcome,
            at: Timestamp::now(),
            queued,
            total,
        };
        Conclusion {
            weight: ended.weight() + live.weight(),
            ended: Arc::new(ended),
        }
    }

    fn finish(&self, live: &Live, conclusion: Conclusion, state: &mut State) {
        let now = Instant::now();
        state.weight += conclusion.weight;
        state.ended.push_back(Remembered {
            at: now,
            id: live.id,
            weight: conclusion.weight,
        });
        self.forget(state, now);
        live.set(Phase::Ended(conclusion.ended));
    }

    /// Results are kept as long as is said, and no more of them than is said.
    fn forget(&self, state: &mut State, now: Instant) {
        let most = usize::try_from(self.bounds.remembered_bytes.get()).unwrap_or(usize::MAX);
        while let Some(oldest) = state.ended.front().copied() {
            let is_old = now.saturating_duration_since(oldest.at) > self.bounds.remembered_for;
            let are_many = state.ended.len() > self.bounds.remembered || state.weight > most;
            if !is_old && !are_many {
                break;
            }
            state.ended.pop_front();
            state.weight -= oldest.weight;
            state.known.remove(&oldest.id);
        }
    }
}

impl State {
    fn next(&mut self) -> Option<Arc<Live>> {
        if self.stopping {
            return None;
        }
        let (capacity, quotas, running) = (&self.capacity, &self.quotas, &self.running);
        self.queue.pop(|tenant, live| {
            let of_tenant = || {
                running
                    .values()
                    .filter(|live| live.tenant == tenant)
                    .count()
            };
            if quotas.get(tenant).is_some_and(|most| of_tenant() >= *most) {
                Verdict::PassOver
            } else if capacity.fits(live.share) {
                Verdict::Take
            } else {
                Verdict::Wait
            }
        })
    }

    fn release(&mut self, live: &Live) {
        self.capacity.give_back(live.share);
        self.running.remove(&live.id);
    }
}
