//! A worker: takes work that it can do from the queues in turn, runs it, answers, and tells that it lives. It survives a server that is away, and drains when asked to.

mod answer;
mod run;
mod take;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{PullConsumer, pull};
use cofferdam_contract::seal::Sealed;
use futures_util::StreamExt as _;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::class::{Capabilities, Class};
use crate::connect::{Fleet, Sign};
use crate::error::FleetError;
use crate::ledger::LocalLedger;
use crate::model::{Advert, WorkerState};
use crate::names;
use crate::store;

/// What runs a payload: the caller's. It blocks, and ends early when `cancel` becomes readable.
pub trait Executor: Send + Sync + 'static {
    fn execute(&self, sealed: &Sealed, cancel: OwnedFd) -> Result<Done, Refusal>;

    /// Carries out a request that came to a daemon, for which the payload stands; an empty one is the payload itself. Whoever cannot leaves it to others.
    fn carry_out(
        &self,
        _sealed: &Sealed,
        _request: &[u8],
        _cancel: OwnedFd,
    ) -> Result<Brought, Refusal> {
        Err(Refusal {
            reason: "it carries out no requests of daemons".to_owned(),
            whose: Whose::Worker,
        })
    }

    /// The contents of a file that a run left.
    fn contents(&self, _sha256: &str) -> Option<Vec<u8>> {
        None
    }
}

/// What came of a request.
#[derive(Debug, Clone)]
pub struct Brought {
    pub done: Done,
    /// A document with the whole record, for the daemon.
    pub more: String,
    /// The digests of the files that the run left, in hexadecimal digits.
    pub files: Vec<String>,
}

/// An envelope, signed, as JSON.
#[derive(Debug, Clone)]
pub struct Done {
    pub envelope: String,
    pub logs: Vec<String>,
}

/// Why a payload was not run.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub reason: String,
    pub whose: Whose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// It cannot be run here; elsewhere perhaps.
    Worker,
    /// It cannot be run anywhere.
    Payload,
}

/// A worker before it works.
pub struct Worker {
    pub fleet: Fleet,
    pub name: String,
    /// Random, for each life of it.
    pub incarnation: String,
    pub slots: u32,
    pub engine: String,
    pub capabilities: Capabilities,
    pub signer: Arc<dyn Sign>,
    /// The account whose bond stands for it.
    pub bond: Option<String>,
    pub executor: Arc<dyn Executor>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What its tasks share.
pub(crate) struct Shared {
    pub(crate) worker: Worker,
    pub(crate) running: Mutex<BTreeSet<(String, u32)>>,
    /// Since when we have been able to hear.
    pub(crate) hearing_since: Mutex<Instant>,
}

/// A queue that this worker can serve.
struct Queue {
    name: String,
    consumer: PullConsumer,
}

/// How long between looks when nothing wakes us.
const LOOKING: Duration = Duration::from_millis(500);

impl Worker {
    /// Works until it is told to drain and has finished what it has. Returns how many answers it gave. `told` hears of what happens.
    pub async fn work(
        self,
        mut drain: watch::Receiver<bool>,
        told: impl Fn(&str),
    ) -> Result<u64, FleetError> {
        let mut woken = store::heard(&self.fleet.client, names::WAKE.to_owned()).await?;
        let shared = Arc::new(Shared {
            worker: self,
            running: Mutex::default(),
            hearing_since: Mutex::new(Instant::now()),
        });
        let mut state = Loop {
            shared: Arc::clone(&shared),
            queues: Vec::new(),
            next: 0,
            tasks: JoinSet::new(),
            started_at: Timestamp::now(),
            done: 0,
            told_alive: None,
            looked: None,
            state: WorkerState::Ready,
        };
        loop {
            let is_draining = *drain.borrow();
            if is_draining {
                state.state = WorkerState::Draining;
                if state.tasks.is_empty() {
                    state.state = WorkerState::Stopped;
                    // Nobody waits for a word that cannot be said.
                    let _ = state.tell_alive().await;
                    return Ok(state.done);
                }
            }
            let mut is_idle = true;
            match state.round(is_draining).await {
                Ok(took) => is_idle = !took,
                Err(error) => {
                    shared.deaf();
                    told(&error.to_string());
                }
            }
            if !is_idle {
                continue;
            }
            tokio::select! {
                finished = state.tasks.join_next(), if !state.tasks.is_empty() => {
                    if let Some(Ok(true)) = finished {
                        state.done = state.done.saturating_add(1);
                    }
                }
                _ = woken.next() => state.looked = None,
                changed = drain.changed(), if !is_draining => {
                    if changed.is_err() {
                        return Ok(state.done);
                    }
                }
                () = tokio::time::sleep(LOOKING.min(shared.worker.fleet.settings.beat())) => {}
            }
        }
    }
}

impl Shared {
    pub(crate) fn deaf(&self) {
        let mut since = self
            .hearing_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *since = Instant::now();
    }

    pub(crate) fn running(&self) -> std::sync::MutexGuard<'_, BTreeSet<(String, u32)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Loop {
    shared: Arc<Shared>,
    queues: Vec<Queue>,
    /// Whose turn it is.
    next: usize,
    tasks: JoinSet<bool>,
    started_at: Timestamp,
    done: u64,
    told_alive: Option<Instant>,
    looked: Option<Instant>,
    state: WorkerState,
}

impl Loop {
    /// One round: a sign of life when it is time, then one piece of work. True where there was one.
    async fn round(&mut self, is_draining: bool) -> Result<bool, FleetError> {
        let beat = self.shared.worker.fleet.settings.beat();
        if self.told_alive.is_none_or(|told| told.elapsed() >= beat) {
            self.consider_state(is_draining).await?;
            self.tell_alive().await?;
            self.told_alive = Some(Instant::now());
        }
        let has_room = self.tasks.len() < usize::try_from(self.shared.worker.slots).unwrap_or(1);
        if self.state != WorkerState::Ready || !has_room {
            return Ok(false);
        }
        if self
            .looked
            .is_none_or(|looked| looked.elapsed() >= Duration::from_secs(2))
        {
            self.look_for_queues().await?;
            self.looked = Some(Instant::now());
        }
        let Some(message) = self.next_message().await? else {
            return Ok(false);
        };
        let shared = Arc::clone(&self.shared);
        self.tasks.spawn(run::attempt(shared, message));
        Ok(true)
    }

    async fn consider_state(&mut self, is_draining: bool) -> Result<(), FleetError> {
        let worker = &self.shared.worker;
        let key = format!("drain.{}", names::token(&worker.name));
        let asked: Option<store::Seen<bool>> = store::get(&worker.fleet.workers, &key).await?;
        let standing = LocalLedger::new(&worker.fleet)
            .standing(&worker.name)
            .await?;
        self.state = if is_draining || asked.is_some_and(|asked| asked.value) {
            WorkerState::Draining
        } else if standing.is_quarantined(Timestamp::now()) {
            WorkerState::Quarantined
        } else {
            WorkerState::Ready
        };
        Ok(())
    }

    async fn tell_alive(&self) -> Result<(), FleetError> {
        let worker = &self.shared.worker;
        let advert = Advert {
            name: worker.name.clone(),
            incarnation: worker.incarnation.clone(),
            key: worker.signer.public_key(),
            engine: worker.engine.clone(),
            slots: worker.slots,
            state: self.state,
            capabilities: worker.capabilities.clone(),
            running: self.shared.running().iter().cloned().collect(),
            started_at: self.started_at,
            seen_at: Timestamp::now(),
            done: self.done,
            bond: worker.bond.clone(),
        };
        let key = format!("worker.{}", names::token(&worker.name));
        store::put(&worker.fleet.workers, &key, &advert).await
    }

    /// The queues of classes that this worker can do: a payload goes only where its limits are held.
    async fn look_for_queues(&mut self) -> Result<(), FleetError> {
        let worker = &self.shared.worker;
        let work = &worker.fleet.work;
        let name = |info: &async_nats::jetstream::consumer::Info| info.name.clone();
        let trouble = "cannot list the queues";
        let consumers = store::listed(trouble, store::QUIET, name, || async {
            Ok(work.consumers())
        });
        let mut fits = Vec::new();
        for info in consumers.await? {
            let class = names::class_of_filter(&info.config.filter_subject);
            let class = class.and_then(|(class, _)| Class::read(&class));
            if class.is_some_and(|class| worker.capabilities.can_take(&class)) {
                fits.push(info.name);
            }
        }
        self.queues.retain(|queue| fits.contains(&queue.name));
        for name in fits {
            if self.queues.iter().any(|queue| queue.name == name) {
                continue;
            }
            let trouble = "cannot open a queue";
            let opened = || worker.fleet.work.get_consumer::<pull::Config>(&name);
            let consumer = store::asked(trouble, opened).await?;
            let consumer = consumer.map_err(FleetError::talk(trouble))?;
            self.queues.push(Queue { name, consumer });
        }
        Ok(())
    }

    /// From each queue in turn, so that a tenant with much work does not keep the others waiting.
    async fn next_message(&mut self) -> Result<Option<Message>, FleetError> {
        for _ in 0..self.queues.len() {
            self.next = (self.next + 1) % self.queues.len().max(1);
            let Some(queue) = self.queues.get(self.next) else {
                continue;
            };
            let trouble = "cannot take work";
            let batch = queue
                .consumer
                .fetch()
                .max_messages(1)
                .expires(Duration::from_secs(2));
            let batch = store::within(trouble, batch.messages()).await?;
            let mut batch = batch.map_err(FleetError::talk(trouble))?;
            // What comes too late for this is offered again.
            if let Some(message) = store::within(trouble, batch.next()).await? {
                return message.map(Some).map_err(FleetError::talk(trouble));
            }
        }
        Ok(None)
    }
}
