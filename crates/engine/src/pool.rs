//! Sandboxes that are built before their runs are there. Each is used once. A run takes the oldest that has the walls it wants, and another is built behind it; what nobody has asked for in a
//! while goes, and so does what has waited long, since the host may have changed around it.
//!
//! There is no state of one run that another could meet: a parked sandbox has executed nothing, and all that is recycled is the idea of it.

mod networks;
mod nursery;
mod seat;
mod shape;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cofferdam_contract::request::Request;
use cofferdam_store::{DataDir, RunId};
use cofferdam_sys::cgroup::Bounds;
use cofferdam_sys::janitor::Family;
use rustix::io::Errno;
use rustix::process::Resource;

use crate::error::EngineError;
use crate::host::Host;
use crate::interpreter::{Interpreter, Way};
use crate::plan::Evidence;
use crate::stand::{Waste, unwatched};
use networks::Networks;
use nursery::Nursery;
use shape::Shape;

pub use seat::Seat;

/// How much may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolBounds {
    /// Sandboxes of all kinds together.
    pub most: usize,
    /// How long one may wait before it is built anew.
    pub fresh_for: Duration,
    /// How long sandboxes are kept ready that nobody takes.
    pub idle_for: Duration,
}

impl PoolBounds {
    /// For this many runs at once.
    pub fn of_runs(at_once: usize) -> Self {
        Self {
            most: at_once.saturating_mul(2).clamp(2, 64),
            fresh_for: Duration::from_secs(30),
            idle_for: Duration::from_secs(60),
        }
    }
}

/// Whether the sandbox comes with a directory of its own, at the usual place of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Private {
    Workspace,
    Nothing,
}

/// Keeps sandboxes ready. Dropping it ends them.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    keepers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    host: Arc<Host>,
    dir: DataDir,
    bounds: PoolBounds,
    nursery: Nursery,
    networks: Networks,
    /// Whoever removes the groups of its sandboxes when this process is killed.
    family: Mutex<Option<Arc<Family>>>,
    state: Mutex<State>,
    wake: Condvar,
    /// Told when a sandbox stands.
    came: Condvar,
}

#[derive(Debug, Default)]
struct State {
    kinds: Vec<Kind>,
    /// Of runs that are over.
    waste: Vec<Waste>,
    /// Of kinds that made place for others.
    discarded: Vec<Seat>,
    figures: Figures,
    stopping: bool,
    /// A run has just begun: nothing is built beside it before this, or before it ends, or before somebody lacks a sandbox.
    rest_until: Option<Instant>,
    /// How many wait for a sandbox that is being built.
    awaited: usize,
}

/// What a pool has done so far, and what waits in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    pub taken: u64,
    pub missed: u64,
    pub built: u64,
    pub failed: u64,
    pub waiting: usize,
}

/// Sandboxes that are alike.
#[derive(Debug)]
struct Kind {
    shape: Shape,
    /// Those of whoever asked last: most ask for the same.
    bounds: Bounds,
    ready: VecDeque<Seat>,
    /// Being built right now.
    coming: usize,
    wanted: usize,
    misses: u64,
    last_asked: Instant,
    /// After a failure, not before this.
    not_before: Instant,
}

/// About how many descriptors a waiting sandbox takes. Those of a daemon that waits must not be all that it may have.
const DESCRIPTORS: usize = 32;
/// Of a kind that starts an interpreter for each: those hold memory of their own, and starting them takes long.
const MOST_STARTED: usize = 2;
/// Threads that build. One waits much of the time for what it builds.
const KEEPERS: usize = 2;
/// Between two looks at what has become old.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const AFTER_A_FAILURE: Duration = Duration::from_secs(2);
/// Most runs are over before this, and have the processors to themselves.
const REST: Duration = Duration::from_millis(5);
/// A copy is made sooner than an interpreter starts.
const WORTH_WAITING: Duration = Duration::from_millis(100);
/// More than these wait for the pool's thread only where it does not keep up; then whoever leaves more takes the time.
const MOST_WASTE: usize = 32;
/// What is asked for once is not built ahead, and of so many kinds the one that was not asked for longest makes place: nobody fills the pool with what nobody wants.
const MOST_KINDS: usize = 16;
const OVERTAKEN_AFTER: Duration = Duration::from_secs(2);

impl Pool {
    /// `None` where no thread can be had that builds them.
    pub fn start(
        host: Arc<Host>,
        dir: DataDir,
        mut bounds: PoolBounds,
        interpreters: Vec<Interpreter>,
    ) -> Option<Self> {
        if let Some(files) = rustix::process::getrlimit(Resource::Nofile).current {
            let half = usize::try_from(files / 2).unwrap_or(usize::MAX);
            bounds.most = bounds.most.min(half / DESCRIPTORS);
        }
        let shared = Arc::new(Shared {
            host,
            dir,
            bounds,
            nursery: Nursery::new(interpreters),
            networks: Networks::new(bounds.most.saturating_mul(2) + 8),
            family: Mutex::default(),
            state: Mutex::default(),
            wake: Condvar::new(),
            came: Condvar::new(),
        });
        let keeper = |_| {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("cofferdam-pool".to_owned());
            thread.spawn(move || shared.keep()).ok()
        };
        let keepers: Vec<_> = (0..KEEPERS).filter_map(keeper).collect();
        (!keepers.is_empty()).then_some(Self { shared, keepers })
    }

    /// A sandbox that stands and has what the request wants around its program; `None` when there is none, and then the next one who asks the like may find one.
    pub fn seat(&self, request: &Request, evidence: Evidence, private: Private) -> Option<Seat> {
        let (shape, bounds) = self.shared.shape(request, evidence, private)?;
        let is_copy = shape
            .interpreter
            .as_ref()
            .is_some_and(|interpreter| interpreter.way == Way::Copy);
        let mut state = self.shared.state();
        let now = Instant::now();
        let kind = state.kind(&shape, now)?;
        kind.last_asked = now;
        kind.bounds = bounds;
        let mut seat = state.take(&shape);
        if seat.is_none() {
            let kind = state.kind(&shape, now)?;
            kind.misses += 1;
            if kind.misses > 1 {
                kind.wanted = kind.wanted.saturating_mul(2).max(1);
            }
            let will_come = is_copy && kind.wanted > 0 && kind.not_before <= now;
            state.rest_until = None;
            if will_come {
                (state, seat) = self.shared.await_seat(state, &shape, now + WORTH_WAITING);
            }
        }
        match &seat {
            Some(_) => {
                state.figures.taken += 1;
                state.rest_until = Some(Instant::now() + REST).filter(|_| state.awaited == 0);
            }
            None => state.figures.missed += 1,
        }
        drop(state);
        self.shared.wake.notify_one();
        seat
    }

    /// As [`Self::seat`], and where none stands one is built here and now, for which the caller waits: it takes less than a sandbox of the run's own, whose network has to be made.
    /// `None` for what the pool does not build, and where it could not.
    pub fn seat_or_build(
        &self,
        request: &Request,
        evidence: Evidence,
        private: Private,
    ) -> Option<Seat> {
        if let Some(seat) = self.seat(request, evidence, private) {
            return Some(seat);
        }
        let (mut shape, bounds) = self.shared.shape(request, evidence, private)?;
        // An interpreter does not start sooner by being waited for.
        shape.interpreter = None;
        shape.ahead = None;
        shape.script = None;
        self.shared.build(&shape, bounds).ok()
    }

    pub fn figures(&self) -> Figures {
        let state = self.shared.state();
        Figures {
            waiting: state.waiting(),
            ..state.figures
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state().stopping = true;
        self.shared.wake.notify_all();
        for keeper in self.keepers.drain(..) {
            let _ = keeper.join();
        }
    }
}

impl State {
    /// The kind that a shape belongs to, new if it must be.
    fn kind(&mut self, shape: &Shape, now: Instant) -> Option<&mut Kind> {
        let at = self.kinds.iter().position(|kind| kind.shape == *shape);
        let at = at.unwrap_or_else(|| {
            if self.kinds.len() >= MOST_KINDS {
                self.forget_one();
            }
            self.kinds.push(Kind {
                shape: shape.clone(),
                bounds: Bounds::default(),
                ready: VecDeque::new(),
                coming: 0,
                wanted: 0,
                misses: 0,
                last_asked: now,
                not_before: now,
            });
            self.kinds.len() - 1
        });
        self.kinds.get_mut(at)
    }

    /// One of a kind that lives.
    fn take(&mut self, shape: &Shape) -> Option<Seat> {
        let kind = self.kinds.iter_mut().find(|kind| kind.shape == *shape)?;
        loop {
            match kind.ready.pop_front() {
                // Its end takes time, which the pool's thread has.
                Some(seat) if !seat.is_alive() => self.discarded.push(seat),
                found => return found,
            }
        }
    }

    /// The kind that was not asked for longest; one that is just being built for stays.
    fn forget_one(&mut self) {
        let kinds = self.kinds.iter().enumerate();
        let idle = kinds.filter(|(_, kind)| kind.coming == 0);
        let oldest = idle.min_by_key(|(_, kind)| kind.last_asked);
        if let Some(at) = oldest.map(|(at, _)| at) {
            let kind = self.kinds.swap_remove(at);
            self.discarded.extend(kind.ready);
        }
    }

    /// Takes a seat from a kind that others have overtaken.
    fn make_place(&mut self, now: Instant) {
        let kinds = self.kinds.iter_mut();
        let full = kinds.filter(|kind| {
            !kind.ready.is_empty() && now.duration_since(kind.last_asked) > OVERTAKEN_AFTER
        });
        if let Some(kind) = full.min_by_key(|kind| kind.last_asked) {
            kind.wanted = kind.wanted.saturating_sub(1);
            self.discarded.extend(kind.ready.pop_front());
        }
    }

    fn waiting(&self) -> usize {
        self.kinds
            .iter()
            .map(|kind| kind.ready.len() + kind.coming)
            .sum()
    }
}

impl Shared {
    /// Waits for one that is being built.
    fn await_seat<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        shape: &Shape,
        until: Instant,
    ) -> (MutexGuard<'a, State>, Option<Seat>) {
        state.awaited += 1;
        self.wake.notify_one();
        let seat = loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break None;
            }
            let waited = self.came.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if let Some(seat) = state.take(shape) {
                break Some(seat);
            }
        };
        state.awaited -= 1;
        (state, seat)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Builds what is wanted, ends what is old, until the pool goes.
    fn keep(self: &Arc<Self>) {
        let mut state = self.state();
        while !state.stopping {
            let now = Instant::now();
            // Who waits for a sandbox does not wait for the end of others.
            let waste = match state.awaited > 0 && state.waste.len() < MOST_WASTE / 2 {
                true => Vec::new(),
                false => std::mem::take(&mut state.waste),
            };
            let old = (self.old(&mut state, now), waste);
            // Nothing is left to remove, and where nothing waits nobody has to, and nobody wants a network.
            let (family, networks) = match state.kinds.is_empty() {
                true => (self.family_slot().take(), self.networks.clear_out()),
                false => (None, Vec::new()),
            };
            let is_idle = family.is_some() || !networks.is_empty();
            if !old.0.is_empty() || !old.1.is_empty() || is_idle {
                drop(state);
                drop((old, family, networks));
                state = self.state();
                continue;
            }
            let rest = state
                .rest_until
                .map(|until| until.saturating_duration_since(now))
                .filter(|rest| !rest.is_zero());
            let next = match rest {
                Some(_) => None,
                None => self.next(&mut state, now),
            };
            let Some((shape, bounds)) = next else {
                // What has just made place goes first.
                if state.discarded.is_empty() {
                    let waited = self.wake.wait_timeout(state, rest.unwrap_or(LOOK_EVERY));
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                continue;
            };
            drop(state);
            let build = AssertUnwindSafe(|| self.build(&shape, bounds));
            let built = catch_unwind(build).unwrap_or_else(|_| {
                Err(EngineError::system("build a sandbox ahead of time")(
                    Errno::FAULT,
                ))
            });
            state = self.state();
            self.put(&mut state, shape, built);
        }
        let left = (
            std::mem::take(&mut state.kinds),
            std::mem::take(&mut state.waste),
            std::mem::take(&mut state.discarded),
        );
        drop(state);
        drop(left);
    }

    fn family_slot(&self) -> MutexGuard<'_, Option<Arc<Family>>> {
        self.family.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that somebody has killed is followed by another. `None` where there are no groups.
    fn family(&self) -> Result<Option<Arc<Family>>, EngineError> {
        let mut family = self.family_slot();
        if family.as_ref().is_none_or(|family| !family.is_watched()) {
            let name = format!("cofferdam-{}-", RunId::new());
            let started = Family::start(&self.host.cgroups, &name).map_err(unwatched())?;
            *family = started.map(Arc::new);
        }
        Ok(family.clone())
    }

    /// Takes out what has made place, what has waited too long, and what nobody asks for.
    fn old(&self, state: &mut State, now: Instant) -> Vec<Seat> {
        let mut old = std::mem::take(&mut state.discarded);
        for kind in &mut state.kinds {
            if now.duration_since(kind.last_asked) > self.bounds.idle_for {
                kind.wanted = 0;
                old.extend(kind.ready.drain(..));
            }
            let is_old = |seat: &Seat| now.duration_since(seat.since) > self.bounds.fresh_for;
            while kind.ready.front().is_some_and(is_old) {
                old.extend(kind.ready.pop_front());
            }
        }
        // Also one that was asked for once: the second time counts.
        let is_kept = |kind: &Kind| {
            let is_asked = now.duration_since(kind.last_asked) <= self.bounds.idle_for;
            is_asked || kind.coming > 0 || !kind.ready.is_empty()
        };
        state.kinds.retain(is_kept);
        old
    }

    /// The kind that lacks most, if there is room for one more.
    fn next(&self, state: &mut State, now: Instant) -> Option<(Shape, Bounds)> {
        let missing = |kind: &Kind| {
            let there = kind.ready.len() + kind.coming;
            let most = match kind.shape.ahead {
                Some(_) => self.bounds.most.min(MOST_STARTED),
                None => self.bounds.most,
            };
            kind.wanted.min(most).saturating_sub(there)
        };
        let is_lacking = |kind: &&mut Kind| missing(kind) > 0 && kind.not_before <= now;
        if state.waiting() >= self.bounds.most {
            if state.kinds.iter_mut().any(|kind| is_lacking(&kind)) {
                state.make_place(now);
            }
            return None;
        }
        let lacking = state.kinds.iter_mut().filter(is_lacking);
        let kind = lacking.max_by_key(|kind| missing(kind))?;
        kind.coming += 1;
        Some((kind.shape.clone(), kind.bounds))
    }

    fn put(&self, state: &mut State, shape: Shape, built: Result<Seat, EngineError>) {
        let now = Instant::now();
        match &built {
            Ok(_) => state.figures.built += 1,
            Err(_) => state.figures.failed += 1,
        }
        let Some(kind) = state.kind(&shape, now) else {
            return;
        };
        kind.coming = kind.coming.saturating_sub(1);
        match built {
            Ok(seat) => {
                kind.ready.push_back(seat);
                self.came.notify_all();
            }
            // Whoever runs cold meets the same trouble, and tells it.
            Err(_) => kind.not_before = now + AFTER_A_FAILURE,
        }
    }
}
