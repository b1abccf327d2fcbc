//! Work that is not wanted any more: it is written down, whoever has it is told, and nobody gets it again. And jobs that are forgotten.

use async_nats::jetstream::stream::Stream;
use jiff::Timestamp;

use crate::connect::Fleet;
use crate::error::FleetError;
use crate::model::{Claim, ClaimState, Event, JobRecord};
use crate::names;
use crate::store::{self, Seen};

pub(crate) const CANCELED: &str = "it was canceled";

impl Fleet {
    /// Cancels a job that has not ended. What has an answer already ends with that. When this returns, whoever runs it has been told; a coordinator writes the end.
    pub async fn cancel(&self, job: &str) -> Result<(), FleetError> {
        let record = loop {
            let seen = self.job(job).await?;
            if seen.value.end.is_some() {
                return Err(FleetError::Unfit {
                    job: job.to_owned(),
                    why: "has ended; only what has not can be canceled".to_owned(),
                });
            }
            if seen.value.canceled.is_some() {
                break seen.value;
            }
            let canceled = JobRecord {
                canceled: Some(Timestamp::now()),
                ..seen.value
            };
            let key = names::token(job);
            let swapped = store::swap(&self.jobs, &key, &canceled, seen.revision).await?;
            if swapped.is_some() {
                self.note_best_effort(Event {
                    at: Timestamp::now(),
                    job: job.to_owned(),
                    slot: None,
                    what: "canceled".to_owned(),
                    worker: None,
                    detail: String::new(),
                    logs: Vec::new(),
                })
                .await;
                break canceled;
            }
        };
        for slot in record.slots.iter().filter(|slot| slot.end.is_none()) {
            self.close_canceled(job, slot.number).await?;
        }
        // A hint, so that it ends now and not at the next sign of life.
        let subject = names::cancel_subject(job);
        self.hint_best_effort(subject, "".into()).await;
        Ok(())
    }

    /// Takes a slot from whoever has it, for good. False where there is an answer.
    pub(crate) async fn close_canceled(&self, job: &str, slot: u32) -> Result<bool, FleetError> {
        let key = names::claim_key(job, slot);
        loop {
            let seen: Option<Seen<Claim>> = store::get(&self.claims, &key).await?;
            let (claim, revision) = match seen {
                Some(seen) => (seen.value, Some(seen.revision)),
                None => (Claim::default(), None),
            };
            match claim.state {
                ClaimState::Answered { .. } => return Ok(false),
                ClaimState::Dead { .. } => return Ok(true),
                ClaimState::Free | ClaimState::Held { .. } => {}
            }
            let closed = Claim {
                state: ClaimState::Dead {
                    reason: CANCELED.to_owned(),
                },
                ..claim
            };
            let written = match revision {
                Some(revision) => store::swap(&self.claims, &key, &closed, revision).await?,
                None => store::create(&self.claims, &key, &closed).await?,
            };
            if written.is_some() {
                return Ok(true);
            }
        }
    }

    /// Removes everything about a job that has ended, from every place but the ledger.
    pub async fn forget(&self, job: &str) -> Result<(), FleetError> {
        let seen = self.job(job).await?;
        if seen.value.end.is_none() || !seen.value.settled {
            return Err(FleetError::Unfit {
                job: job.to_owned(),
                why: "has not ended; cancel it first".to_owned(),
            });
        }
        self.release(&seen.value).await?;
        let token = names::token(job);
        // What nobody has taken yet goes before the claims that keep it from being run.
        let work = names::work_of(&seen.value.class, &seen.value.tenant, job);
        purge(&self.work, work).await?;
        for key in store::keys(&self.claims).await? {
            if key.starts_with(&format!("{token}.")) {
                store::remove(&self.claims, &key).await?;
            }
        }
        for (stream, subject) in [
            (&self.results, format!("cofferdam.result.{token}.>")),
            (&self.dead, format!("cofferdam.dead.{token}.>")),
            (&self.events, names::event_subject(job)),
        ] {
            purge(stream, subject).await?;
        }
        store::remove(&self.open, &token).await?;
        store::remove(&self.jobs, &token).await
    }
}

async fn purge(stream: &Stream, subject: String) -> Result<(), FleetError> {
    let trouble = "cannot remove from a stream";
    let purge = stream.purge().filter(subject);
    let purged = store::within(trouble, purge.into_future()).await?;
    purged.map(|_| ()).map_err(FleetError::talk(trouble))
}
