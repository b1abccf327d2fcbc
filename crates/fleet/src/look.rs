//! What a person wants to see of a fleet: queues, workers, jobs.

use std::collections::BTreeSet;

use async_nats::jetstream::consumer;
use async_nats::jetstream::object_store::ObjectInfo;
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use futures_util::StreamExt as _;
use jiff::Timestamp;
use serde::Serialize;

use crate::class::Class;
use crate::connect::Fleet;
use crate::error::FleetError;
use crate::model::{
    Advert, Claim, DeadLetter, EndOutcome, Event, JobRecord, Settings, WorkerState,
};
use crate::names;
use crate::store::{self, Seen};

#[derive(Debug, Serialize)]
pub struct Status {
    pub queues: Vec<QueueDepth>,
    pub workers_ready: usize,
    pub workers: usize,
    pub slots: u64,
    pub slots_busy: usize,
    pub jobs_open: usize,
    pub dead_letters: u64,
    pub results: u64,
    /// Documents and files in the object store.
    pub objects: usize,
    pub settings: Settings,
}

/// How much waits in a queue: what to scale a fleet by.
#[derive(Debug, Serialize)]
pub struct QueueDepth {
    pub class: String,
    pub tenant: String,
    pub waiting: u64,
    pub taken: usize,
}

#[derive(Debug, Serialize)]
pub struct WorkerView {
    #[serde(flatten)]
    pub advert: Advert,
    /// Whether it was heard of lately.
    pub alive: bool,
    pub silent_seconds: f64,
}

#[derive(Debug, Serialize)]
pub struct JobSummary {
    pub job: String,
    pub tenant: String,
    pub class: String,
    pub state: &'static str,
    pub replicas: u32,
    pub accepted_at: Timestamp,
    pub workers: Vec<String>,
    pub reason: Option<String>,
    /// Why nobody takes it, where no worker that is ready can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}

/// One that has not been heard of for so many times the time that it has.
const GONE_AFTER: u32 = 3;

impl Fleet {
    pub async fn status(&self) -> Result<Status, FleetError> {
        let mut queues = Vec::new();
        let trouble = "cannot list the queues";
        let name = |info: &consumer::Info| info.name.clone();
        let consumers = store::listed(trouble, store::QUIET, name, || async {
            Ok(self.work.consumers())
        });
        for info in consumers.await? {
            if let Some((class, tenant)) = names::class_of_filter(&info.config.filter_subject) {
                queues.push(QueueDepth {
                    class,
                    tenant,
                    waiting: info.num_pending,
                    taken: info.num_ack_pending,
                });
            }
        }
        queues.sort_by(|one, other| (&one.class, &one.tenant).cmp(&(&other.class, &other.tenant)));
        let workers = self.workers().await?;
        let is_ready =
            |worker: &&WorkerView| worker.alive && worker.advert.state == WorkerState::Ready;
        let ready: Vec<&WorkerView> = workers.iter().filter(is_ready).collect();
        Ok(Status {
            queues,
            workers_ready: ready.len(),
            slots: ready
                .iter()
                .map(|worker| u64::from(worker.advert.slots))
                .sum(),
            slots_busy: ready.iter().map(|worker| worker.advert.running.len()).sum(),
            workers: workers.len(),
            jobs_open: store::keys(&self.open).await?.len(),
            dead_letters: messages(&self.dead).await?,
            results: messages(&self.results).await?,
            objects: self.objects_kept().await?,
            settings: self.settings.clone(),
        })
    }

    async fn objects_kept(&self) -> Result<usize, FleetError> {
        let trouble = "cannot list large documents";
        let name = |info: &ObjectInfo| info.name.clone();
        let listed = store::listed(trouble, store::QUIET, name, || async {
            self.objects.list().await.map_err(FleetError::talk(trouble))
        });
        Ok(listed.await?.len())
    }

    pub async fn workers(&self) -> Result<Vec<WorkerView>, FleetError> {
        let now = Timestamp::now();
        let mut workers = Vec::new();
        for key in store::keys(&self.workers).await? {
            if !key.starts_with("worker.") {
                continue;
            }
            let seen: Option<Seen<Advert>> = store::get(&self.workers, &key).await?;
            let Some(seen) = seen else { continue };
            let silent = now.duration_since(seen.written_at).as_secs_f64().max(0.0);
            let long = (self.settings.beat() * GONE_AFTER).as_secs_f64().max(2.0);
            workers.push(WorkerView {
                alive: silent < long && seen.value.state != WorkerState::Stopped,
                silent_seconds: silent,
                advert: seen.value,
            });
        }
        Ok(workers)
    }

    /// Asks a worker to take nothing new, or to take work again.
    pub async fn drain(&self, worker: &str, wanted: Drain) -> Result<(), FleetError> {
        let known = format!("worker.{}", names::token(worker));
        let advert: Option<Seen<Advert>> = store::get(&self.workers, &known).await?;
        if advert.is_none() {
            return Err(FleetError::NoSuchWorker {
                worker: worker.to_owned(),
            });
        }
        let key = format!("drain.{}", names::token(worker));
        match wanted {
            Drain::Yes => store::put(&self.workers, &key, &true).await,
            Drain::No => store::remove(&self.workers, &key).await,
        }
    }

    /// All jobs that are still known, the latest first.
    pub async fn jobs(&self) -> Result<Vec<JobSummary>, FleetError> {
        let mut jobs = Vec::new();
        let workers = self.workers().await?;
        for key in store::keys(&self.jobs).await? {
            let seen: Option<Seen<JobRecord>> = store::get(&self.jobs, &key).await?;
            if let Some(seen) = seen {
                let waits = waits(&seen.value, &workers);
                jobs.push(JobSummary {
                    waits,
                    ..summary(seen.value)
                });
            }
        }
        jobs.sort_by_key(|job| std::cmp::Reverse(job.accepted_at));
        Ok(jobs)
    }

    /// Why nobody takes a job that is open; nothing where somebody can, or has.
    pub async fn waits(&self, record: &JobRecord) -> Result<Option<String>, FleetError> {
        Ok(waits(record, &self.workers().await?))
    }

    /// What happened to a job, in order.
    pub async fn events(&self, job: &str) -> Result<Vec<Event>, FleetError> {
        self.all_of(&self.events, names::event_subject(job)).await
    }

    /// Until a worker has taken a job; at once where one has it, or had it.
    pub async fn until_taken(&self, job: &str) {
        const AGAIN: std::time::Duration = std::time::Duration::from_millis(500);
        loop {
            let Ok(mut events) = store::heard(&self.client, names::event_subject(job)).await else {
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            let claims = match self.job(job).await {
                Ok(record) => self.claims(&record.value).await.unwrap_or_default(),
                Err(_) => Vec::new(),
            };
            if claims.iter().any(|(_, claim)| claim.starts > 0) {
                return;
            }
            // A word may get lost: after a while of quiet the claims are looked at again.
            while let Ok(Some(message)) = tokio::time::timeout(store::QUIET, events.next()).await {
                let event: Result<Event, _> = serde_json::from_slice(&message.payload);
                if event.is_ok_and(|event| event.what == "taken") {
                    return;
                }
            }
        }
    }

    /// What of a job was laid aside for good.
    pub async fn dead_letters(&self, job: &str) -> Result<Vec<DeadLetter>, FleetError> {
        let subject = format!("cofferdam.dead.{}.>", names::token(job));
        self.all_of(&self.dead, subject).await
    }

    /// Who holds the slots of a job.
    pub async fn claims(&self, record: &JobRecord) -> Result<Vec<(u32, Claim)>, FleetError> {
        let mut claims = Vec::new();
        for slot in &record.slots {
            let key = names::claim_key(&record.job, slot.number);
            let seen: Option<Seen<Claim>> = store::get(&self.claims, &key).await?;
            claims.extend(seen.map(|seen| (slot.number, seen.value)));
        }
        Ok(claims)
    }

    pub(crate) async fn all_of<T: serde::de::DeserializeOwned>(
        &self,
        stream: &Stream,
        subject: String,
    ) -> Result<Vec<T>, FleetError> {
        let mut found = Vec::new();
        let mut from = 1;
        loop {
            let asked = || {
                let asked = stream.raw_message_builder().sequence(from);
                asked.next_by_subject(subject.as_str()).send()
            };
            match store::asked("cannot read a stream", asked).await? {
                Ok(message) => {
                    from = message.sequence.saturating_add(1);
                    // Anybody who may answer writes there: what is nothing keeps nobody from what is something.
                    found.extend(store::read(&message.payload, || subject.clone()).ok());
                }
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {
                    return Ok(found);
                }
                Err(error) => return Err(FleetError::talk("cannot read a stream")(error)),
            }
        }
    }
}

async fn messages(stream: &Stream) -> Result<u64, FleetError> {
    let trouble = "cannot ask about a stream";
    let info = store::asked(trouble, || stream.get_info()).await?;
    Ok(info.map_err(FleetError::talk(trouble))?.state.messages)
}

/// Whether a worker is to take nothing new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drain {
    Yes,
    No,
}

/// What each worker that is ready lacks for it, the same once.
fn waits(record: &JobRecord, workers: &[WorkerView]) -> Option<String> {
    let is_open = record.end.is_none() && record.slots.iter().any(|slot| slot.end.is_none());
    let class = Class::read(&record.class).filter(|_| is_open)?;
    let is_ready = |worker: &&WorkerView| worker.alive && worker.advert.state == WorkerState::Ready;
    let ready: Vec<&WorkerView> = workers.iter().filter(is_ready).collect();
    let mut missing = BTreeSet::new();
    for worker in &ready {
        let lacks = worker.advert.capabilities.lacks(&class);
        if lacks.is_empty() {
            return None;
        }
        missing.extend(lacks);
    }
    let missing: Vec<String> = missing.into_iter().collect();
    Some(match ready.is_empty() {
        true => "no worker is ready".to_owned(),
        false => format!(
            "no worker that is ready has everything it needs; missing: {}",
            missing.join(", ")
        ),
    })
}

fn summary(record: JobRecord) -> JobSummary {
    let state = match record.end.as_ref().map(|end| end.outcome) {
        None => "open",
        Some(EndOutcome::Agreed) => "agreed",
        Some(EndOutcome::Disputed) => "disputed",
        Some(EndOutcome::Failed) => "failed",
        Some(EndOutcome::Canceled) => "canceled",
    };
    JobSummary {
        state,
        replicas: record.replicas,
        accepted_at: record.accepted_at,
        workers: record
            .end
            .as_ref()
            .map(|end| end.workers.clone())
            .unwrap_or_default(),
        reason: record.end.and_then(|end| end.reason),
        waits: None,
        job: record.job,
        tenant: record.tenant,
        class: record.class,
    }
}
