//! Whether an answer from a worker holds. Trusts nothing that the worker says; decides from the message, the payload and the key that the worker is known by. Pure.

use cofferdam_contract::canonical::Digest;
use cofferdam_contract::carried_record::CarriedRecord;
use cofferdam_contract::envelope::{Answerer, ResultEnvelope};
use cofferdam_contract::problem::Problem;
use cofferdam_contract::receipt::Receipt;
use cofferdam_contract::rules::Offence;
use cofferdam_contract::seal::Sealed;
use cofferdam_store::bundle::PublicKey;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::connect::Sign;
use crate::model::Carried;
use crate::names;

/// What a worker publishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    pub envelope: Carried,
    /// The record of the run, and what else a daemon wants to know of it. Only for a request of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<Carried>,
    /// The list of the files that the run left, by their digests, which stand in the record. A document of its own: there may be more of them than a message has room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Carried>,
    /// Base64, by the worker's key over the subject and the digests of the envelope and the record: whoever is blamed for a message has signed it, whatever is in it.
    pub signature: String,
}

/// The answer that is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub sealed: &'a Sealed,
    pub slot: u32,
    pub queued_at: Timestamp,
    /// Answers that were given before for this job.
    pub used: &'a [String],
    /// Workers that must not answer here.
    pub excluded: &'a [String],
}

/// Why an answer does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// `None` where nobody can be blamed: nothing shows who wrote it, or it is honest and comes from the wrong place.
    pub offence: Option<Offence>,
    pub evidence: String,
}

/// Clocks of honest machines differ this much.
const SKEW: SignedDuration = SignedDuration::from_mins(5);
const DOMAIN: &str = "cofferdam.fleet.result/1";

/// What a worker signs: where the answer belongs, and what it is.
pub fn signed_message(subject: &str, envelope: &Carried, more: Option<&Carried>) -> Vec<u8> {
    let mut message = format!("{DOMAIN}\n{subject}\n{}\n", digest(envelope).hex());
    if let Some(more) = more {
        message.push_str(&format!("{}\n", digest(more).hex()));
    }
    message.into_bytes()
}

fn digest(carried: &Carried) -> Digest {
    match carried {
        Carried::Inline { text } => Digest::of(text.as_bytes()),
        Carried::Object { sha256, .. } => *sha256,
    }
}

/// Whether the worker whose key this is wrote the message.
pub fn is_signed(key: &PublicKey, subject: &str, published: &Published) -> bool {
    let decoded = data_encoding::BASE64.decode(published.signature.as_bytes());
    let signature: Option<[u8; 64]> = decoded.ok().and_then(|bytes| bytes.try_into().ok());
    let message = signed_message(subject, &published.envelope, published.more.as_ref());
    signature.is_some_and(|signature| key.has_signed(&message, &signature))
}

/// The message of a worker, signed.
pub fn published(
    subject: &str,
    envelope: Carried,
    more: Option<Carried>,
    files: Option<Carried>,
    signer: &dyn Sign,
) -> Published {
    let signature = signer.sign(&signed_message(subject, &envelope, more.as_ref()));
    Published {
        envelope,
        more,
        files,
        signature: data_encoding::BASE64.encode(&signature),
    }
}

/// Judges an answer that its worker has signed.
pub fn judge(
    asked: &Asked<'_>,
    worker: &str,
    key: &PublicKey,
    bytes: &[u8],
) -> Result<ResultEnvelope, Rejection> {
    let blamed = |offence: Offence, evidence: String| Rejection {
        offence: Some(offence),
        evidence,
    };
    let envelope = ResultEnvelope::parse(bytes)
        .map_err(|found| blamed(Offence::MalformedResult, found.to_string()))?;
    if envelope.worker_id != worker {
        let evidence = format!("it answers in the name of {}", envelope.worker_id);
        return Err(blamed(Offence::WrongPayload, evidence));
    }
    if asked.excluded.iter().any(|name| name == worker) {
        return Err(Rejection {
            offence: None,
            evidence: format!("{worker} was not to answer here"),
        });
    }
    if asked.used.contains(&envelope.result_id) {
        let evidence = format!("{} was given before", envelope.result_id);
        return Err(blamed(Offence::Replay, evidence));
    }
    if let Err(found) = envelope.check(asked.sealed) {
        let found = found.into_vec();
        let offence = worst(&found);
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        return Err(blamed(offence, lines.join("; ")));
    }
    check_receipt(asked.sealed, &envelope, key)?;
    let completed: Option<Timestamp> = envelope.completed_at.parse().ok();
    let earliest = asked
        .queued_at
        .saturating_sub(SKEW)
        .unwrap_or(Timestamp::MIN);
    if completed.is_none_or(|completed| completed < earliest) && envelope.cached.is_none() {
        let evidence = format!(
            "it was completed at {}, before it was asked for at {}",
            envelope.completed_at, asked.queued_at
        );
        return Err(blamed(Offence::Replay, evidence));
    }
    Ok(envelope)
}

/// What of a record is looked at here; the rest is for the daemon that asked.
#[derive(Debug, Deserialize)]
struct Recorded {
    record: CarriedRecord,
}

/// Whether a record is that of the run that the envelope tells of: the envelope is made of it once more.
pub fn check_record(
    sealed: &Sealed,
    envelope: &ResultEnvelope,
    bytes: &[u8],
) -> Result<(), Rejection> {
    let malformed = |evidence: &str| Rejection {
        offence: Some(Offence::MalformedResult),
        evidence: evidence.to_owned(),
    };
    let Ok(recorded) = serde_json::from_slice::<Recorded>(bytes) else {
        return Err(malformed("its record cannot be read"));
    };
    let by = Answerer {
        result_id: envelope.result_id.clone(),
        worker_id: envelope.worker_id.clone(),
    };
    let again = ResultEnvelope::new(sealed, &recorded.record.record(), by)
        .map_err(|_| malformed("its record cannot be an answer"))?;
    // A partial output may have been shortened to fit; everything else is the same.
    let is_same = again.status == envelope.status
        && again.proof_of_work == envelope.proof_of_work
        && again
            .runtime_seconds
            .total_cmp(&envelope.runtime_seconds)
            .is_eq()
        && again.cpu_seconds.total_cmp(&envelope.cpu_seconds).is_eq()
        && again.memory_used_mb == envelope.memory_used_mb
        && again.completed_at == envelope.completed_at
        && again.error_message == envelope.error_message
        && again.produced_by == envelope.produced_by;
    match is_same {
        true => Ok(()),
        false => Err(malformed("its record is not that of the envelope")),
    }
}

/// One answer can be wrong in several ways; the gravest counts.
fn worst(problems: &[Problem]) -> Offence {
    let offence = |problem: &Problem| match problem.field.as_str() {
        "payload_id" => Offence::WrongPayload,
        "proof_of_work" => Offence::BadProof,
        "output_size_kb" => Offence::OutputTooLarge,
        "runtime_seconds" | "cpu_seconds" | "memory_used_mb" => Offence::RuntimeViolation,
        _ => Offence::MalformedResult,
    };
    let gravity = |offence: &Offence| match offence {
        Offence::WrongPayload => 4,
        Offence::BadProof => 3,
        Offence::OutputTooLarge => 2,
        Offence::MalformedResult => 1,
        Offence::RuntimeViolation
        | Offence::Replay
        | Offence::FailedVerification
        | Offence::Stall
        | Offence::Crash => 0,
    };
    let found = problems.iter().map(offence).max_by_key(gravity);
    found.unwrap_or(Offence::MalformedResult)
}

fn check_receipt(
    sealed: &Sealed,
    envelope: &ResultEnvelope,
    key: &PublicKey,
) -> Result<(), Rejection> {
    let malformed = |evidence: String| Rejection {
        offence: Some(Offence::MalformedResult),
        evidence,
    };
    let line = envelope.receipt.as_deref();
    let line = line.ok_or_else(|| malformed("the envelope is not signed".to_owned()))?;
    let receipt = Receipt::parse(line).map_err(|bad| malformed(bad.to_string()))?;
    let message = receipt.statement.message();
    let message = message.map_err(|bad| malformed(bad.to_string()))?;
    if receipt.statement.key != key.to_string() || !key.has_signed(&message, &receipt.signature) {
        return Err(malformed(
            "its receipt is not signed by this worker".to_owned(),
        ));
    }
    let problems = receipt.statement.problems(sealed, envelope);
    match problems.first() {
        Some(problem) => Err(malformed(problem.to_string())),
        None => Ok(()),
    }
}

/// The worker that a subject names.
pub fn worker_of(subject: &str) -> Option<String> {
    names::untoken(subject.rsplit('.').next()?)
}
