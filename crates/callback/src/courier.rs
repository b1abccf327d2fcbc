//! The courier: a few threads that take messages out of the outbox and bring them to their peers, for as long as the process lives. What it cannot bring stays where it is.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cofferdam_store::StoreError;
use cofferdam_store::outbox::{Delivery, Kind, Outbox, Peer};
use jiff::Timestamp;

use crate::client::{Attempt, Client, Timeouts};
use crate::policy::Policy;
use crate::schedule::{Schedule, Verdict};
use crate::token::{Bearer, Tokens};

/// What the time is. Tests bring their own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
/// Who is told what happens: for logs and metrics. Called from the courier's threads, and must not block them.
pub type Observer = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

#[derive(Clone)]
pub struct Settings {
    /// That report to the control plane.
    pub threads: usize,
    /// That call clients back. Apart, because a client's address may be slow on purpose.
    pub client_threads: usize,
    pub policy: Policy,
    pub timeouts: Timeouts,
    pub schedule: Schedule,
    /// DER; trusted besides the system's.
    pub extra_roots: Vec<Vec<u8>>,
    /// How often to look for what other processes brought or left behind.
    pub look_every: Duration,
    pub prune_every: Duration,
    pub clock: Clock,
    pub observer: Observer,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            threads: 4,
            client_threads: 2,
            policy: Policy::default(),
            timeouts: Timeouts::default(),
            schedule: Schedule::default(),
            extra_roots: Vec::new(),
            look_every: Duration::from_secs(1),
            prune_every: Duration::from_secs(600),
            clock: Arc::new(Timestamp::now),
            observer: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("threads", &self.threads)
            .field("policy", &self.policy)
            .field("timeouts", &self.timeouts)
            .field("schedule", &self.schedule)
            .finish_non_exhaustive()
    }
}

/// Something that happened to a message, or to the outbox.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    Delivered {
        run: &'a str,
        kind: Kind,
        attempt: u32,
        /// Since it came into the outbox.
        after: Duration,
    },
    Failed {
        run: &'a str,
        kind: Kind,
        attempt: u32,
        why: &'a str,
        again_at: Timestamp,
    },
    GivenUp {
        run: &'a str,
        kind: Kind,
        attempt: u32,
        why: &'a str,
    },
    /// The outbox itself cannot be read or written. The courier goes on trying.
    Trouble(&'a StoreError),
}

/// Brings one message at a time. The courier's threads share one; a test may use it by itself.
pub struct Carrier {
    outbox: Outbox,
    client: Client,
    tokens: Arc<dyn Tokens>,
    schedule: Schedule,
    clock: Clock,
    observer: Observer,
    stop: AtomicU8,
    upkeep: Mutex<Upkeep>,
}

/// For the lease beyond the longest attempt: time to write down how it went.
const MARGIN: Duration = Duration::from_secs(30);

/// Steps of an end; they only grow.
const GO_ON: u8 = 0;
const FINISH_WHAT_IS_DUE: u8 = 1;
const NOW: u8 = 2;

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carrier")
            .field("outbox", &self.outbox)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

impl Carrier {
    pub fn new(outbox: Outbox, tokens: Arc<dyn Tokens>, settings: &Settings) -> Self {
        let client = Client::new(settings.policy.clone(), settings.timeouts)
            .with_roots(settings.extra_roots.clone());
        Self::with_client(outbox, tokens, client, settings)
    }

    pub fn with_client(
        outbox: Outbox,
        tokens: Arc<dyn Tokens>,
        client: Client,
        settings: &Settings,
    ) -> Self {
        Self {
            outbox,
            client,
            tokens,
            schedule: settings.schedule.clone(),
            clock: Arc::clone(&settings.clock),
            observer: Arc::clone(&settings.observer),
            stop: AtomicU8::new(GO_ON),
            upkeep: Mutex::default(),
        }
    }

    /// Makes one attempt with the next message that is due. `None` when none is.
    pub fn deliver_one(&self) -> Result<Option<Verdict>, StoreError> {
        self.deliver_one_to(None)
    }

    /// [`Self::deliver_one`], to such a peer or any.
    pub fn deliver_one_to(&self, whose: Option<Peer>) -> Result<Option<Verdict>, StoreError> {
        let lease = self.client.timeouts().whole + 2 * self.client.timeouts().connect + MARGIN;
        let Some(delivery) = self.outbox.next_due_to(whose, (self.clock)(), lease)? else {
            return Ok(None);
        };
        let attempt = self.attempt(&delivery);
        let now = (self.clock)();
        if self.stop.load(Ordering::Acquire) == NOW && matches!(attempt, Attempt::Broken { .. }) {
            // We broke it off, not the peer.
            self.outbox.release(&delivery, now)?;
            return Ok(None);
        }
        let verdict = self.schedule.judge(&attempt, &delivery, now);
        match &verdict {
            Verdict::Delivered { answer } => self.outbox.delivered(&delivery, answer, now)?,
            Verdict::Retry(retry) => self.outbox.failed(&delivery, retry, now)?,
            Verdict::GiveUp { why, peer_until } => {
                self.outbox.given_up(&delivery, why, *peer_until, now)?;
            }
        }
        self.tell(&delivery, &verdict, now);
        Ok(Some(verdict))
    }

    fn attempt(&self, delivery: &Delivery) -> Attempt {
        let bearer = match delivery.authorization.as_deref() {
            None => None,
            Some(name) => match self.tokens.token(name) {
                Ok(bearer) => Some(bearer),
                Err(why) => return Attempt::Unauthorised { why },
            },
        };
        let bearer: Option<&Bearer> = bearer.as_ref();
        self.client.post(delivery, bearer, (self.clock)())
    }

    fn tell(&self, delivery: &Delivery, verdict: &Verdict, now: Timestamp) {
        let (run, kind, attempt) = (delivery.run.as_str(), delivery.kind, delivery.attempt);
        let age = now.duration_since(delivery.created);
        let event = match verdict {
            Verdict::Delivered { .. } => Event::Delivered {
                run,
                kind,
                attempt,
                after: Duration::try_from(age).unwrap_or_default(),
            },
            Verdict::Retry(retry) => Event::Failed {
                run,
                kind,
                attempt,
                why: &retry.why,
                again_at: retry.at,
            },
            Verdict::GiveUp { why, .. } => Event::GivenUp {
                run,
                kind,
                attempt,
                why,
            },
        };
        (self.observer)(&event);
    }
}

/// The threads. Dropped without [`Courier::stop`], they end after the attempt that each is in.
#[derive(Debug)]
pub struct Courier {
    carrier: Arc<Carrier>,
    working: Arc<Working>,
    threads: Vec<JoinHandle<()>>,
}

/// How many threads have not ended.
#[derive(Debug, Default)]
struct Working {
    threads: Mutex<usize>,
    fewer: Condvar,
}

/// How the courier ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// All that was due has been tried.
    Finished,
    /// Time was up: what was under way was broken off. It is still in the outbox.
    BrokenOff,
}

impl Courier {
    pub fn start(
        outbox: Outbox,
        tokens: Arc<dyn Tokens>,
        settings: Settings,
    ) -> Result<Self, StoreError> {
        let carrier = Carrier::new(outbox, tokens, &settings);
        Self::start_with(carrier, settings)
    }

    pub fn start_with(carrier: Carrier, settings: Settings) -> Result<Self, StoreError> {
        carrier.outbox.take_back_from_the_dead((settings.clock)())?;
        let mut courier = Self {
            carrier: Arc::new(carrier),
            working: Arc::default(),
            threads: Vec::new(),
        };
        let planes = std::iter::repeat_n(Peer::ControlPlane, settings.threads.max(1));
        let clients = std::iter::repeat_n(Peer::Client, settings.client_threads.max(1));
        for (number, whose) in planes.chain(clients).enumerate() {
            let carrier = Arc::clone(&courier.carrier);
            let present = Present::new(&courier.working);
            let settings = settings.clone();
            let thread = thread::Builder::new()
                .name(format!("courier-{number}"))
                .spawn(move || {
                    let _present = present;
                    work(&carrier, &settings, whose);
                });
            match thread {
                Ok(thread) => courier.threads.push(thread),
                Err(source) => {
                    return Err(StoreError::Io {
                        what: "start a thread for",
                        path: "the outbox".into(),
                        source,
                    });
                }
            }
        }
        Ok(courier)
    }

    /// Tries what is due now, for at most `grace`; then breaks off what is under way. Returns within half a second of that, unless a name server or a connection is being waited for.
    pub fn stop(mut self, grace: Duration) -> Stopped {
        self.end(FINISH_WHAT_IS_DUE);
        if self.working.wait(grace) {
            for thread in self.threads.drain(..) {
                // A thread that panicked has ended too.
                let _ = thread.join();
            }
            return Stopped::Finished;
        }
        self.end(NOW);
        self.carrier.client.abort();
        let _ = self.working.wait(Duration::from_millis(500));
        Stopped::BrokenOff
    }

    fn end(&self, how: u8) {
        self.carrier.stop.fetch_max(how, Ordering::AcqRel);
        self.carrier.outbox.ring();
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        self.end(NOW);
    }
}

impl Working {
    /// Whether all have ended.
    fn wait(&self, at_most: Duration) -> bool {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let (threads, _) = self
            .fewer
            .wait_timeout_while(threads, at_most, |threads| *threads > 0)
            .unwrap_or_else(PoisonError::into_inner);
        *threads == 0
    }

    fn change(&self, by: impl FnOnce(usize) -> usize) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        *threads = by(*threads);
        self.fewer.notify_all();
    }
}

/// A thread that works; counted until it ends, however it ends.
struct Present(Arc<Working>);

impl Present {
    fn new(working: &Arc<Working>) -> Self {
        working.change(|threads| threads + 1);
        Self(Arc::clone(working))
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.change(|threads| threads.saturating_sub(1));
    }
}

fn work(carrier: &Carrier, settings: &Settings, whose: Peer) {
    let outbox = &carrier.outbox;
    loop {
        let seen = outbox.rung();
        let stop = carrier.stop.load(Ordering::Acquire);
        if stop == NOW {
            return;
        }
        match carrier.deliver_one_to(Some(whose)) {
            Ok(Some(_)) => {}
            Ok(None) if stop != GO_ON => return,
            Ok(None) => outbox.wait(seen, until_next(carrier, settings, whose)),
            Err(error) => {
                (settings.observer)(&Event::Trouble(&error));
                if stop != GO_ON {
                    return;
                }
                // What rang before the trouble is no reason to go on at once; the word to stop is.
                let seen = outbox.rung();
                if carrier.stop.load(Ordering::Acquire) == stop {
                    outbox.wait(seen, settings.look_every);
                }
            }
        }
        look_after(carrier, settings);
    }
}

/// When the outbox was last looked after, and by whichever thread came by: one that is in a slow request must not hold that up.
#[derive(Debug, Default)]
struct Upkeep {
    looked: Option<Instant>,
    pruned: Option<Instant>,
}

fn look_after(carrier: &Carrier, settings: &Settings) {
    let Ok(mut upkeep) = carrier.upkeep.try_lock() else {
        return;
    };
    let is_due = |last: Option<Instant>, every| last.is_none_or(|at| at.elapsed() >= every);
    if !is_due(upkeep.looked, settings.look_every) {
        return;
    }
    let now = (settings.clock)();
    let mut looked = carrier.outbox.take_back_from_the_dead(now);
    upkeep.looked = Some(Instant::now());
    if looked.is_ok() && is_due(upkeep.pruned, settings.prune_every) {
        looked = carrier.outbox.prune(now);
        upkeep.pruned = Some(Instant::now());
    }
    if let Err(error) = looked {
        (settings.observer)(&Event::Trouble(&error));
    }
}

fn until_next(carrier: &Carrier, settings: &Settings, whose: Peer) -> Duration {
    let now = (settings.clock)();
    let next = carrier.outbox.next_due_at_to(Some(whose)).ok().flatten();
    let wait = next.map_or(settings.look_every, |at| {
        Duration::try_from(at.duration_since(now)).unwrap_or_default()
    });
    // What is due this very millisecond may have gone to another thread.
    wait.clamp(Duration::from_millis(1), settings.look_every)
}
