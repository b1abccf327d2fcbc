//! The end of a job, when there is nothing left to wait for: the answers are compared, and that is decided once.

use cofferdam_contract::envelope::ResultEnvelope;
use cofferdam_contract::replicas::{self, Answer, Outcome};
use cofferdam_contract::rules::{Deed, Offence};
use jiff::Timestamp;

use super::{Case, Coordinator};
use crate::cancel::CANCELED;
use crate::carry::LARGEST_RECORD;
use crate::error::FleetError;
use crate::model::{End, EndOutcome, SlotEnd};
use crate::outcome::{self, Beside};

/// A valid answer.
struct Given {
    slot: u32,
    worker: String,
    envelope: ResultEnvelope,
    /// Where there is more than that to compare.
    beside: Option<Beside>,
}

impl Coordinator {
    pub(super) async fn conclude(&mut self, case: &mut Case<'_>) -> Result<(), FleetError> {
        if case.record.slots.iter().any(|slot| slot.end.is_none()) {
            return Ok(());
        }
        let mut given = Vec::new();
        let mut gone = Vec::new();
        for (index, slot) in case.record.slots.iter().enumerate() {
            if let Some(SlotEnd::Valid {
                worker, sequence, ..
            }) = &slot.end
            {
                match self.given(case, slot.number, worker, *sequence).await {
                    Ok(one) => given.push(one),
                    Err(error @ FleetError::Damaged { .. }) => {
                        gone.push((index, worker.clone(), error.to_string()));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        if gone.is_empty() {
            decide(case, &given);
        }
        // It counted when it came; whoever made away with it since, it is asked of another.
        for (index, worker, evidence) in gone {
            let Some(slot) = case.record.slots.get(index).cloned() else {
                continue;
            };
            self.replace(case, &slot, &worker, None);
            if let Some(slot) = case.record.slots.get_mut(index) {
                slot.end = Some(SlotEnd::Rejected {
                    worker,
                    offence: None,
                    evidence: super::shortened(evidence),
                });
            }
        }
        Ok(())
    }

    async fn given(
        &self,
        case: &Case<'_>,
        slot: u32,
        worker: &str,
        sequence: u64,
    ) -> Result<Given, FleetError> {
        let published = self.published_at(sequence).await?;
        let bytes = self.fleet.fetch(&published.envelope).await?;
        let envelope = ResultEnvelope::parse(&bytes).map_err(|found| FleetError::Damaged {
            what: format!("the answer {sequence}"),
            why: found.to_string(),
        })?;
        let beside = match &published.more {
            Some(more) if case.record.slots.len() > 1 => {
                let more = self.fleet.fetch_at_most(more, LARGEST_RECORD).await?;
                Some(Beside::of(&more))
            }
            Some(_) | None => None,
        };
        Ok(Given {
            slot,
            worker: worker.to_owned(),
            envelope,
            beside,
        })
    }
}

fn decide(case: &mut Case<'_>, given: &[Given]) {
    let wanted = usize::try_from(case.record.replicas).unwrap_or(usize::MAX);
    let required = replicas::required(wanted);
    let answers: Vec<Answer<'_>> = given
        .iter()
        .map(|given| Answer {
            worker: &given.worker,
            envelope: &given.envelope,
        })
        .collect();
    let agreement = replicas::agree(case.sealed.payload(), &answers);
    let beside: Vec<Option<Beside>> = given.iter().map(|given| given.beside).collect();
    let agreement = outcome::narrowed(agreement, &beside);
    let is_agreed = agreement.outcome != Outcome::Dispute && agreement.majority.len() >= required;
    let is_check = case.record.audited && !is_agreed && given.len() == wanted;
    if is_check && wanted.is_multiple_of(2) {
        // A check that does not agree shows that somebody lies, and a third says who.
        case.record.replicas = case.record.replicas.saturating_add(1);
        let excluded = case.record.slots.first().map(|slot| slot.excluded.clone());
        case.add_slot(excluded.unwrap_or_default());
        return;
    }
    let (outcome, reason) = if is_agreed {
        (EndOutcome::Agreed, None)
    } else if case.record.canceled.is_some() && given.len() < required {
        (EndOutcome::Canceled, Some(CANCELED.to_owned()))
    } else if given.len() < required {
        (EndOutcome::Failed, Some(too_few(case, given.len())))
    } else {
        let reason = format!(
            "{} answers, and no {required} of them are the same",
            given.len()
        );
        (EndOutcome::Disputed, Some(reason))
    };
    let mut answer = None;
    if is_agreed {
        for place in &agreement.majority {
            if let Some(given) = given.get(*place) {
                answer = answer.or(Some(given.slot));
                case.hold(
                    &given.worker,
                    given.slot,
                    Deed::Confirmed,
                    given.envelope.result_id.clone(),
                );
            }
        }
        for place in &agreement.minority {
            if let Some(given) = given.get(*place) {
                let evidence = format!("{} agree on another answer", agreement.majority.len());
                let deed = Deed::Offence(Offence::FailedVerification);
                case.hold(&given.worker, given.slot, deed, evidence);
            }
        }
    }
    case.record.end = Some(End {
        at: Timestamp::now(),
        outcome,
        workers: given.iter().map(|given| given.worker.clone()).collect(),
        agreement: (!given.is_empty()).then_some(agreement),
        answer,
        reason,
    });
}

fn too_few(case: &Case<'_>, given: usize) -> String {
    let mut reason = format!("{given} of {} replicas answered", case.record.replicas);
    for slot in &case.record.slots {
        match &slot.end {
            Some(SlotEnd::Dead { reason: why }) => reason.push_str(&format!("; {why}")),
            Some(SlotEnd::Rejected {
                worker, evidence, ..
            }) => {
                reason.push_str(&format!(
                    "; the answer of {worker} was rejected: {evidence}"
                ));
            }
            Some(SlotEnd::Valid { .. } | SlotEnd::Abandoned) | None => {}
        }
    }
    reason
}
