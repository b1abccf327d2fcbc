//! A receipt: one signed line that says which payload was answered, with what, how it ended, what it used and by which engine and backend. Short enough to be posted anywhere,
//! and enough to find every change of the payload or the envelope later. Keys and signatures are the caller's; here is what is signed and how it is spelled.
//!
//! ```text
//! cdr1.STATEMENT.SIGNATURE     base64url without padding: canonical JSON, 64 bytes of Ed25519
//! ```

use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::{self, Digest, NotCanonical};
use crate::envelope::{ResultEnvelope, Status};
use crate::problem::Problem;
use crate::seal::Sealed;
use crate::strict_json;

/// The longest line that is made or read: less than a kilobyte.
pub const LONGEST: usize = 1000;
const MARK: &str = "cdr1";
/// Before what is signed: the same key signs bundles, and no signature of the one must pass for the other.
const DOMAIN: &[u8] = b"cofferdam.receipt/1\n";
const SIGNATURE: usize = 64;

/// What is signed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    pub payload: Digest,
    /// Of the output's canonical JSON.
    pub output: Digest,
    /// Of the envelope's canonical JSON, without the receipt: whatever else is in it is covered too.
    pub envelope: Digest,
    pub status: Status,
    /// `exited:0`, `stopped:memory`.
    pub ending: String,
    pub usage: SignedUsage,
    pub engine: String,
    pub backend: String,
    pub completed_at: String,
    /// Who signs: an Ed25519 public key as base64.
    pub key: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedUsage {
    pub wall_seconds: f64,
    pub cpu_seconds: f64,
    pub memory_mb: Option<f64>,
    pub output_kb: f64,
}

/// A statement with its signature, which nobody has checked yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Receipt {
    pub statement: Statement,
    pub signature: [u8; SIGNATURE],
}

/// Why there is no receipt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadReceipt {
    #[error("the envelope does not say what made it (`produced_by`); execute the payload again")]
    Unattributed,
    #[error(
        "the envelope answers `{answered}`, and the payload is `{payload}`; sign an envelope together with its own payload"
    )]
    OtherPayload { answered: String, payload: String },
    #[error("{0}")]
    NotCanonical(#[from] NotCanonical),
    #[error("the line would have {bytes} bytes, and a receipt has at most {LONGEST}")]
    TooLong { bytes: usize },
    #[error("not a receipt: {why}; a receipt is one line that begins with `{MARK}.`")]
    Malformed { why: &'static str },
}

impl Statement {
    pub fn new(
        sealed: &Sealed,
        envelope: &ResultEnvelope,
        key: String,
    ) -> Result<Self, BadReceipt> {
        let by = envelope
            .produced_by
            .as_ref()
            .ok_or(BadReceipt::Unattributed)?;
        if envelope.payload_id != sealed.payload().payload_id {
            return Err(BadReceipt::OtherPayload {
                answered: envelope.payload_id.clone(),
                payload: sealed.payload().payload_id.clone(),
            });
        }
        Ok(Self {
            payload: sealed.digest(),
            output: canonical::digest(&envelope.output)?,
            envelope: envelope_digest(envelope)?,
            status: envelope.status,
            ending: by.ending.clone(),
            usage: SignedUsage {
                wall_seconds: envelope.runtime_seconds,
                cpu_seconds: envelope.cpu_seconds,
                memory_mb: envelope.memory_used_mb,
                output_kb: envelope.output_size_kb,
            },
            engine: by.engine_version.clone(),
            backend: by.backend.clone(),
            completed_at: envelope.completed_at.clone(),
            key,
        })
    }

    /// What the key signs.
    pub fn message(&self) -> Result<Vec<u8>, BadReceipt> {
        Ok([DOMAIN, &self.bytes()?].concat())
    }

    fn bytes(&self) -> Result<Vec<u8>, BadReceipt> {
        let value = serde_json::to_value(self).map_err(|_| BadReceipt::Malformed {
            why: "it has no JSON",
        })?;
        Ok(canonical::to_bytes(&value)?)
    }

    /// Everything in which this is not a statement about that answer to that payload.
    pub fn problems(&self, sealed: &Sealed, envelope: &ResultEnvelope) -> Vec<Problem> {
        let expected = match Self::new(sealed, envelope, self.key.clone()) {
            Ok(expected) => expected,
            Err(bad) => return vec![Problem::new("receipt", "", bad.to_string())],
        };
        let (Ok(Value::Object(said)), Ok(Value::Object(expected))) =
            (serde_json::to_value(self), serde_json::to_value(&expected))
        else {
            return vec![Problem::new("receipt", "", "cannot be written as JSON")];
        };
        let differs = |(name, value): (&String, &Value)| {
            let is = expected.get(name)?;
            (is != value).then(|| {
                let fix = format!("was signed, and this is about {is}: one of them was changed");
                Problem::new(format!("receipt.{name}"), value, fix)
            })
        };
        said.iter().filter_map(differs).collect()
    }

    /// The same for the payload alone.
    pub fn is_about(&self, sealed: &Sealed) -> bool {
        self.payload == sealed.digest()
    }
}

fn envelope_digest(envelope: &ResultEnvelope) -> Result<Digest, BadReceipt> {
    let bare = ResultEnvelope {
        receipt: None,
        ..envelope.clone()
    };
    let value = serde_json::to_value(&bare).map_err(|_| BadReceipt::Malformed {
        why: "the envelope has no JSON",
    })?;
    Ok(canonical::digest(&value)?)
}

impl Receipt {
    /// The line. Refuses to make one that is too long to be read back.
    pub fn line(&self) -> Result<String, BadReceipt> {
        let statement = BASE64URL_NOPAD.encode(&self.statement.bytes()?);
        let signature = BASE64URL_NOPAD.encode(&self.signature);
        let line = format!("{MARK}.{statement}.{signature}");
        match line.len() {
            bytes if bytes > LONGEST => Err(BadReceipt::TooLong { bytes }),
            _ => Ok(line),
        }
    }

    /// Reads a line; its signature is still to be checked. There is one spelling of each receipt.
    pub fn parse(line: &str) -> Result<Self, BadReceipt> {
        let malformed = |why| BadReceipt::Malformed { why };
        let line = line.trim();
        if line.len() > LONGEST {
            return Err(malformed("it is too long"));
        }
        let mut parts = line.split('.');
        let (mark, statement, signature, rest) =
            (parts.next(), parts.next(), parts.next(), parts.next());
        if mark != Some(MARK) || rest.is_some() {
            return Err(malformed("it has another form"));
        }
        let decoded = |part: Option<&str>| {
            let bytes = BASE64URL_NOPAD.decode(part.unwrap_or_default().as_bytes());
            bytes.map_err(|_| malformed("a part is not base64url"))
        };
        let bytes = decoded(statement)?;
        let value =
            strict_json::parse(&bytes).map_err(|_| malformed("the statement is not JSON"))?;
        let statement: Statement = serde_json::from_value(value)
            .map_err(|_| malformed("the statement has other fields"))?;
        if statement.bytes()? != bytes {
            return Err(malformed("the statement is not canonical JSON"));
        }
        let signature = decoded(signature)?
            .try_into()
            .map_err(|_| malformed("the signature is not 64 bytes"))?;
        Ok(Self {
            statement,
            signature,
        })
    }
}

impl fmt::Display for SignedUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s, {} s of CPU", self.wall_seconds, self.cpu_seconds)?;
        match self.memory_mb {
            Some(memory) => write!(f, ", {memory} MiB"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ending::{Ending, SetupFailure, SetupFailureKind};
    use crate::envelope::tests::{envelope, run, sealed};
    use serde_json::json;

    fn key() -> String {
        data_encoding::BASE64.encode(&[7; 32])
    }

    fn made() -> (Sealed, ResultEnvelope, Receipt) {
        let sealed = sealed(json!(true));
        let envelope = envelope(&sealed, &run(Ending::Exited { code: 0 }, b"hi\n", b"log\n"));
        let statement = Statement::new(&sealed, &envelope, key()).unwrap();
        let receipt = Receipt {
            statement,
            signature: [9; 64],
        };
        (sealed, envelope, receipt)
    }

    #[test]
    fn a_receipt_reads_back_and_is_of_one_spelling() {
        let (_, _, receipt) = made();
        let line = receipt.line().unwrap();
        assert_eq!(Receipt::parse(&line), Ok(receipt.clone()));
        assert_eq!(Receipt::parse(&format!(" {line}\n")), Ok(receipt.clone()));
        assert!(
            line.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        );
        let spaced = format!("{:#}", serde_json::to_value(&receipt.statement).unwrap());
        let spaced = format!(
            "{MARK}.{}.{}",
            BASE64URL_NOPAD.encode(spaced.as_bytes()),
            BASE64URL_NOPAD.encode(&[9; 64])
        );
        for bad in [
            "",
            "cdr1",
            "cdr1..",
            "cdr2.e30.AA",
            "cdr1.e30.AA",
            &format!("{line}.x"),
            &format!("{line}AA"),
            &line.replace("cdr1", "CDR1"),
            &"a".repeat(5000),
            &spaced,
        ] {
            assert!(Receipt::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_longest_receipt_is_under_a_kilobyte() {
        let sealed = sealed(json!(true));
        let failure = SetupFailure {
            kind: SetupFailureKind::ProgramNotExecutable,
            step: "execve".into(),
            message: "no".into(),
            errno: Some(8),
        };
        let mut envelope = envelope(&sealed, &run(Ending::NeverStarted(failure), b"", b""));
        envelope.runtime_seconds = 123_456.789_012_345_67;
        envelope.cpu_seconds = 1.234_567_890_123_456_7e-7;
        envelope.memory_used_mb = Some(123_456.789_012_345_67);
        envelope.output_size_kb = 8_191.999_023_437_5;
        envelope.completed_at = "2026-01-31T12:00:00.123456789Z".into();
        let by = envelope.produced_by.as_mut().unwrap();
        by.backend = "bubblewrap".into();
        by.engine_version = "10.20.30-beta.4".into();
        let receipt = Receipt {
            statement: Statement::new(&sealed, &envelope, key()).unwrap(),
            signature: [0xff; 64],
        };
        let line = receipt.line().unwrap();
        assert!(line.len() < 1000, "{} bytes", line.len());
        assert_eq!(Receipt::parse(&line), Ok(receipt));
    }

    /// Every field of the envelope, by its JSON, so that one that comes later is in it.
    #[test]
    fn a_change_of_any_field_of_the_envelope_is_named() {
        let (sealed, envelope, receipt) = made();
        assert_eq!(receipt.statement.problems(&sealed, &envelope), []);
        let whole = serde_json::to_value(&envelope).unwrap();
        let others = json!({
            "result_id": "RESULT-2", "worker_id": "worker-2", "status": "ERROR", "output": {"stdout": "ho\n", "exit_code": 0},
            "proof_of_work": "0".repeat(64), "logs": [], "runtime_seconds": 9.0, "cpu_seconds": 9.0, "memory_used_mb": null,
            "output_size_kb": 9.0, "error_message": "x", "completed_at": "2026-01-31T12:00:00Z",
            "verdict": {"violation": "TIMEOUT", "limit": null, "evidence": ""}, "enforced_by": {},
            "partial_output": {"stdout": {"data": "", "encoding": "utf-8", "truncated": false, "original_bytes": 0}, "stderr": {"data": "", "encoding": "utf-8", "truncated": false, "original_bytes": 0}},
            "produced_by": {"engine_version": "9.9.9", "backend": "native", "ending": "exited:0", "run_id": "run-1"},
            "stdout_sha256": "0".repeat(64), "cached": {"run_id": "run-2"},
        });
        let of_producer = [
            json!({"engine_version": crate::envelope::ENGINE_VERSION, "backend": "wasm", "ending": "exited:0", "run_id": "run-1"}),
            json!({"engine_version": crate::envelope::ENGINE_VERSION, "backend": "native", "ending": "exited:1", "run_id": "run-1"}),
            json!({"engine_version": crate::envelope::ENGINE_VERSION, "backend": "native", "ending": "exited:0", "run_id": "run-2"}),
        ];
        let listed = others.as_object().unwrap();
        for name in whole.as_object().unwrap().keys() {
            assert!(
                listed.contains_key(name) || name == "payload_id",
                "{name} is not in the table"
            );
        }
        let changes = listed.iter().map(|(name, value)| (name.as_str(), value));
        let changes = changes.chain(of_producer.iter().map(|value| ("produced_by", value)));
        for (name, value) in changes {
            let mut changed = whole.clone();
            changed[name] = value.clone();
            let changed: ResultEnvelope = serde_json::from_value(changed).unwrap();
            let found = receipt.statement.problems(&sealed, &changed);
            assert!(!found.is_empty(), "{name}");
            assert!(
                found
                    .iter()
                    .any(|problem| problem.field == "receipt.envelope"),
                "{name}: {found:?}"
            );
        }
    }

    #[test]
    fn an_answer_to_another_payload_is_not_covered() {
        let (sealed, envelope, receipt) = made();
        let mut other = sealed.json().clone();
        other["scope"] = json!("something else");
        let other = crate::seal::Draft::from_value(other).unwrap();
        let now = jiff::Timestamp::UNIX_EPOCH;
        let other = other.seal(now, crate::ids::Entropy([0; 16])).unwrap();
        assert!(receipt.statement.is_about(&sealed));
        assert!(!receipt.statement.is_about(&other));
        let fields: Vec<_> = receipt
            .statement
            .problems(&other, &envelope)
            .into_iter()
            .map(|problem| problem.field)
            .collect();
        assert_eq!(fields, ["receipt.payload"]);
        let mut renamed = other.json().clone();
        renamed["payload_id"] = json!("PAYLOAD-2");
        let renamed = crate::seal::Draft::from_value(renamed).unwrap();
        let renamed = renamed.seal(now, crate::ids::Entropy([0; 16])).unwrap();
        assert!(matches!(
            Statement::new(&renamed, &envelope, key()),
            Err(BadReceipt::OtherPayload { .. })
        ));
        let unattributed = ResultEnvelope {
            produced_by: None,
            ..envelope
        };
        assert_eq!(
            Statement::new(&sealed, &unattributed, key()),
            Err(BadReceipt::Unattributed)
        );
    }

    #[test]
    fn what_is_signed_is_no_bundle() {
        let (_, _, receipt) = made();
        assert!(
            receipt
                .statement
                .message()
                .unwrap()
                .starts_with(b"cofferdam.receipt/1\n{")
        );
    }
}
