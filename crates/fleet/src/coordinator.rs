//! Brings jobs to their end: checks every answer, watches over who holds what, compares, decides once, and has the ledger told. Any number may run; what they decide is written by
//! comparing and setting, and whatever one leaves half done the next one finishes.

mod attend;
mod conclude;
mod verify;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::RawMessageErrorKind;
use cofferdam_contract::rules::{Deed, Entry, Offence};
use cofferdam_contract::seal::Sealed;
use cofferdam_store::bundle::PublicKey;
use futures_util::StreamExt as _;
use jiff::Timestamp;

use crate::connect::Fleet;
use crate::error::FleetError;
use crate::judge::Published;
use crate::ledger::{Enforcer, LocalLedger};
use crate::model::{End, EndOutcome, Event, Held, JobRecord, Slot, SlotEnd};
use crate::names;
use crate::public::Bonds;
use crate::store::{self, Seen};
use crate::supervise::Watched;

pub(crate) use attend::told;

/// Whose answers count.
#[derive(Debug, Clone)]
pub enum Trust {
    /// A worker is known by the key under which it was first seen.
    FirstUse,
    /// Only these, by these keys.
    Listed(Vec<(String, PublicKey)>),
}

impl Trust {
    /// Whether this name is somebody's. Without a list it is whose it was first.
    fn knows(&self, worker: &str) -> bool {
        match self {
            Self::FirstUse => true,
            Self::Listed(_) => self.listed(worker).is_some(),
        }
    }

    /// The key that a list has for a worker.
    pub(crate) fn listed(&self, worker: &str) -> Option<PublicKey> {
        match self {
            Self::FirstUse => None,
            Self::Listed(listed) => {
                let known = listed.iter().find(|(name, _)| name == worker);
                known.map(|(_, key)| *key)
            }
        }
    }
}

/// One that coordinates.
#[derive(Debug)]
pub struct Coordinator {
    fleet: Fleet,
    ledger: LocalLedger,
    enforcer: Enforcer,
    trust: Trust,
    watched: HashMap<(String, u32), Watched>,
    keys: HashMap<String, PublicKey>,
    /// Whose bonds have been told of which slots.
    bound: HashSet<(String, u32, String)>,
    /// When we last looked at anybody.
    looked: Instant,
}

/// A record with the job's payload.
struct Case<'a> {
    record: JobRecord,
    sealed: &'a Sealed,
}

impl Coordinator {
    pub fn new(fleet: &Fleet, trust: Trust) -> Self {
        Self {
            fleet: fleet.clone(),
            ledger: LocalLedger::new(fleet),
            enforcer: Enforcer::Local(LocalLedger::new(fleet)),
            trust,
            watched: HashMap::new(),
            keys: HashMap::new(),
            bound: HashSet::new(),
            looked: Instant::now(),
        }
    }

    /// Has bonds told of what is decided, and asked before an answer counts.
    #[must_use]
    pub fn with_bonds(mut self, bonds: Arc<dyn Bonds>) -> Self {
        let local = LocalLedger::new(&self.fleet);
        let trust = self.trust.clone();
        self.enforcer = Enforcer::Public {
            local,
            bonds,
            trust,
        };
        self
    }

    /// Where bonds decide and we cannot ask about them, others do: we only look.
    fn only_looks(&self) -> bool {
        let has_bonds = matches!(self.enforcer, Enforcer::Public { .. });
        self.fleet.settings.enforcement.is_public() && !has_bonds
    }

    /// Sees to one job until it has ended and everything about it is settled. A server that is away is waited for.
    pub async fn wait_for(&mut self, job: &str) -> Result<JobRecord, FleetError> {
        let subject = format!("cofferdam.result.{}.>", names::token(job));
        let mut results = store::heard(&self.fleet.client, subject).await?;
        loop {
            match self.tend(job).await {
                Ok(Some(record)) => return Ok(record),
                Ok(None) => {}
                Err(FleetError::Talk { .. }) => self.deaf(),
                Err(error) => return Err(error),
            }
            let _ = tokio::time::timeout(self.tick(), results.next()).await;
        }
    }

    /// Sees to all jobs once. Returns how many are open, and what went wrong with single ones.
    pub async fn tend_all(&mut self) -> Result<(usize, Vec<FleetError>), FleetError> {
        let mut open = 0;
        let mut troubles = Vec::new();
        let keys = store::keys(&self.fleet.open).await?;
        let jobs: Vec<String> = keys.iter().filter_map(|key| names::untoken(key)).collect();
        // What another coordinator has brought to its end is not watched any more.
        let open_jobs: HashSet<&String> = jobs.iter().collect();
        self.watched.retain(|(job, _), _| open_jobs.contains(job));
        self.bound.retain(|(job, _, _)| open_jobs.contains(job));
        for job in jobs {
            match self.tend(&job).await {
                Ok(Some(_)) => {}
                Ok(None) => open += 1,
                Err(error @ FleetError::NoSuchJob { .. }) => {
                    self.strike(&job).await?;
                    troubles.push(error);
                }
                // One that cannot be seen to keeps nobody else waiting.
                Err(error) => {
                    if matches!(error, FleetError::Talk { .. }) {
                        self.deaf();
                    }
                    open += 1;
                    troubles.push(error);
                }
            }
        }
        Ok((open, troubles))
    }

    /// Sees to all jobs for ever. `told` hears of trouble.
    pub async fn coordinate(&mut self, told: impl Fn(&str)) -> Result<(), FleetError> {
        let subject = "cofferdam.result.>".to_owned();
        let mut results = store::heard(&self.fleet.client, subject).await?;
        let mut last = String::new();
        loop {
            let now = match self.tend_all().await {
                Ok((_, troubles)) => troubles
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join("; "),
                Err(error) => {
                    self.deaf();
                    error.to_string()
                }
            };
            // The same trouble is told once.
            if now != last && !now.is_empty() {
                told(&now);
            }
            last = now;
            let _ = tokio::time::timeout(self.tick(), results.next()).await;
        }
    }

    fn tick(&self) -> Duration {
        let timeout = self.fleet.settings.heartbeat_timeout();
        (timeout / 6).clamp(Duration::from_millis(50), Duration::from_secs(1))
    }

    /// We could not hear: nobody's silence counts.
    fn deaf(&mut self) {
        let now = Instant::now();
        for watched in self.watched.values_mut() {
            watched.deaf(now);
        }
    }

    /// Whoever was stopped himself for a while has not heard what others said meanwhile.
    fn notice_own_absence(&mut self) {
        let enough = self.fleet.settings.heartbeat_timeout() / 2;
        if self.looked.elapsed() > enough {
            self.deaf();
        }
        self.looked = Instant::now();
    }

    /// Sees to one job once; the record when it has ended.
    pub async fn tend(&mut self, job: &str) -> Result<Option<JobRecord>, FleetError> {
        loop {
            let mut seen = self.fleet.job(job).await?;
            if self.only_looks() {
                return Ok(seen.value.end.is_some().then_some(seen.value));
            }
            if seen.value.end.is_some() {
                let record = seen.value.clone();
                if self.settle(seen.value, seen.revision).await? {
                    return Ok(Some(record));
                }
                continue;
            }
            if !seen.value.queued {
                self.fleet.queue_all(seen).await?;
                continue;
            }
            if self.is_old(seen.written_at) {
                let key = names::token(job);
                let renewed = store::swap(&self.fleet.jobs, &key, &seen.value, seen.revision);
                seen.revision = renewed.await?.unwrap_or(seen.revision);
            }
            let sealed = match self.sealed(&seen.value).await {
                Ok(sealed) => sealed,
                Err(error @ FleetError::Damaged { .. }) if seen.value.is_over() => {
                    self.give_up(seen, &error).await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut case = Case {
                record: seen.value.clone(),
                sealed: &sealed,
            };
            for index in 0..case.record.slots.len() {
                self.attend(&mut case, index).await?;
            }
            self.conclude(&mut case).await?;
            if case.record == seen.value {
                return Ok(None);
            }
            let key = names::token(job);
            let swapped = store::swap(&self.fleet.jobs, &key, &case.record, seen.revision).await?;
            if swapped.is_some() {
                // At once, so that an offender gets nothing more while the job goes on.
                self.enforcer.settle_record(&case.record).await?;
                self.tell(&seen.value, &case.record).await;
            }
        }
    }

    /// Whether something that is open has to be written anew: the server lets everything go that nobody has written for some time.
    fn is_old(&self, written_at: Timestamp) -> bool {
        let age = Timestamp::now().duration_since(written_at);
        Duration::try_from(age).is_ok_and(|age| age > self.fleet.settings.kept() / 2)
    }

    /// Strikes a job off the list that is not there. Whoever submits one writes it on the list first.
    async fn strike(&self, job: &str) -> Result<(), FleetError> {
        let key = names::token(job);
        let listed: Option<Seen<Timestamp>> = store::get(&self.fleet.open, &key).await?;
        let is_old = |at: Timestamp| Timestamp::now().duration_since(at).as_hours() >= 1;
        match listed {
            Some(listed) if is_old(listed.written_at) => {
                store::remove(&self.fleet.open, &key).await
            }
            Some(_) | None => Ok(()),
        }
    }

    async fn sealed(&self, record: &JobRecord) -> Result<Sealed, FleetError> {
        let bytes = self.fleet.fetch(&record.payload).await?;
        Sealed::open(&bytes).map_err(|error| FleetError::Damaged {
            what: format!("the payload of {}", record.job),
            why: error.to_string(),
        })
    }

    /// Ends a job that nobody wants or waits for any more, and whose answers could not be checked.
    async fn give_up(&self, seen: Seen<JobRecord>, why: &FleetError) -> Result<(), FleetError> {
        let mut record = seen.value;
        let reason = shortened(why.to_string());
        let outcome = match record.canceled {
            Some(_) => EndOutcome::Canceled,
            None => EndOutcome::Failed,
        };
        for slot in record.slots.iter_mut().filter(|slot| slot.end.is_none()) {
            slot.end = Some(SlotEnd::Dead {
                reason: reason.clone(),
            });
        }
        record.end = Some(End {
            at: Timestamp::now(),
            outcome,
            workers: Vec::new(),
            agreement: None,
            answer: None,
            reason: Some(reason),
        });
        let key = names::token(&record.job);
        store::swap(&self.fleet.jobs, &key, &record, seen.revision).await?;
        Ok(())
    }

    /// Tells the ledger everything again, which counts once, and closes the job. False where somebody else changed it meanwhile.
    async fn settle(&mut self, mut record: JobRecord, revision: u64) -> Result<bool, FleetError> {
        let key = names::token(&record.job);
        if !record.settled {
            self.enforcer.settle_record(&record).await?;
            record.settled = true;
            let swapped = store::swap(&self.fleet.jobs, &key, &record, revision).await?;
            if swapped.is_none() {
                return Ok(false);
            }
        }
        store::remove(&self.fleet.open, &key).await?;
        self.watched.retain(|(job, _), _| *job != record.job);
        self.bound.retain(|(job, _, _)| *job != record.job);
        Ok(true)
    }

    /// The envelope that a job was answered with, if this coordinator would have let it pass.
    pub async fn answer(&mut self, record: &JobRecord) -> Result<Option<Vec<u8>>, FleetError> {
        match self.verified(record).await? {
            Some(published) => self.fleet.fetch(&published.envelope).await.map(Some),
            None => Ok(None),
        }
    }

    async fn published_at(&self, sequence: u64) -> Result<Published, FleetError> {
        let message = self.message_at(sequence).await?;
        store::read(&message.payload, || format!("the answer {sequence}"))
    }

    async fn message_at(&self, sequence: u64) -> Result<StreamMessage, FleetError> {
        let asked = || self.fleet.results.get_raw_message(sequence);
        let message = store::asked("cannot get an answer", asked).await?;
        message.map_err(|error| match error.kind() {
            RawMessageErrorKind::NoMessageFound => FleetError::Damaged {
                what: format!("the answer {sequence}"),
                why: error.to_string(),
            },
            RawMessageErrorKind::InvalidSubject
            | RawMessageErrorKind::JetStream(_)
            | RawMessageErrorKind::Other => FleetError::talk("cannot get an answer")(error),
        })
    }

    async fn tell(&self, before: &JobRecord, after: &JobRecord) {
        for (index, slot) in after.slots.iter().enumerate() {
            let was = before.slots.get(index).and_then(|slot| slot.end.as_ref());
            let (what, worker, detail) = match (&slot.end, was) {
                (
                    Some(SlotEnd::Rejected {
                        worker, evidence, ..
                    }),
                    None,
                ) => ("rejected", Some(worker.clone()), evidence.clone()),
                (Some(SlotEnd::Dead { reason }), None) => ("dead", None, reason.clone()),
                _ => continue,
            };
            self.note(&after.job, Some(slot.number), what, worker, detail)
                .await;
        }
        if let Some(end) = &after.end {
            let detail = end.reason.clone().unwrap_or_default();
            self.note(&after.job, None, "ended", None, detail).await;
        }
    }

    async fn note(
        &self,
        job: &str,
        slot: Option<u32>,
        what: &str,
        worker: Option<String>,
        detail: String,
    ) {
        let event = Event {
            at: Timestamp::now(),
            job: job.to_owned(),
            slot,
            what: what.to_owned(),
            worker,
            detail,
            logs: Vec::new(),
        };
        self.fleet.note_best_effort(event).await;
    }
}

impl JobRecord {
    /// The slot whose answer is that of the job, and where it lies.
    fn answered(&self) -> Option<(&Slot, u64)> {
        let number = self.end.as_ref()?.answer?;
        let slot = self.slots.iter().find(|slot| slot.number == number)?;
        match slot.end.as_ref()? {
            SlotEnd::Valid { sequence, .. } => Some((slot, *sequence)),
            SlotEnd::Rejected { .. } | SlotEnd::Dead { .. } | SlotEnd::Abandoned => None,
        }
    }

    /// Whether nobody waits for it any more.
    fn is_over(&self) -> bool {
        self.canceled.is_some() || Timestamp::now() > self.deadline
    }
}

impl Case<'_> {
    /// Holds something for or against a worker, once.
    fn hold(&mut self, worker: &str, slot: u32, what: Deed, evidence: String) {
        let name = match what {
            Deed::Confirmed => "CONFIRMED",
            Deed::Offence(offence) => Offence::as_str(offence),
            Deed::Lifted => "LIFTED",
        };
        let id = format!("{}.{slot}.{name}", self.record.job);
        let is_held = |held: &Held| held.worker == worker && held.entry.id == id;
        if self.record.entries.iter().any(is_held) {
            return;
        }
        self.record.entries.push(Held {
            worker: worker.to_owned(),
            entry: Entry {
                id,
                at: Timestamp::now(),
                job: self.record.job.clone(),
                what,
                evidence: shortened(evidence),
            },
        });
    }
}

/// A stranger has a say in what is evidence.
fn shortened(mut text: String) -> String {
    const LONGEST: usize = 500;
    if let Some((cut, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(cut);
        text.push('…');
    }
    text
}
