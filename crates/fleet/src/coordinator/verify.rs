//! Whether an answer counts: signed by whom this coordinator trusts, and what was asked for. Asked when it comes, and again by whoever takes it in.

use cofferdam_contract::rules::Offence;

use super::{Case, Coordinator};
use crate::carry::LARGEST_RECORD;
use crate::error::FleetError;
use crate::judge::{self, Asked, Published, Rejection};
use crate::model::{Carried, JobRecord, Slot, SlotEnd};
use crate::names;
use crate::store;

impl Coordinator {
    /// The answer of a job, checked once more by whom this coordinator trusts: the end may have been written by one that trusts others.
    pub async fn verified(&mut self, record: &JobRecord) -> Result<Option<Published>, FleetError> {
        let Some((slot, sequence)) = record.answered() else {
            return Ok(None);
        };
        let unproven = |why: String| FleetError::Unproven {
            job: record.job.clone(),
            why,
        };
        let message = self.message_at(sequence).await?;
        let subject = message.subject.to_string();
        let worker = judge::worker_of(&subject).unwrap_or_default();
        if subject != names::result_subject(&record.job, slot.number, &worker) {
            return Err(unproven(format!("it was given elsewhere, at {subject}")));
        }
        let sealed = self.sealed(record).await?;
        // As it was when it had not been answered. Who has been put into quarantine since then has not lost what he did before.
        let mut before = record.clone();
        for other in &mut before.slots {
            other.end = other.end.take().filter(|_| other.number != slot.number);
        }
        let case = Case {
            record: before,
            sealed: &sealed,
        };
        let judged = self.checked(
            &case,
            slot,
            Vec::new(),
            (&worker, &subject),
            &message.payload,
        );
        match judged.await? {
            Ok(_) => store::read(&message.payload, || format!("the answer {sequence}")).map(Some),
            Err(rejection) => Err(unproven(super::shortened(rejection.evidence))),
        }
    }

    /// `barred` are workers that must not answer, besides those of the slot.
    pub(super) async fn checked(
        &mut self,
        case: &Case<'_>,
        slot: &Slot,
        barred: Vec<String>,
        (worker, subject): (&str, &str),
        payload: &[u8],
    ) -> Result<Result<String, Rejection>, FleetError> {
        let nobodys = |evidence: &str| {
            Ok(Err(Rejection {
                offence: None,
                evidence: evidence.to_owned(),
            }))
        };
        let Some(key) = self.key_of(worker).await? else {
            return nobodys("its worker is not known");
        };
        let Ok(published) = serde_json::from_slice::<Published>(payload) else {
            return nobodys("it is no answer, and nothing shows who wrote it");
        };
        if !judge::is_signed(&key, subject, &published) {
            return nobodys("its worker has not signed it");
        }
        let blamed = |offence, evidence: String| {
            Ok(Err(Rejection {
                offence: Some(offence),
                evidence,
            }))
        };
        if let Carried::Object { bytes, .. } = &published.envelope
            && usize::try_from(*bytes).is_ok_and(|bytes| bytes > crate::carry::LARGEST)
        {
            return blamed(
                Offence::OutputTooLarge,
                format!("its envelope has {bytes} bytes"),
            );
        }
        let bytes = match self.fleet.fetch(&published.envelope).await {
            Ok(bytes) => bytes,
            Err(FleetError::Damaged { why, .. }) => return blamed(Offence::MalformedResult, why),
            Err(error) => return Err(error),
        };
        let mut excluded = slot.excluded.clone();
        let mut used = case.record.used.clone();
        for other in &case.record.slots {
            if let Some(SlotEnd::Valid {
                worker, result_id, ..
            }) = &other.end
            {
                excluded.push(worker.clone());
                used.push(result_id.clone());
            }
        }
        excluded.extend(barred);
        let asked = Asked {
            sealed: case.sealed,
            slot: slot.number,
            queued_at: slot.queued_at,
            used: &used,
            excluded: &excluded,
        };
        let envelope = match judge::judge(&asked, worker, &key, &bytes) {
            Ok(envelope) => envelope,
            Err(rejection) => return Ok(Err(rejection)),
        };
        if case.record.request.is_some() {
            let Some(more) = &published.more else {
                let evidence = "it does not bring the record of its run".to_owned();
                return blamed(Offence::MalformedResult, evidence);
            };
            let bytes = match self.fleet.fetch_at_most(more, LARGEST_RECORD).await {
                Ok(bytes) => bytes,
                Err(FleetError::Damaged { why, .. }) => {
                    return blamed(Offence::MalformedResult, why);
                }
                Err(error) => return Err(error),
            };
            if let Err(rejection) = judge::check_record(case.sealed, &envelope, &bytes) {
                return Ok(Err(rejection));
            }
        }
        Ok(Ok(envelope.result_id))
    }
}
