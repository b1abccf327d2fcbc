//! Who comes into the queue: what clients bring, as far as there is room, and what an earlier daemon had accepted. What must outlive the daemon is on the disk before it has its place.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_store::RunId;
use jiff::Timestamp;

use super::{Runner, State};
use crate::accepted::{Accepted, Promise};
use crate::auth::Caller;
use crate::capacity::Capacity;
use crate::config::RunBounds;
use crate::fault::{Fault, Refusal};
use crate::live::{Arrival, Live, Outcome};
use crate::submission::Submission;
use crate::work::Work;

/// A run that an earlier daemon accepted.
#[derive(Debug)]
pub(crate) struct TakenUp {
    pub(crate) promise: Promise,
    pub(crate) submission: Submission,
    /// Why it cannot be run any more.
    pub(crate) refused: Option<Fault>,
}

/// A place in the queue that nobody else gets. It is free again when this goes unused.
#[derive(Debug)]
pub(crate) struct KeptPlace {
    runner: Arc<Runner>,
    tenant: String,
    is_used: bool,
}

impl KeptPlace {
    fn used(mut self, state: &mut State) {
        state.unreserve(&self.tenant);
        self.is_used = true;
    }
}

impl Drop for KeptPlace {
    fn drop(&mut self) {
        if !self.is_used {
            self.runner.state().unreserve(&self.tenant);
        }
    }
}

/// Whether there was a place in the queue.
#[derive(Debug)]
pub(crate) enum Asked {
    Kept(KeptPlace),
    /// Not now.
    Full,
    /// Waiting would not help.
    Refused,
}

impl Runner {
    /// Keeps a place in the queue for somebody who will bring work at once.
    pub(crate) fn keep_place(self: &Arc<Self>, caller: &Caller) -> Asked {
        let mut state = self.state();
        match state.check_room(caller, &self.bounds) {
            Ok(()) => {
                state.reserved.push(caller.id.clone());
                Asked::Kept(KeptPlace {
                    runner: Arc::clone(self),
                    tenant: caller.id.clone(),
                    is_used: false,
                })
            }
            Err(fault) if fault.code == Refusal::QueueFull.code() => Asked::Full,
            Err(_) => Asked::Refused,
        }
    }

    pub(crate) fn accepted(&self) -> &Accepted {
        &self.accepted
    }

    /// Whether something must be on the disk before the client hears of this run.
    pub(crate) fn promises(&self, submission: &Submission) -> bool {
        let origin = &submission.origin;
        origin.request.is_some() || self.reports.wanted(origin.callback_url.as_deref())
    }

    /// Takes the work on, or says at once why not. Blocks on the disk where [`Self::promises`] says so.
    pub(crate) fn submit(
        self: &Arc<Self>,
        mut submission: Submission,
        caller: &Caller,
    ) -> Result<Arc<Live>, Fault> {
        let place = submission.origin.place.take();
        self.reports
            .admit(submission.origin.callback_url.as_deref())?;
        let promised = self.promises(&submission);
        let mut state = self.state();
        if let Some(place) = place {
            place.used(&mut state);
        }
        let share = state.admit(&submission.work, caller, &self.bounds)?;
        state.arrivals += 1;
        let arrival = state.arrivals;
        let Submission {
            work,
            priority,
            deadline,
            origin,
        } = submission;
        let deadline = deadline.min(self.bounds.longest_deadline);
        let answers = work.answers();
        let live = Arc::new(Live::new(Arrival {
            id: RunId::new(),
            submitted_at: Timestamp::now(),
            waited: Duration::ZERO,
            tenant: caller.id.clone(),
            deadline,
            share,
            execution_id: origin.execution_id,
            callback_url: origin.callback_url,
            promised,
            taken_up: false,
            work,
        }));
        if promised {
            state.reserved.push(caller.id.clone());
            drop(state);
            let (submitted_at, id) = (live.submitted_at, live.id);
            let promise = Promise {
                run_id: id,
                tenant: caller.id.clone(),
                max_running: caller.max_running,
                priority,
                arrival,
                submitted_at,
                deadline_at: submitted_at.checked_add(deadline).unwrap_or(submitted_at),
                execution_id: live.execution_id.clone(),
                callback_url: live.callback_url.clone(),
                answers,
                key: origin.key,
            };
            let kept = self.accepted.keep(&promise, origin.request.as_deref());
            state = self.state();
            state.unreserve(&caller.id);
            kept.map_err(unkept)?;
            if state.stopping {
                drop(state);
                self.accepted.done(id);
                return Err(stopping());
            }
        }
        state.set_quota(&caller.id, caller.max_running);
        state.enter(&live, priority);
        self.metrics.submitted();
        self.dispatch(&mut state);
        let is_waiting = state.queue.len() > 0;
        drop(state);
        if is_waiting {
            // It may have the first deadline of all.
            self.clock.notify_all();
        }
        Ok(live)
    }

    /// Queues what an earlier daemon accepted, also where that is more than may wait now.
    pub(crate) fn take_up(self: &Arc<Self>, runs: Vec<TakenUp>) {
        let mut refused = Vec::new();
        let mut state = self.state();
        for run in runs {
            let promise = &run.promise;
            let work = &run.submission.work;
            let (share, refusal) = match (run.refusal(), share(&state.capacity, work)) {
                (Some(fault), _) | (None, Err(fault)) => (0, Some(fault)),
                (None, Ok(share)) => (share, None),
            };
            let since = |from: Timestamp, to: Timestamp| {
                Duration::try_from(to.duration_since(from)).unwrap_or_default()
            };
            state.arrivals = state.arrivals.max(promise.arrival);
            let live = Live::new(Arrival {
                id: promise.run_id,
                submitted_at: promise.submitted_at,
                waited: since(promise.submitted_at, Timestamp::now()),
                tenant: promise.tenant.clone(),
                deadline: since(promise.submitted_at, promise.deadline_at),
                share,
                execution_id: promise.execution_id.clone(),
                callback_url: promise.callback_url.clone(),
                promised: true,
                taken_up: true,
                work: run.submission.work,
            });
            match refusal {
                Some(fault) => refused.push((live, fault)),
                None => {
                    state.set_quota(&promise.tenant, promise.max_running);
                    state.enter(&Arc::new(live), promise.priority);
                    self.metrics.submitted();
                }
            }
        }
        drop(state);
        for (live, fault) in refused {
            if let Some(door) = &self.front_door {
                door.give_up(live.id);
            }
            self.end_unrun(&live, Outcome::Failed(fault));
        }
        self.dispatch(&mut self.state());
    }
}

impl State {
    /// What the work takes of the memory budget, if it may come in at all.
    fn admit(&self, work: &Work, caller: &Caller, bounds: &RunBounds) -> Result<u64, Fault> {
        self.check_room(caller, bounds)?;
        share(&self.capacity, work)
    }

    /// Whether one more of this caller's may wait.
    fn check_room(&self, caller: &Caller, bounds: &RunBounds) -> Result<(), Fault> {
        if self.stopping {
            return Err(stopping());
        }
        let reserved = self.reserved.iter().filter(|tenant| **tenant == caller.id);
        let waiting = self.queue.waiting_for(&caller.id) + reserved.count();
        if let Some(most) = caller.max_queued
            && waiting >= most
        {
            return Err(Refusal::QuotaExceeded.because(format!("{most} may wait")));
        }
        if !self.queue.has_room(self.reserved.len()) {
            let detail = format!("{} runs wait already", bounds.queue);
            return Err(Refusal::QueueFull.because(detail));
        }
        Ok(())
    }

    fn unreserve(&mut self, tenant: &str) {
        if let Some(at) = self.reserved.iter().position(|known| known == tenant) {
            self.reserved.swap_remove(at);
        }
    }

    fn set_quota(&mut self, tenant: &str, most: Option<usize>) {
        match most {
            Some(most) => self.quotas.insert(tenant.to_owned(), most),
            None => self.quotas.remove(tenant),
        };
    }

    /// There is room, or it was promised.
    fn enter(&mut self, live: &Arc<Live>, priority: i8) {
        self.queue.push(&live.tenant, priority, Arc::clone(live));
        self.known.insert(live.id, Arc::clone(live));
    }
}

/// What it takes of the memory budget, or why it never fits.
fn share(capacity: &Capacity, work: &Work) -> Result<u64, Fault> {
    let memory = work.memory();
    capacity.share(memory).map_err(|never| {
        let fix = format!(
            "is more than this daemon has for all runs together; ask for at most {}",
            never.budget
        );
        let asked = memory.map_or_else(|| "unlimited".to_owned(), |asked| asked.to_string());
        Fault::invalid("limits.memory_bytes", asked, &fix)
    })
}

fn stopping() -> Fault {
    Refusal::Stopping.because("it was asked to end")
}

/// Why it is refused.
pub(crate) fn unkept(error: std::io::Error) -> Fault {
    tracing::error!(%error, "a run could not be written down, and was refused");
    let code = cofferdam_contract::codes::ErrorCode::HistoryUnavailable;
    Fault::coded(
        code,
        "it could not be written down; the daemon's log says more",
    )
}
