//! One open slot: what was answered for it, and whether whoever holds it lives.

use std::time::Instant;

use async_nats::jetstream::stream::RawMessageErrorKind;
use cofferdam_contract::rules::{Deed, Offence};
use cofferdam_store::bundle::PublicKey;
use jiff::Timestamp;

use super::{Case, Coordinator, Trust};
use crate::cancel::CANCELED;
use crate::error::FleetError;
use crate::judge::{self, Rejection};
use crate::model::{Claim, ClaimState, Failure, FailureKind, Slot, SlotEnd, Work};
use crate::names;
use crate::store::{self, Seen};
use crate::supervise::{Silent, Watched, is_long_over};

/// An answer that does not count and is nobody's fault, such as that of a worker that was put into quarantine meanwhile, is asked of another; but not for ever.
const BLAMELESS_REPLACEMENTS: u32 = 16;

impl Coordinator {
    pub(super) async fn attend(
        &mut self,
        case: &mut Case<'_>,
        index: usize,
    ) -> Result<(), FleetError> {
        let Some(slot) = case
            .record
            .slots
            .get(index)
            .filter(|slot| slot.end.is_none())
        else {
            return Ok(());
        };
        let slot = slot.clone();
        let job = case.record.job.clone();
        let key = names::claim_key(&job, slot.number);
        let claim: Option<Seen<Claim>> = store::get(&self.fleet.claims, &key).await?;
        if let Some(claim) = &claim {
            self.bind(case, &slot, &claim.value.state).await?;
            if self.is_old(claim.written_at) {
                store::swap(&self.fleet.claims, &key, &claim.value, claim.revision).await?;
            }
        }
        let mut end = self.answered(case, &slot, claim.as_ref()).await?;
        if end.is_none()
            && case.record.canceled.is_some()
            && self.fleet.close_canceled(&job, slot.number).await?
        {
            end = Some(SlotEnd::Dead {
                reason: CANCELED.to_owned(),
            });
        }
        if end.is_none() {
            end = self.supervise(case, &slot, claim).await?;
        }
        let Some(end) = end else {
            return Ok(());
        };
        if let SlotEnd::Valid { worker, .. } = &end {
            self.close(
                &key,
                ClaimState::Answered {
                    worker: worker.clone(),
                },
            )
            .await?;
        }
        if let SlotEnd::Rejected {
            worker, offence, ..
        } = &end
        {
            self.replace(case, &slot, worker, *offence);
        }
        if let Some(slot) = case.record.slots.get_mut(index) {
            slot.end = Some(end);
        }
        Ok(())
    }

    /// Whoever holds a slot has something at stake for it. Not a stranger: anybody can say to be one.
    async fn bind(
        &mut self,
        case: &Case<'_>,
        slot: &Slot,
        state: &ClaimState,
    ) -> Result<(), FleetError> {
        let ClaimState::Held { worker, .. } = state else {
            return Ok(());
        };
        let bound = (case.record.job.clone(), slot.number, worker.clone());
        if self.bound.contains(&bound) || !self.trust.knows(worker) {
            return Ok(());
        }
        self.enforcer
            .bind(&case.record, slot.number, worker)
            .await?;
        self.bound.insert(bound);
        Ok(())
    }

    /// The first valid answer wins. One that is not valid ends the slot only if it comes from whoever has it: others cannot spoil it.
    async fn answered(
        &mut self,
        case: &mut Case<'_>,
        slot: &Slot,
        claim: Option<&Seen<Claim>>,
    ) -> Result<Option<SlotEnd>, FleetError> {
        let wanted = names::results_of(&case.record.job, slot.number);
        let mut from = 1;
        loop {
            let trouble = "cannot look for answers";
            let asked = || {
                let asked = self.fleet.results.raw_message_builder().sequence(from);
                asked.next_by_subject(wanted.as_str()).send()
            };
            let message = match store::asked(trouble, asked).await? {
                Ok(message) => message,
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {
                    return Ok(None);
                }
                Err(error) => return Err(FleetError::talk(trouble)(error)),
            };
            from = message.sequence.saturating_add(1);
            let subject = message.subject.to_string();
            let Some(worker) = judge::worker_of(&subject) else {
                continue;
            };
            match self
                .judged(case, slot, &worker, &subject, &message.payload)
                .await?
            {
                Ok(result_id) => {
                    return Ok(Some(SlotEnd::Valid {
                        worker,
                        result_id,
                        sequence: message.sequence,
                    }));
                }
                Err(rejection) => {
                    if let Some(offence) = rejection.offence {
                        let evidence = rejection.evidence.clone();
                        case.hold(&worker, slot.number, Deed::Offence(offence), evidence);
                    }
                    if claim.is_some_and(|claim| has(&claim.value.state, &worker)) {
                        return Ok(Some(SlotEnd::Rejected {
                            worker,
                            offence: rejection.offence,
                            evidence: super::shortened(rejection.evidence),
                        }));
                    }
                }
            }
        }
    }

    async fn judged(
        &mut self,
        case: &Case<'_>,
        slot: &Slot,
        worker: &str,
        subject: &str,
        payload: &[u8],
    ) -> Result<Result<String, Rejection>, FleetError> {
        // Only when it comes: what a worker did when it was fit stays done.
        if let Some(key) = self.key_of(worker).await?
            && let Some(evidence) = self.enforcer.unfit(worker, &key).await?
        {
            return Ok(Err(Rejection {
                offence: None,
                evidence,
            }));
        }
        let mut barred = Vec::new();
        if self
            .ledger
            .standing(worker)
            .await?
            .is_quarantined(Timestamp::now())
        {
            barred.push(worker.to_owned());
        }
        self.checked(case, slot, barred, (worker, subject), payload)
            .await
    }

    pub(super) async fn key_of(&mut self, worker: &str) -> Result<Option<PublicKey>, FleetError> {
        if let Trust::Listed(_) = &self.trust {
            return Ok(self.trust.listed(worker));
        }
        if let Some(key) = self.keys.get(worker) {
            return Ok(Some(*key));
        }
        let key = self.ledger.first_key(worker).await?;
        if let Some(key) = key {
            self.keys.insert(worker.to_owned(), key);
        }
        Ok(key)
    }

    /// Signs of life, and the deadline.
    async fn supervise(
        &mut self,
        case: &mut Case<'_>,
        slot: &Slot,
        claim: Option<Seen<Claim>>,
    ) -> Result<Option<SlotEnd>, FleetError> {
        self.notice_own_absence();
        let now = Instant::now();
        let job = case.record.job.clone();
        let is_late = Timestamp::now() > case.record.deadline;
        let limit = case.sealed.payload().limits.wall_time;
        let is_held_too_long = is_long_over(case.record.deadline, limit, Timestamp::now());
        let claim = match claim {
            Some(claim) => claim,
            None if is_late => {
                let key = names::claim_key(&job, slot.number);
                let reason = "its deadline passed before a worker took it".to_owned();
                return self
                    .bury(case, slot, &key, Claim::default(), None, reason)
                    .await;
            }
            None => return Ok(None),
        };
        let settings = self.fleet.settings.clone();
        let watched = self.watched.entry((job.clone(), slot.number));
        let watched = watched.or_insert_with(|| Watched::new(now));
        let taken_over = watched.look(&claim.value.state, claim.revision, now, &settings);
        let overdue = watched.is_overdue(now, &settings);
        let unanswered = watched.is_unanswered(&claim.value.state, now, &settings);
        if let Some(silent) = &taken_over {
            self.blame(case, slot, silent);
        }
        let key = names::claim_key(&job, slot.number);
        match &claim.value.state {
            ClaimState::Dead { reason } => {
                let work = Work::of(&case.record, slot);
                self.fleet.bury(work, &claim.value, reason).await?;
                Ok(Some(SlotEnd::Dead {
                    reason: reason.clone(),
                }))
            }
            ClaimState::Answered { worker } if unanswered => Ok(Some(SlotEnd::Rejected {
                worker: worker.clone(),
                offence: None,
                evidence: "it said that it had answered, and there is no answer that counts"
                    .to_owned(),
            })),
            ClaimState::Free if is_late => {
                let reason = told("its deadline passed", &claim.value.failures);
                self.bury(
                    case,
                    slot,
                    &key,
                    claim.value.clone(),
                    Some(claim.revision),
                    reason,
                )
                .await
            }
            ClaimState::Held { worker, .. } => match overdue {
                Some(silent) => {
                    self.blame(case, slot, &silent);
                    self.revoke(case, slot, &key, claim, &silent).await
                }
                // A front door looks after the end of what it was asked by itself.
                None if is_held_too_long && case.record.request.is_none() => {
                    let reason = format!("its deadline passed while {worker} had it");
                    let reason = told(&reason, &claim.value.failures);
                    let revision = Some(claim.revision);
                    self.bury(case, slot, &key, claim.value.clone(), revision, reason)
                        .await
                }
                None => Ok(None),
            },
            ClaimState::Free | ClaimState::Answered { .. } => Ok(None),
        }
    }

    /// Holds a silence against whoever was silent. Not against a stranger: anybody can say to be one.
    fn blame(&self, case: &mut Case<'_>, slot: &Slot, silent: &Silent) {
        let offence = match silent.kind {
            FailureKind::Stall => Offence::Stall,
            FailureKind::Crash => Offence::Crash,
            FailureKind::Refused => return,
        };
        if self.trust.knows(&silent.worker) {
            let evidence = format!(
                "no sign of life for {:.1} s",
                silent.for_how_long.as_secs_f64()
            );
            case.hold(
                &silent.worker,
                slot.number,
                Deed::Offence(offence),
                evidence,
            );
        }
    }

    /// Takes a slot from a worker that gives no sign of life. The queue gives it to another; the worker finds out at its next sign and ends what it runs.
    async fn revoke(
        &mut self,
        case: &Case<'_>,
        slot: &Slot,
        key: &str,
        claim: Seen<Claim>,
        silent: &Silent,
    ) -> Result<Option<SlotEnd>, FleetError> {
        let mut free = claim.value;
        free.failed(
            &silent.worker,
            silent.kind,
            "it gave no sign of life".to_owned(),
        );
        free.state = ClaimState::Free;
        if free.starts >= self.fleet.settings.max_starts {
            let reason = told("it was started too often", &free.failures);
            return self
                .bury(case, slot, key, free, Some(claim.revision), reason)
                .await;
        }
        store::swap(&self.fleet.claims, key, &free, claim.revision).await?;
        Ok(None)
    }

    /// Nothing when somebody else was faster; then there is something new to look at.
    async fn bury(
        &self,
        case: &Case<'_>,
        slot: &Slot,
        key: &str,
        mut claim: Claim,
        revision: Option<u64>,
        reason: String,
    ) -> Result<Option<SlotEnd>, FleetError> {
        claim.state = ClaimState::Dead {
            reason: reason.clone(),
        };
        let work = Work::of(&case.record, slot);
        let written = match revision {
            Some(revision) => store::swap(&self.fleet.claims, key, &claim, revision).await?,
            None => store::create(&self.fleet.claims, key, &claim).await?,
        };
        if written.is_none() {
            return Ok(None);
        }
        self.fleet.bury(work, &claim, &reason).await?;
        Ok(Some(SlotEnd::Dead { reason }))
    }

    /// So that whoever still runs it stops, and whoever gets it again drops it.
    async fn close(&self, key: &str, state: ClaimState) -> Result<(), FleetError> {
        for _ in 0..8 {
            let seen: Option<Seen<Claim>> = store::get(&self.fleet.claims, key).await?;
            let written = match seen {
                Some(seen) if seen.value.state == state => return Ok(()),
                Some(seen) => {
                    let closed = Claim {
                        state: state.clone(),
                        ..seen.value
                    };
                    store::swap(&self.fleet.claims, key, &closed, seen.revision).await?
                }
                None => {
                    let closed = Claim {
                        state: state.clone(),
                        ..Claim::default()
                    };
                    store::create(&self.fleet.claims, key, &closed).await?
                }
            };
            if written.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Asks another worker, as often as that is done.
    pub(super) fn replace(
        &self,
        case: &mut Case<'_>,
        slot: &Slot,
        offender: &str,
        offence: Option<Offence>,
    ) {
        let of_kind = |slot: &&Slot| match &slot.end {
            Some(SlotEnd::Rejected { offence: known, .. }) => known.is_some() == offence.is_some(),
            Some(SlotEnd::Valid { .. } | SlotEnd::Dead { .. } | SlotEnd::Abandoned) | None => false,
        };
        let rejected = case.record.slots.iter().filter(of_kind).count();
        let each = match offence {
            Some(_) => self.fleet.settings.max_replacements,
            None => BLAMELESS_REPLACEMENTS,
        };
        let most = u64::from(each) * u64::from(case.record.replicas);
        if u64::try_from(rejected).is_ok_and(|rejected| rejected >= most) {
            return;
        }
        let mut excluded = slot.excluded.clone();
        excluded.push(offender.to_owned());
        case.add_slot(excluded);
    }
}

impl Case<'_> {
    pub(super) fn add_slot(&mut self, excluded: Vec<String>) {
        let numbers = self.record.slots.iter().map(|slot| slot.number);
        let number = numbers.max().map_or(0, |last| last.saturating_add(1));
        self.record.slots.push(Slot {
            number,
            excluded,
            queued_at: Timestamp::now(),
            end: None,
        });
        self.record.queued = false;
    }
}

impl Claim {
    /// Writes down that a worker failed here; it does not get this again.
    pub(crate) fn failed(&mut self, worker: &str, kind: FailureKind, reason: String) {
        self.failures.push(Failure {
            worker: worker.to_owned(),
            kind,
            at: Timestamp::now(),
            reason,
        });
        if !self.excluded.iter().any(|name| name == worker) {
            self.excluded.push(worker.to_owned());
        }
    }
}

fn has(state: &ClaimState, worker: &str) -> bool {
    match state {
        ClaimState::Held { worker: holder, .. } | ClaimState::Answered { worker: holder } => {
            holder == worker
        }
        ClaimState::Free | ClaimState::Dead { .. } => false,
    }
}

/// A reason with what came before it.
pub(crate) fn told(reason: &str, failures: &[Failure]) -> String {
    let mut text = reason.to_owned();
    for failure in failures {
        let kind = match failure.kind {
            FailureKind::Stall => "stalled",
            FailureKind::Crash => "crashed",
            FailureKind::Refused => "refused",
        };
        text.push_str(&format!("; {} {kind}: {}", failure.worker, failure.reason));
    }
    text
}
