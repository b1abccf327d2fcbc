//! Taking a job on, and putting its work into the queue: once, however often it is asked for and wherever it is interrupted.

use async_nats::jetstream::consumer::AckPolicy;
use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::message::PublishMessage;
use cofferdam_contract::canonical::Digest;
use cofferdam_contract::seal::Sealed;
use jiff::Timestamp;
use serde::Serialize;

use crate::class::Class;
use crate::connect::Fleet;
use crate::error::FleetError;
use crate::ledger::LocalLedger;
use crate::model::{Carried, Claim, DeadLetter, Event, JobRecord, Slot, SlotEnd, Work};
use crate::names;
use crate::store::{self, Seen};

/// What somebody wants done.
#[derive(Debug)]
pub struct Submission<'a> {
    pub sealed: &'a Sealed,
    pub class: Class,
    pub tenant: &'a str,
    pub replicas: u32,
    /// Whether one more answer is asked for, to check the first.
    pub audited: bool,
}

/// What somebody wants done that a payload alone does not say: a request that came to a daemon. The payload stands for it, and [`scope_of`] has sealed its digest.
#[derive(Debug)]
pub struct Errand<'a> {
    pub submission: Submission<'a>,
    /// Its name on the fleet, which is not the payload's.
    pub job: &'a str,
    /// Empty where the payload is all of it, and only the whole record is wanted beside the envelope.
    pub request: String,
}

/// The scope of a payload that stands for a request: whoever changes the one would have to seal the other anew.
pub fn scope_of(request: &[u8]) -> String {
    format!(
        "a request to a daemon, sha256:{}",
        Digest::of(request).hex()
    )
}

/// Whether it was taken on just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Accepted {
    Now,
    /// The same payload was accepted before; this is that job.
    Before,
}

impl Fleet {
    /// Takes a payload on. When this returns, the job is written down and all of its work is in the queue.
    pub async fn submit(&self, wanted: &Submission<'_>) -> Result<Accepted, FleetError> {
        let job = wanted.sealed.payload().payload_id.clone();
        self.take_on(wanted, job, None).await
    }

    /// Takes a request of a daemon on. One that is on the fleet already under its name is that one.
    pub async fn submit_errand(&self, errand: Errand<'_>) -> Result<Accepted, FleetError> {
        let known: Option<Seen<JobRecord>> =
            store::get(&self.jobs, &names::token(errand.job)).await?;
        if let Some(known) = known {
            if !known.value.queued {
                self.queue_all(known).await?;
            }
            return Ok(Accepted::Before);
        }
        let request = self.carry(errand.job, errand.request).await?;
        let job = errand.job.to_owned();
        self.take_on(&errand.submission, job, Some(request)).await
    }

    async fn take_on(
        &self,
        wanted: &Submission<'_>,
        job: String,
        request: Option<Carried>,
    ) -> Result<Accepted, FleetError> {
        let known: Option<Seen<JobRecord>> = store::get(&self.jobs, &names::token(&job)).await?;
        // What is there is not carried again.
        if let Some(known) = known {
            return self.known(wanted, job, known).await;
        }
        let payload = wanted.sealed.payload();
        let text = wanted.sealed.json().to_string();
        let now = Timestamp::now();
        let excluded = LocalLedger::new(self).quarantined(now).await?;
        let replicas = match wanted.audited {
            true => wanted.replicas.saturating_add(1),
            false => wanted.replicas,
        };
        let slot = |number| Slot {
            number,
            excluded: excluded.clone(),
            queued_at: now,
            end: None,
        };
        let record = JobRecord {
            job: job.clone(),
            tenant: wanted.tenant.to_owned(),
            class: wanted.class.subject(),
            digest: wanted.sealed.digest(),
            payload: self.carry(&job, text).await?,
            request,
            replicas,
            audited: wanted.audited,
            accepted_at: now,
            deadline: payload.deadline,
            queued: false,
            slots: (0..replicas).map(slot).collect(),
            used: Vec::new(),
            entries: Vec::new(),
            canceled: None,
            end: None,
            settled: false,
        };
        // First, so that a coordinator finds a job whose submitter died in the middle of this.
        store::put(&self.open, &names::token(&job), &now).await?;
        let made = store::create(&self.jobs, &names::token(&job), &record).await?;
        let seen = self.job(&job).await?;
        let known = self.known(wanted, job, seen).await?;
        Ok(match made {
            Some(_) => Accepted::Now,
            None => known,
        })
    }

    /// Finishes what was begun, where it is the same.
    async fn known(
        &self,
        wanted: &Submission<'_>,
        job: String,
        seen: Seen<JobRecord>,
    ) -> Result<Accepted, FleetError> {
        if seen.value.digest != wanted.sealed.digest() {
            return Err(FleetError::OtherPayload { job });
        }
        if !seen.value.queued {
            self.queue_all(seen).await?;
        } else if seen.value.settled {
            store::remove(&self.open, &names::token(&job)).await?;
        }
        Ok(Accepted::Before)
    }

    pub(crate) async fn job(&self, job: &str) -> Result<Seen<JobRecord>, FleetError> {
        let found = store::get(&self.jobs, &names::token(job)).await?;
        found.ok_or_else(|| FleetError::NoSuchJob {
            job: job.to_owned(),
        })
    }

    /// The record of a job.
    pub async fn job_record(&self, job: &str) -> Result<JobRecord, FleetError> {
        Ok(self.job(job).await?.value)
    }

    /// Puts every open slot into the queue and writes down that it is there. Twice is as good as once: the server drops what it has seen, and a slot that was answered is not run again.
    pub(crate) async fn queue_all(&self, mut seen: Seen<JobRecord>) -> Result<(), FleetError> {
        loop {
            let record = &seen.value;
            self.ensure_queue(&record.class, &record.tenant).await?;
            for slot in record.slots.iter().filter(|slot| slot.end.is_none()) {
                self.queue_slot(record, slot).await?;
            }
            self.wake(&record.class, &record.tenant).await;
            let mut queued = record.clone();
            queued.queued = true;
            let key = names::token(&record.job);
            if store::swap(&self.jobs, &key, &queued, seen.revision)
                .await?
                .is_some()
            {
                return Ok(());
            }
            seen = self.job(&queued.job).await?;
            if seen.value.queued {
                return Ok(());
            }
        }
    }

    async fn queue_slot(&self, record: &JobRecord, slot: &Slot) -> Result<(), FleetError> {
        let work = Work::of(record, slot);
        let subject = names::work_subject(&work.class, &work.tenant, &work.job, work.slot);
        // Of a job that was forgotten and submitted again it is other work.
        let id = format!("{}.{}.{}", work.job, work.slot, slot.queued_at);
        self.publish(subject, &id, store::written(&work)?).await
    }

    /// A durable queue for a class and a tenant. Their filters never overlap, which a work queue demands, and workers take from them in turn.
    async fn ensure_queue(&self, class: &str, tenant: &str) -> Result<(), FleetError> {
        let filter = names::queue_filter(class, tenant);
        let trouble = "cannot make a queue";
        for name in [
            names::queue_name(class, tenant),
            names::queue_name_apart(class, tenant),
        ] {
            let config = pull::Config {
                durable_name: Some(name.clone()),
                filter_subject: filter.clone(),
                ack_policy: AckPolicy::Explicit,
                ack_wait: self.settings.heartbeat_timeout(),
                // Starts are counted in the claim: not every delivery is one.
                max_deliver: -1,
                max_ack_pending: 10_000,
                ..pull::Config::default()
            };
            let made = self.work.get_or_create_consumer(&name, config.clone());
            let made = store::within(trouble, made).await?;
            let made = made.map_err(FleetError::talk(trouble))?;
            let found = &made.cached_info().config;
            // One of that name may be there, and another tenant's.
            if found.filter_subject != filter {
                continue;
            }
            // Of a fleet whose settings have changed: its workers give signs of life as often as those say.
            if found.ack_wait != config.ack_wait {
                let changed = store::within(trouble, self.work.create_consumer(config)).await?;
                changed.map_err(FleetError::talk(trouble))?;
            }
            return Ok(());
        }
        Err(FleetError::talk(trouble)("its names are taken"))
    }

    /// A hint; whoever misses it looks by himself a little later.
    async fn wake(&self, class: &str, tenant: &str) {
        let name = names::queue_name(class, tenant);
        self.hint_best_effort(names::WAKE.to_owned(), name.into())
            .await;
    }

    /// Says something that whoever misses it finds out by himself.
    pub(crate) async fn hint_best_effort(&self, subject: String, body: bytes::Bytes) {
        let said = async {
            let _ = self.client.publish(subject, body).await;
            let _ = self.client.flush().await;
        };
        let _ = store::within("cannot say anything", said).await;
    }

    pub(crate) async fn publish(
        &self,
        subject: String,
        id: &str,
        body: bytes::Bytes,
    ) -> Result<(), FleetError> {
        let message = PublishMessage::build().payload(body).message_id(id);
        let trouble = "the server did not take a message";
        let taken = async {
            let sent = self.context.send_publish(subject, message).await;
            let sent = sent.map_err(FleetError::talk("cannot publish"))?;
            sent.await.map(|_| ()).map_err(FleetError::talk(trouble))
        };
        store::within(trouble, taken).await?
    }

    /// Writes down what happened; a history with a gap is better than work that waits for it.
    pub(crate) async fn note_best_effort(&self, event: Event) {
        if let Ok(body) = store::written(&event) {
            let subject = names::event_subject(&event.job);
            let noted = async {
                if let Ok(sent) = self.context.publish(subject, body).await {
                    let _ = sent.await;
                }
            };
            let _ = store::within("cannot note what happened", noted).await;
        }
    }

    /// Lays work aside for good, with the reason.
    pub(crate) async fn bury(
        &self,
        work: Work,
        claim: &Claim,
        reason: &str,
    ) -> Result<(), FleetError> {
        let subject = names::dead_subject(&work.job, work.slot);
        let id = format!("dead.{}.{}", work.job, work.slot);
        let letter = DeadLetter {
            work,
            reason: reason.to_owned(),
            failures: claim.failures.clone(),
            at: Timestamp::now(),
        };
        self.publish(subject, &id, store::written(&letter)?).await
    }

    /// Has a job that has ended done again, from the beginning and by whoever may.
    pub async fn requeue(&self, job: &str) -> Result<(), FleetError> {
        let seen = self.job(job).await?;
        let mut record = seen.value;
        if record.end.is_none() || !record.settled {
            let why = "has not ended; only what has ended can be done again".to_owned();
            return Err(FleetError::Unfit {
                job: job.to_owned(),
                why,
            });
        }
        let now = Timestamp::now();
        if record.deadline <= now {
            let why = format!(
                "has a deadline that has passed ({}); seal a new payload",
                record.deadline
            );
            return Err(FleetError::Unfit {
                job: job.to_owned(),
                why,
            });
        }
        for carried in std::iter::once(&record.payload).chain(&record.request) {
            if !self.has(carried).await? {
                let why = "has nothing left to be done again: what was submitted has been removed; forget it and submit it once more".to_owned();
                return Err(FleetError::Unfit {
                    job: job.to_owned(),
                    why,
                });
            }
        }
        let excluded = LocalLedger::new(self).quarantined(now).await?;
        let mut next = 0;
        for slot in &mut record.slots {
            next = next.max(slot.number.saturating_add(1));
            if let Some(SlotEnd::Valid { result_id, .. }) = slot.end.replace(SlotEnd::Abandoned) {
                record.used.push(result_id);
            }
        }
        // Whoever had a part in it may have one again.
        for worker in store::keys(&self.claims).await? {
            if worker.starts_with(&format!("{}.by.", names::token(job))) {
                store::remove(&self.claims, &worker).await?;
            }
        }
        let slot = |number| Slot {
            number,
            excluded: excluded.clone(),
            queued_at: now,
            end: None,
        };
        let until = next.saturating_add(record.replicas);
        record.slots.extend((next..until).map(slot));
        record.queued = false;
        record.canceled = None;
        record.end = None;
        record.settled = false;
        store::put(&self.open, &names::token(job), &now).await?;
        let key = names::token(job);
        if store::swap(&self.jobs, &key, &record, seen.revision)
            .await?
            .is_none()
        {
            return Err(FleetError::Contended {
                what: format!("the job {job}"),
            });
        }
        self.note_best_effort(Event {
            at: now,
            job: job.to_owned(),
            slot: None,
            what: "requeued".to_owned(),
            worker: None,
            detail: String::new(),
            logs: Vec::new(),
        })
        .await;
        self.queue_all(self.job(job).await?).await
    }
}
