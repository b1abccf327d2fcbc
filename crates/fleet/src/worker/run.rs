//! One piece of work, from the queue to its answer: claimed, run under signs of life, answered once, acknowledged last. Whatever happens before that, the queue gives it to somebody.

use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use async_nats::jetstream::{AckKind, Message};
use cofferdam_contract::seal::Sealed;
use futures_util::StreamExt as _;
use jiff::Timestamp;

use super::answer::Untaken;
use super::take::{Step, Taker, consider};
use super::{Brought, Refusal, Shared, Whose};
use crate::carry::{LARGEST, LARGEST_REQUEST};
use crate::coordinator::told;
use crate::error::FleetError;
use crate::model::{Carried, Claim, ClaimState, Event, FailureKind, Work};
use crate::names;
use crate::queue::scope_of;
use crate::store::{self, Seen};

/// Between attempts at what a server that is away cannot take.
const AGAIN: Duration = Duration::from_millis(200);
/// Before work that is for somebody else is offered again.
const LATER: Duration = Duration::from_millis(300);
const ACKNOWLEDGING: &str = "cannot acknowledge";

/// True where an answer was given. Trouble is not told: the queue offers the work again.
pub(super) async fn attempt(shared: Arc<Shared>, message: Message) -> bool {
    let Ok(work) = serde_json::from_slice::<Work>(&message.payload) else {
        // Nothing can be made of it, by anybody.
        let _ = store::within(ACKNOWLEDGING, message.ack_with(AckKind::Term)).await;
        return false;
    };
    let place = (work.job.clone(), work.slot);
    let is_running = !shared.running().insert(place.clone());
    let attempt = Attempt {
        shared: &shared,
        message: &message,
        work: &work,
    };
    let done = attempt.go(is_running).await;
    if !is_running {
        shared.running().remove(&place);
    }
    match done {
        Ok(answered) => answered,
        Err(error) => {
            if matches!(error, FleetError::Talk { .. }) {
                shared.deaf();
            }
            let later = message.ack_with(AckKind::Nak(Some(LATER)));
            let _ = store::within(ACKNOWLEDGING, later).await;
            false
        }
    }
}

pub(super) struct Attempt<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) message: &'a Message,
    pub(super) work: &'a Work,
}

/// A slot as this worker has it.
pub(super) struct Held<'a> {
    pub(super) key: &'a str,
    pub(super) claim: Claim,
    pub(super) revision: u64,
}

/// Whether a slot is still this worker's.
pub(super) enum Hold {
    Ours,
    Lost,
}

/// What came of a document that the work names.
enum Fetched {
    There(Vec<u8>),
    /// It is not what was submitted, or not there.
    Damaged,
    Lost,
    /// The server answers, and does not give it.
    Withheld(FleetError),
}

impl Attempt<'_> {
    async fn go(&self, is_running: bool) -> Result<bool, FleetError> {
        let fleet = &self.shared.worker.fleet;
        let key = names::claim_key(&self.work.job, self.work.slot);
        self.acknowledge(AckKind::Progress).await?;
        let seen: Option<Seen<Claim>> = store::get(&fleet.claims, &key).await?;
        let (claim, revision, written_at) = match seen {
            Some(seen) => (seen.value, Some(seen.revision), Some(seen.written_at)),
            None => (Claim::default(), None, None),
        };
        let now = Timestamp::now();
        let silence = written_at.map(|at| now.duration_since(at));
        let hearing = self
            .shared
            .hearing_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .elapsed();
        let taker = Taker {
            name: &self.shared.worker.name,
            incarnation: &self.shared.worker.incarnation,
            is_running,
            silence: silence
                .and_then(|silence| silence.try_into().ok())
                .unwrap_or_default(),
            hearing,
            now,
        };
        let (claim, burial) = match consider(&claim, self.work, &taker, &fleet.settings) {
            Step::Drop => {
                self.acknowledge(AckKind::Ack).await?;
                return Ok(false);
            }
            Step::Ours => return Ok(false),
            Step::Later(released) => {
                if let Some(released) = released {
                    self.write(&key, &released, revision).await?;
                }
                self.acknowledge(AckKind::Nak(Some(LATER))).await?;
                return Ok(false);
            }
            Step::Bury(claim, reason) => (claim, Some(reason)),
            Step::Start(claim) => (claim, None),
        };
        if let Some(reason) = burial {
            self.bury(&key, claim, revision, &reason).await?;
            return Ok(false);
        }
        if !self.is_first_slot().await? {
            self.acknowledge(AckKind::Nak(Some(LATER))).await?;
            return Ok(false);
        }
        let Some(revision) = self.write(&key, &claim, revision).await? else {
            // Somebody was faster; another slot of this job is still for us.
            let taken = names::taken_key(&self.work.job, &self.shared.worker.name);
            store::remove(&fleet.claims, &taken).await?;
            self.acknowledge(AckKind::Nak(Some(LATER))).await?;
            return Ok(false);
        };
        self.note("taken", String::new(), Vec::new()).await;
        let key = key.as_str();
        let held = Held {
            key,
            claim,
            revision,
        };
        self.run(held).await
    }

    /// A worker answers for one slot of a job: its second answer would confirm nothing.
    async fn is_first_slot(&self) -> Result<bool, FleetError> {
        let fleet = &self.shared.worker.fleet;
        let key = names::taken_key(&self.work.job, &self.shared.worker.name);
        if store::create(&fleet.claims, &key, &self.work.slot)
            .await?
            .is_some()
        {
            return Ok(true);
        }
        let taken: Option<Seen<u32>> = store::get(&fleet.claims, &key).await?;
        let Some(taken) = taken.filter(|taken| taken.value != self.work.slot) else {
            return Ok(true);
        };
        let place = (self.work.job.clone(), taken.value);
        if self.shared.running().contains(&place) {
            return Ok(false);
        }
        // Whoever lost the server before it could write the claim has no part in that slot.
        let other = names::claim_key(&self.work.job, taken.value);
        let other: Option<Seen<Claim>> = store::get(&fleet.claims, &other).await?;
        let name = &self.shared.worker.name;
        if other.is_some_and(|other| other.value.takers.contains(name)) {
            return Ok(false);
        }
        let moved = store::swap(&fleet.claims, &key, &self.work.slot, taken.revision).await?;
        Ok(moved.is_some())
    }

    async fn run(&self, mut held: Held<'_>) -> Result<bool, FleetError> {
        let fleet = &self.shared.worker.fleet;
        let fetched = self.fetched(&mut held, &self.work.payload, LARGEST).await;
        let bytes = match fetched {
            Fetched::There(bytes) => Some(bytes),
            Fetched::Damaged => None,
            Fetched::Lost => return self.revoked().await,
            Fetched::Withheld(error) => return self.withheld(held, &error).await,
        };
        let sealed = match bytes.as_deref().map(Sealed::open) {
            Some(Ok(sealed)) if sealed.digest() == self.work.digest => sealed,
            Some(_) | None => {
                return self
                    .bury_held(held, "its payload is not what was submitted")
                    .await;
            }
        };
        let (cancel, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(FleetError::talk("cannot make a pipe"))?;
        let mut stop: Option<OwnedFd> = Some(stop);
        let request = match &self.work.request {
            Some(request) => match self.fetched(&mut held, request, LARGEST_REQUEST).await {
                Fetched::There(bytes) => Some(Some(bytes)),
                Fetched::Damaged => Some(None),
                Fetched::Lost => return self.revoked().await,
                Fetched::Withheld(error) => return self.withheld(held, &error).await,
            },
            None => None,
        };
        let is_other =
            |request: &Vec<u8>| !request.is_empty() && sealed.payload().scope != scope_of(request);
        let (is_asked, request) = (request.is_some(), request.flatten());
        if request.as_ref().map_or(is_asked, is_other) {
            return self
                .bury_held(held, "its request is not what was submitted")
                .await;
        }
        // A hint: whoever does not hear it finds out at his next sign of life.
        let canceled = names::cancel_subject(&self.work.job);
        let canceled = store::heard(&fleet.client, canceled).await;
        let mut canceled = match canceled {
            Ok(canceled) => canceled.map(|_| ()).boxed(),
            Err(_) => futures_util::stream::pending().boxed(),
        };
        let executor = Arc::clone(&self.shared.worker.executor);
        let mut running = tokio::task::spawn_blocking(move || match request {
            Some(request) => executor.carry_out(&sealed, &request, cancel),
            None => executor.execute(&sealed, cancel).map(|done| Brought {
                done,
                more: String::new(),
                files: Vec::new(),
            }),
        });
        let beat = fleet.settings.beat();
        let outcome = loop {
            tokio::select! {
                ended = &mut running => break ended,
                () = tokio::time::sleep(beat) => {}
                Some(_) = canceled.next() => {}
            }
            match self.sign_of_life(&mut held).await {
                Ok(Hold::Ours) => {}
                Ok(Hold::Lost) => {
                    // Closing our end makes the other readable: the run is ended, with everything in it.
                    stop = None;
                }
                // A server that is away is no reason to stop: what is done can be told later.
                Err(_) => self.shared.deaf(),
            }
        };
        let is_lost = stop.is_none();
        drop(stop);
        let outcome = outcome.unwrap_or_else(|error| {
            Err(Refusal {
                reason: format!("running it failed: {error}"),
                whose: Whose::Worker,
            })
        });
        if is_lost {
            return self.revoked().await;
        }
        match outcome {
            Ok(done) => self.answer(held, done).await,
            Err(refusal) => {
                self.refuse(held, refusal).await?;
                Ok(false)
            }
        }
    }

    async fn revoked(&self) -> Result<bool, FleetError> {
        self.note("revoked", "somebody else has it".to_owned(), Vec::new())
            .await;
        Ok(false)
    }

    async fn withheld(&self, held: Held<'_>, error: &FleetError) -> Result<bool, FleetError> {
        let refusal = Refusal {
            reason: format!("the server does not give what was submitted: {error}"),
            whose: Whose::Worker,
        };
        self.refuse(held, refusal).await?;
        Ok(false)
    }

    async fn bury_held(&self, mut held: Held<'_>, reason: &str) -> Result<bool, FleetError> {
        held.claim.state = ClaimState::Dead {
            reason: reason.to_owned(),
        };
        self.bury(held.key, held.claim, Some(held.revision), reason)
            .await?;
        Ok(false)
    }

    /// A document that the work names, however long it takes. A server that is away is waited for.
    async fn fetched(&self, held: &mut Held<'_>, carried: &Carried, largest: usize) -> Fetched {
        let fleet = &self.shared.worker.fleet;
        let mut untaken = Untaken::default();
        loop {
            let fetching = fleet.fetch_at_most(carried, largest);
            let error = match self.living(held, fetching).await {
                None => return Fetched::Lost,
                Some(Ok(bytes)) => return Fetched::There(bytes),
                Some(Err(error @ FleetError::Talk { .. })) => error,
                Some(Err(_)) => return Fetched::Damaged,
            };
            match self.sign_of_life(held).await {
                Ok(Hold::Lost) => return Fetched::Lost,
                Ok(Hold::Ours) if untaken.is_for_good(Instant::now(), &fleet.settings) => {
                    return Fetched::Withheld(error);
                }
                Ok(Hold::Ours) => {}
                Err(_) => untaken.forget(),
            }
            self.wait_again().await;
        }
    }

    /// Waits for something that takes its time, with signs of life meanwhile. Nothing where the slot was lost over it.
    pub(super) async fn living<T>(
        &self,
        held: &mut Held<'_>,
        done: impl Future<Output = T>,
    ) -> Option<T> {
        let beat = self.shared.worker.fleet.settings.beat();
        let mut done = pin!(done);
        loop {
            if let Ok(done) = tokio::time::timeout(beat, &mut done).await {
                return Some(done);
            }
            match self.sign_of_life(held).await {
                Ok(Hold::Ours) => {}
                Ok(Hold::Lost) => return None,
                Err(_) => self.shared.deaf(),
            }
        }
    }

    /// Once more the same word: to the queue, which would give the work to another, and in the claim, which others look at. Where another revision of that is there it may be our own, whose confirmation was lost.
    pub(super) async fn sign_of_life(&self, held: &mut Held<'_>) -> Result<Hold, FleetError> {
        if let ClaimState::Held { beats, .. } = &mut held.claim.state {
            *beats = beats.saturating_add(1);
        }
        self.acknowledge(AckKind::Progress).await?;
        let claims = &self.shared.worker.fleet.claims;
        if let Some(next) = store::swap(claims, held.key, &held.claim, held.revision).await? {
            held.revision = next;
            return Ok(Hold::Ours);
        }
        let seen: Option<Seen<Claim>> = store::get(claims, held.key).await?;
        Ok(match seen {
            Some(seen) if self.is_ours(&seen.value.state) => {
                held.revision = seen.revision;
                Hold::Ours
            }
            Some(_) | None => Hold::Lost,
        })
    }

    fn is_ours(&self, state: &ClaimState) -> bool {
        match state {
            ClaimState::Held { incarnation, .. } => *incarnation == self.shared.worker.incarnation,
            ClaimState::Free | ClaimState::Answered { .. } | ClaimState::Dead { .. } => false,
        }
    }

    pub(super) async fn wait_again(&self) {
        self.shared.deaf();
        tokio::time::sleep(AGAIN).await;
    }

    /// What cannot be run here goes to another; what cannot be run anywhere goes to the dead.
    pub(super) async fn refuse(&self, held: Held<'_>, refusal: Refusal) -> Result<(), FleetError> {
        let Held {
            key,
            mut claim,
            revision,
        } = held;
        self.note("refused", refusal.reason.clone(), Vec::new())
            .await;
        let name = self.shared.worker.name.clone();
        claim.failed(&name, FailureKind::Refused, refusal.reason);
        claim.state = ClaimState::Free;
        match refusal.whose {
            Whose::Payload => {
                let reason = told("it cannot be run", &claim.failures);
                claim.state = ClaimState::Dead {
                    reason: reason.clone(),
                };
                self.bury(key, claim, Some(revision), &reason).await
            }
            Whose::Worker => {
                // It was no start.
                claim.starts = claim.starts.saturating_sub(1);
                store::swap(&self.shared.worker.fleet.claims, key, &claim, revision).await?;
                self.acknowledge(AckKind::Nak(None)).await
            }
        }
    }

    async fn bury(
        &self,
        key: &str,
        claim: Claim,
        revision: Option<u64>,
        reason: &str,
    ) -> Result<(), FleetError> {
        if self.write(key, &claim, revision).await?.is_none() {
            return self.acknowledge(AckKind::Nak(Some(LATER))).await;
        }
        // A coordinator that finds the claim dead sends the letter again, in case this one gets lost.
        let fleet = &self.shared.worker.fleet;
        fleet.bury(self.work.clone(), &claim, reason).await?;
        self.note("dead", reason.to_owned(), Vec::new()).await;
        self.acknowledge(AckKind::Term).await
    }

    async fn write(
        &self,
        key: &str,
        claim: &Claim,
        revision: Option<u64>,
    ) -> Result<Option<u64>, FleetError> {
        let claims = &self.shared.worker.fleet.claims;
        match revision {
            Some(revision) => store::swap(claims, key, claim, revision).await,
            None => store::create(claims, key, claim).await,
        }
    }

    async fn acknowledge(&self, kind: AckKind) -> Result<(), FleetError> {
        let sent = store::within(ACKNOWLEDGING, self.message.ack_with(kind)).await?;
        sent.map_err(FleetError::talk(ACKNOWLEDGING))
    }

    pub(super) async fn note(&self, what: &str, detail: String, logs: Vec<String>) {
        let event = Event {
            at: Timestamp::now(),
            job: self.work.job.clone(),
            slot: Some(self.work.slot),
            what: what.to_owned(),
            worker: Some(self.shared.worker.name.clone()),
            detail,
            logs,
        };
        self.shared.worker.fleet.note_best_effort(event).await;
    }
}
