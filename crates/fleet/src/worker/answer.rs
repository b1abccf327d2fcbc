//! The answer to a piece of work: what belongs to it is put where others find it, then it is published, once for this worker and slot; then the claim says so; then the work is acknowledged. A crash between any two of them leads to the same end.

use std::time::{Duration, Instant};

use cofferdam_contract::canonical::Digest;

use super::run::{Attempt, Held, Hold};
use super::{Brought, Refusal, Whose};
use crate::error::FleetError;
use crate::judge;
use crate::model::{Carried, ClaimState, Settings};
use crate::names;
use crate::store;

/// What a message has besides its contents and its id.
const HEADERS: usize = 64;

/// What of an answer is where others find it.
#[derive(Default)]
struct Parts {
    files: Vec<Carried>,
    list: Option<Carried>,
    more: Option<Carried>,
    envelope: Option<Carried>,
}

enum Given {
    Part,
    Gone(String),
    All,
}

/// How long a server that answers has not taken something.
#[derive(Debug, Default)]
pub(super) struct Untaken {
    since: Option<Instant>,
}

impl Untaken {
    /// It was taken, or the server is away: then it says nothing about what it takes.
    pub(super) fn forget(&mut self) {
        self.since = None;
    }

    /// Once more it was not taken. True where that will not change.
    pub(super) fn is_for_good(&mut self, now: Instant, settings: &Settings) -> bool {
        let since = *self.since.get_or_insert(now);
        now.saturating_duration_since(since) >= for_good(settings)
    }
}

fn for_good(settings: &Settings) -> Duration {
    settings.heartbeat_timeout() * 4
}

impl Attempt<'_> {
    pub(super) async fn answer(
        &self,
        mut held: Held<'_>,
        brought: Brought,
    ) -> Result<bool, FleetError> {
        let mut parts = Parts::default();
        let mut untaken = Untaken::default();
        loop {
            match self.sign_of_life(&mut held).await {
                Ok(Hold::Ours) => {}
                Ok(Hold::Lost) => {
                    self.note("late", "somebody else has it".to_owned(), Vec::new())
                        .await;
                    return Ok(false);
                }
                Err(_) => {
                    untaken.forget();
                    self.wait_again().await;
                    continue;
                }
            }
            let giving = self.give(&brought, &mut parts);
            let Some(given) = self.living(&mut held, giving).await else {
                continue;
            };
            let refusal = match given {
                Ok(Given::All) => break,
                Ok(Given::Part) => {
                    untaken.forget();
                    continue;
                }
                Ok(Given::Gone(file)) => Refusal {
                    reason: format!("a file that the run left is gone: {file}"),
                    whose: Whose::Worker,
                },
                // However often it is tried.
                Err(FleetError::Unfit { why, .. }) => Refusal {
                    reason: format!("it {why}"),
                    whose: Whose::Payload,
                },
                Err(error) => {
                    let settings = &self.shared.worker.fleet.settings;
                    if !untaken.is_for_good(Instant::now(), settings) {
                        self.wait_again().await;
                        continue;
                    }
                    Refusal {
                        reason: format!("the server does not take its answer: {error}"),
                        whose: Whose::Worker,
                    }
                }
            };
            self.refuse(held, refusal).await?;
            return Ok(false);
        }
        held.claim.state = ClaimState::Answered {
            worker: self.shared.worker.name.clone(),
        };
        // A coordinator that was faster has written the same.
        let claims = &self.shared.worker.fleet.claims;
        let _ = store::swap(claims, held.key, &held.claim, held.revision).await;
        self.note("answered", String::new(), brought.done.logs.clone())
            .await;
        // Without it the work comes again and is dropped by whoever gets it.
        let _ = store::within("cannot acknowledge", self.message.double_ack()).await;
        Ok(true)
    }

    /// One thing at a time, so that there is a sign of life between them.
    async fn give(&self, brought: &Brought, parts: &mut Parts) -> Result<Given, FleetError> {
        let fleet = &self.shared.worker.fleet;
        let job = &self.work.job;
        if let Some(next) = brought.files.get(parts.files.len()) {
            let Some(contents) = self.shared.worker.executor.contents(next) else {
                return Ok(Given::Gone(next.clone()));
            };
            parts.files.push(fleet.carry_bytes(job, &contents).await?);
            return Ok(Given::Part);
        }
        if parts.list.is_none() && !parts.files.is_empty() {
            let text = serde_json::to_string(&parts.files);
            let text = text.map_err(FleetError::talk("cannot be written as JSON"))?;
            parts.list = Some(fleet.carry(job, text).await?);
        }
        if parts.more.is_none() && self.work.request.is_some() {
            parts.more = Some(fleet.carry(job, brought.more.clone()).await?);
        }
        let envelope = match &parts.envelope {
            Some(envelope) => envelope.clone(),
            None => fleet.carry(job, brought.done.envelope.clone()).await?,
        };
        parts.envelope = Some(envelope.clone());
        self.publish(envelope, parts.more.clone(), parts.list.clone())
            .await?;
        Ok(Given::All)
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
        let body = store::written(&published)?;
        // Of a job that was forgotten and submitted again, another answer is another message.
        let id = Digest::of(&body).hex();
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
            let trouble = "cannot publish an answer";
            let results = &worker.fleet.results;
            let asked = || results.get_last_raw_message_by_subject(&subject);
            let there = store::asked(trouble, asked).await?;
            return there.map(|_| ()).map_err(FleetError::talk(trouble));
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_that_answers_does_not_take_is_given_up_and_one_that_is_away_is_waited_for() {
        let settings = Settings::default();
        let start = Instant::now();
        let long = for_good(&settings);
        let mut untaken = Untaken::default();
        assert!(!untaken.is_for_good(start, &settings));
        assert!(!untaken.is_for_good(start + long / 2, &settings));
        untaken.forget();
        assert!(!untaken.is_for_good(start + long, &settings));
        assert!(untaken.is_for_good(start + long * 2, &settings));
    }
}
