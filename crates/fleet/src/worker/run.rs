//! One piece of work, from the queue to its answer: claimed, run under signs of life, answered once, acknowledged last. Whatever happens before that, the queue gives it to somebody.

use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_nats::jetstream::{AckKind, Message};
use cofferdam_contract::seal::Sealed;
use futures_util::StreamExt as _;
use jiff::Timestamp;

use super::take::{Step, Taker, consider};
use super::{Brought, Refusal, Shared, Whose};
use crate::carry::LARGEST_REQUEST;
use crate::coordinator::told;
use crate::error::FleetError;
use crate::judge;
use crate::model::{Carried, Claim, ClaimState, Event, FailureKind, Work};
use crate::names;
use crate::queue::scope_of;
use crate::store::{self, Seen};

/// Between attempts at what a server that is away cannot take.
const AGAIN: Duration = Duration::from_millis(200);
/// Before work that is for somebody else is offered again.
const LATER: Duration = Duration::from_millis(300);

/// What a message has besides its contents and its id.
const HEADERS: usize = 64;

/// True where an answer was given. Trouble is not told: the queue offers the work again.
pub(super) async fn attempt(shared: Arc<Shared>, message: Message) -> bool {
    let Ok(work) = serde_json::from_slice::<Work>(&message.payload) else {
        // Nothing can be made of it, by anybody.
        let _ = message.ack_with(AckKind::Term).await;
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
        Err(_) => {
            shared.deaf();
            let _ = message.ack_with(AckKind::Nak(Some(LATER))).await;
            false
        }
    }
}

struct Attempt<'a> {
    shared: &'a Arc<Shared>,
    message: &'a Message,
    work: &'a Work,
}

/// Whether a slot is still this worker's.
enum Hold {
    Ours(u64),
    Lost,
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
        self.run(&key, claim, revision).await
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
        Ok(taken.is_none_or(|taken| taken.value == self.work.slot))
    }

    async fn run(
        &self,
        key: &str,
        mut claim: Claim,
        mut revision: u64,
    ) -> Result<bool, FleetError> {
        let fleet = &self.shared.worker.fleet;
        let bytes = match fleet.fetch(&self.work.payload).await {
            Err(error @ FleetError::Talk { .. }) => return Err(error),
            fetched => fetched.ok(),
        };
        let sealed = match bytes.as_deref().map(Sealed::open) {
            Some(Ok(sealed)) if sealed.digest() == self.work.digest => sealed,
            Some(_) | None => {
                let reason = "its payload is not what was submitted";
                claim.state = ClaimState::Dead {
                    reason: reason.to_owned(),
                };
                self.bury(key, claim, Some(revision), reason).await?;
                return Ok(false);
            }
        };
        let (cancel, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(FleetError::talk("cannot make a pipe"))?;
        let mut stop: Option<OwnedFd> = Some(stop);
        let request = match &self.work.request {
            Some(request) => match fleet.fetch_at_most(request, LARGEST_REQUEST).await {
                Err(error @ FleetError::Talk { .. }) => return Err(error),
                fetched => Some(fetched.ok()),
            },
            None => None,
        };
        let is_other =
            |request: &Vec<u8>| !request.is_empty() && sealed.payload().scope != scope_of(request);
        let (is_asked, request) = (request.is_some(), request.flatten());
        if request.as_ref().map_or(is_asked, is_other) {
            let reason = "its request is not what was submitted";
            claim.state = ClaimState::Dead {
                reason: reason.to_owned(),
            };
            self.bury(key, claim, Some(revision), reason).await?;
            return Ok(false);
        }
        let canceled = names::cancel_subject(&self.work.job);
        let canceled = fleet.client.subscribe(canceled).await;
        let mut canceled = canceled.map_err(FleetError::talk("cannot listen"))?;
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
            match self.sign_of_life(key, &mut claim, revision).await {
                Ok(Hold::Ours(next)) => revision = next,
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
            self.note("revoked", "somebody else has it".to_owned(), Vec::new())
                .await;
            return Ok(false);
        }
        match outcome {
            Ok(done) => self.answer(key, claim, revision, done).await,
            Err(refusal) => {
                self.refuse(key, claim, revision, refusal).await?;
                Ok(false)
            }
        }
    }

    /// Once more the same word: to the queue, which would give the work to another, and in the claim, which others look at.
    async fn sign_of_life(
        &self,
        key: &str,
        claim: &mut Claim,
        revision: u64,
    ) -> Result<Hold, FleetError> {
        if let ClaimState::Held { beats, .. } = &mut claim.state {
            *beats = beats.saturating_add(1);
        }
        self.acknowledge(AckKind::Progress).await?;
        self.hold(key, claim, revision).await
    }

    /// Writes the claim. Where another revision is there it may be our own, whose confirmation was lost.
    async fn hold(&self, key: &str, claim: &Claim, revision: u64) -> Result<Hold, FleetError> {
        let claims = &self.shared.worker.fleet.claims;
        if let Some(next) = store::swap(claims, key, claim, revision).await? {
            return Ok(Hold::Ours(next));
        }
        let seen: Option<Seen<Claim>> = store::get(claims, key).await?;
        Ok(match seen {
            Some(seen) if self.is_ours(&seen.value.state) => Hold::Ours(seen.revision),
            Some(_) | None => Hold::Lost,
        })
    }

    fn is_ours(&self, state: &ClaimState) -> bool {
        match state {
            ClaimState::Held { incarnation, .. } => *incarnation == self.shared.worker.incarnation,
            ClaimState::Free | ClaimState::Answered { .. } | ClaimState::Dead { .. } => false,
        }
    }

    /// The answer is published, once for this worker and slot; then the claim says so; then the work is acknowledged. A crash between any two of them leads to the same end.
    async fn answer(
        &self,
        key: &str,
        mut claim: Claim,
        mut revision: u64,
        brought: Brought,
    ) -> Result<bool, FleetError> {
        let done = &brought.done;
        let mut carried = None;
        let mut more = None;
        let mut files: Vec<Carried> = Vec::new();
        let mut list = None;
        loop {
            match self.sign_of_life(key, &mut claim, revision).await {
                Ok(Hold::Ours(next)) => revision = next,
                Ok(Hold::Lost) => {
                    self.note("late", "somebody else has it".to_owned(), Vec::new())
                        .await;
                    return Ok(false);
                }
                Err(_) => {
                    self.wait_again().await;
                    continue;
                }
            }
            let fleet = &self.shared.worker.fleet;
            let job = &self.work.job;
            if let Some(next) = brought.files.get(files.len()) {
                // One at a time, with a sign of life between them.
                let Some(contents) = self.shared.worker.executor.contents(next) else {
                    let refusal = Refusal {
                        reason: format!("a file that the run left is gone: {next}"),
                        whose: Whose::Worker,
                    };
                    self.refuse(key, claim, revision, refusal).await?;
                    return Ok(false);
                };
                match fleet.carry_bytes(job, &contents).await {
                    Ok(file) => files.push(file),
                    Err(_) => self.wait_again().await,
                }
                continue;
            }
            if more.is_none() && self.work.request.is_some() {
                more = fleet.carry(job, brought.more.clone()).await.ok();
            }
            if carried.is_none() {
                carried = fleet.carry(job, done.envelope.clone()).await.ok();
            }
            if list.is_none() && !files.is_empty() {
                let text = serde_json::to_string(&files);
                let text = text.map_err(FleetError::talk("cannot be written as JSON"))?;
                list = fleet.carry(job, text).await.ok();
            }
            if let Some(envelope) = &carried
                && more.is_some() == self.work.request.is_some()
                && list.is_none() == files.is_empty()
            {
                match self
                    .publish(envelope.clone(), more.clone(), list.clone())
                    .await
                {
                    Ok(()) => break,
                    // However often it is tried.
                    Err(FleetError::Unfit { why, .. }) => {
                        let refusal = Refusal {
                            reason: format!("it {why}"),
                            whose: Whose::Payload,
                        };
                        self.refuse(key, claim, revision, refusal).await?;
                        return Ok(false);
                    }
                    Err(_) => {}
                }
            }
            self.wait_again().await;
        }
        claim.state = ClaimState::Answered {
            worker: self.shared.worker.name.clone(),
        };
        // A coordinator that was faster has written the same.
        let _ = store::swap(&self.shared.worker.fleet.claims, key, &claim, revision).await;
        self.note("answered", String::new(), done.logs.clone())
            .await;
        // Without it the work comes again and is dropped by whoever gets it.
        let _ = self.message.double_ack().await;
        Ok(true)
    }

    async fn publish(
        &self,
        envelope: Carried,
        more: Option<Carried>,
        files: Option<Carried>,
    ) -> Result<(), FleetError> {
        let worker = &self.shared.worker;
        let subject = names::result_subject(&self.work.job, self.work.slot, &worker.name);
        let published = judge::published(&subject, envelope, more, files, worker.signer.as_ref());
        let id = format!("{}.{}.{}", self.work.job, self.work.slot, worker.name);
        let body = store::written(&published)?;
        let (bytes, most) = (body.len(), worker.fleet.client.max_payload());
        if bytes.saturating_add(HEADERS).saturating_add(id.len()) > most {
            return Err(FleetError::Unfit {
                job: self.work.job.clone(),
                why: format!("has an answer of {bytes} bytes, and the server takes {most} at once"),
            });
        }
        let sent = worker.fleet.publish(subject.clone(), &id, body).await;
        if sent.is_err() {
            // The server takes one for a subject: ours may be there already.
            let there = worker
                .fleet
                .results
                .get_last_raw_message_by_subject(&subject)
                .await;
            return there
                .map(|_| ())
                .map_err(FleetError::talk("cannot publish an answer"));
        }
        sent
    }

    async fn wait_again(&self) {
        self.shared.deaf();
        tokio::time::sleep(AGAIN).await;
    }

    /// What cannot be run here goes to another; what cannot be run anywhere goes to the dead.
    async fn refuse(
        &self,
        key: &str,
        mut claim: Claim,
        revision: u64,
        refusal: Refusal,
    ) -> Result<(), FleetError> {
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
        let sent = self.message.ack_with(kind).await;
        sent.map_err(FleetError::talk("cannot acknowledge"))
    }

    async fn note(&self, what: &str, detail: String, logs: Vec<String>) {
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
