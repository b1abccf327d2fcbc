//! `ResultEnvelope`: what a worker answers to a payload. Made here from what the engine measured, the same for the same inputs;
//! checked against the payload in [`ResultEnvelope::check`], which trusts nothing that the worker says.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::canonical::{self, Digest, NotCanonical};
use crate::ending::{Ending, LimitValue};
use crate::enforcement::Enforcement;
use crate::output_class::OutputClass;
use crate::output_format::OutputFormat;
use crate::payload::{ExecutionPayload, limit_field};
use crate::problem::{Problem, Problems};
use crate::record::{CapturedStream, Encoding, RunRecord};
use crate::seal::Sealed;
use crate::signal::signal_name;
use crate::strict_json;
use crate::verdict::{Verdict, Violation};
use crate::{envelope_check, ids};

pub use crate::envelope_check::{MEMORY_TOLERANCE, TIME_TOLERANCE};

/// The answer to one payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResultEnvelope {
    #[schemars(regex(pattern = ids::ID_PATTERN))]
    pub result_id: String,
    #[schemars(regex(pattern = ids::ID_PATTERN))]
    pub payload_id: String,
    #[schemars(regex(pattern = ids::ID_PATTERN))]
    pub worker_id: String,
    pub status: Status,
    /// Null when the status is ERROR.
    #[serde(default)]
    pub output: Value,
    /// Lowercase hexadecimal SHA-256 over the payload's id and the canonical JSON of the output.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub proof_of_work: String,
    /// The first lines of stderr.
    #[schemars(length(max = 100), inner(length(max = 1024)))]
    pub logs: Vec<String>,
    #[schemars(range(min = 0))]
    pub runtime_seconds: f64,
    #[schemars(range(min = 0))]
    pub cpu_seconds: f64,
    /// Null when nothing measured it.
    #[schemars(range(min = 0))]
    pub memory_used_mb: Option<f64>,
    /// Of the output as canonical JSON.
    #[schemars(range(min = 0))]
    pub output_size_kb: f64,
    pub error_message: Option<String>,
    /// RFC 3339, UTC.
    #[schemars(extend("format" = "date-time"))]
    pub completed_at: String,
    /// The rule that was broken; null when none was.
    pub verdict: Option<Verdict>,
    /// Per limit, what enforced it.
    pub enforced_by: Enforcement,
    /// What the program wrote before it failed or was stopped; null after success.
    pub partial_output: Option<PartialOutput>,
    /// By what this was made; older workers do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub produced_by: Option<ProducedBy>,
    /// Lowercase hexadecimal SHA-256 over what the program wrote to stdout; where the payload's `output_class` is `exact`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub stdout_sha256: Option<String>,
    /// The answer of an earlier run, given again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<CachedFrom>,
    /// A signed line about all of this that can stand alone; `cofferdam receipt check` reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = crate::receipt::LONGEST))]
    pub receipt: Option<String>,
}

/// What made an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProducedBy {
    #[schemars(length(max = 32))]
    pub engine_version: String,
    #[schemars(length(max = 32))]
    pub backend: String,
    /// How the run ended, in one word and its detail: `exited:0`, `stopped:memory`.
    #[schemars(length(max = 64))]
    pub ending: String,
    #[schemars(length(max = 64))]
    pub run_id: String,
}

/// Where an answer comes from that no run was made for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CachedFrom {
    /// The run that gave it first.
    #[schemars(length(max = 64))]
    pub run_id: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    Success,
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PartialOutput {
    pub stdout: CapturedStream,
    pub stderr: CapturedStream,
}

/// Who answers, and under which name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answerer {
    pub result_id: String,
    pub worker_id: String,
}

/// Of the engine that this is built into; the crates of the workspace have one version.
pub const ENGINE_VERSION: &str = env!("CARGO_PKG_VERSION");

pub const MAX_LOG_LINES: usize = 100;
pub const MAX_LOG_LINE_CHARACTERS: usize = 1024;

/// What the run amounts to, before it is put into an envelope.
struct Decision {
    output: Value,
    verdict: Option<Verdict>,
    /// None is success.
    error: Option<String>,
}

impl ResultEnvelope {
    /// Decides what a finished run amounts to. Deterministic: the same inputs give the same envelope, byte for byte.
    pub fn new(sealed: &Sealed, run: &RunRecord, by: Answerer) -> Result<Self, NotCanonical> {
        let payload = sealed.payload();
        let decision = bound_output(payload, decide(payload, run))?;
        let canonical_output = canonical::to_bytes(&decision.output)?;
        let partial = || PartialOutput {
            stdout: run.stdout.clone(),
            stderr: run.stderr.clone(),
        };
        Ok(Self {
            result_id: by.result_id,
            payload_id: payload.payload_id.clone(),
            worker_id: by.worker_id,
            status: if decision.error.is_none() {
                Status::Success
            } else {
                Status::Error
            },
            proof_of_work: proof_of_work(&payload.payload_id, &canonical_output),
            logs: logs(&run.stderr),
            runtime_seconds: run.usage.wall_ms / 1000.0,
            cpu_seconds: run.usage.cpu_ms / 1000.0,
            memory_used_mb: run.usage.memory_peak_bytes.map(|peak| per_unit(peak, 20)),
            output_size_kb: per_unit(byte_count(&canonical_output), 10),
            output: decision.output,
            partial_output: decision.error.is_some().then(partial),
            error_message: decision.error,
            completed_at: run.ended_at.clone(),
            verdict: decision.verdict,
            enforced_by: run.enforced_by.clone(),
            produced_by: Some(ProducedBy {
                engine_version: ENGINE_VERSION.to_owned(),
                backend: run.backend.clone(),
                ending: run.ending.brief(),
                run_id: run.run_id.clone(),
            }),
            stdout_sha256: (payload.output_class == OutputClass::Exact)
                .then(|| Digest::of(&run.stdout.bytes().unwrap_or_default()).hex()),
            cached: run.cached.clone(),
            receipt: None,
        })
    }

    /// Reads an envelope from a stranger; says everything that is wrong with its shape.
    pub fn parse(bytes: &[u8]) -> Result<Self, Problems> {
        let value = strict_json::parse(bytes).map_err(|error| {
            Problems::one(Problem::new("the envelope", "text", error.to_string()))
        })?;
        Problems::check(crate::schema::envelope_problems(&value))?;
        serde_json::from_value(value).map_err(|error| {
            Problems::one(Problem::new("the envelope", "a value", error.to_string()))
        })
    }

    /// Checks the answer against the payload it answers: every problem at once.
    pub fn check(&self, sealed: &Sealed) -> Result<(), Problems> {
        Problems::check(envelope_check::problems(self, sealed.payload()))
    }
}

/// Lowercase hexadecimal SHA-256 over the payload's id followed by the canonical JSON of the output.
pub fn proof_of_work(payload_id: &str, canonical_output: &[u8]) -> String {
    Digest::of(&[payload_id.as_bytes(), canonical_output].concat()).hex()
}

fn decide(payload: &ExecutionPayload, run: &RunRecord) -> Decision {
    let error = match &run.ending {
        Ending::Exited { code: 0 } => return decide_output(payload, run),
        Ending::Exited { code } => format!("the program returned {code}"),
        Ending::Signaled { signal } => format!("{} ended the program", signal_name(*signal)),
        Ending::Stopped(cause) => match cause.limit_name() {
            Some(limit) => format!("stopped: {}; raise {}", cause.reason(), limit_field(limit)),
            None => format!("stopped: {}", cause.reason()),
        },
        Ending::NeverStarted(failure) => {
            format!(
                "never started ({}) at `{}`: {}",
                failure.code(),
                failure.step,
                failure.message
            )
        }
    };
    let verdict = Verdict::on(&run.ending, &run.denials);
    Decision {
        output: Value::Null,
        verdict,
        error: Some(error),
    }
}

fn decide_output(payload: &ExecutionPayload, run: &RunRecord) -> Decision {
    match &payload.expected_output_format {
        OutputFormat::Anything if run.stdout.truncated => cut_off(payload, &run.stdout),
        OutputFormat::Anything => Decision {
            output: plain_output(&run.stdout),
            verdict: None,
            error: None,
        },
        OutputFormat::Schema(schema) => match read_json(&run.stdout) {
            Err(reason) => malformed(reason),
            Ok(output) => match Problems::check(schema.problems(&output)) {
                Ok(()) => Decision {
                    output,
                    verdict: None,
                    error: None,
                },
                Err(reasons) => malformed(reasons.to_string()),
            },
        },
    }
}

/// Half an answer is none. A run whose output passes the limit is stopped, so this is one whose output was kept only in part for another reason.
fn cut_off(payload: &ExecutionPayload, stdout: &CapturedStream) -> Decision {
    let limit = payload.limits.output.at_most();
    let evidence = format!(
        "stdout was cut off: the program wrote {} bytes and not all of them were kept",
        stdout.original_bytes
    );
    // A higher limit helps only where it was the limit.
    let fix = match limit {
        Some(limit) if limit.get() <= stdout.original_bytes => "raise max_output_size_kb",
        _ => "have the program write less, or write it to a file",
    };
    Decision {
        output: Value::Null,
        verdict: Some(Verdict {
            violation: Violation::OutputTooLarge,
            limit: limit.map(LimitValue::bytes),
            evidence: evidence.clone(),
        }),
        error: Some(format!("{evidence}; {fix}")),
    }
}

/// Text stays text; bytes that are none become an object that says so.
fn plain_output(stdout: &CapturedStream) -> Value {
    let stdout = match stdout.encoding {
        Encoding::Utf8 => json!(stdout.data),
        Encoding::Base64 => json!({ "base64": stdout.data }),
    };
    json!({ "stdout": stdout, "exit_code": 0 })
}

fn read_json(stdout: &CapturedStream) -> Result<Value, String> {
    if stdout.truncated {
        return Err("stdout was cut off, so it cannot be read as JSON".to_owned());
    }
    let bytes = stdout.bytes().unwrap_or_default();
    strict_json::parse(&bytes).map_err(|error| format!("stdout is not JSON: {error}"))
}

fn malformed(reasons: String) -> Decision {
    let evidence = format!("the output does not satisfy expected_output_format: {reasons}");
    let verdict = Verdict {
        violation: Violation::MalformedResult,
        limit: None,
        evidence: evidence.clone(),
    };
    Decision {
        output: Value::Null,
        verdict: Some(verdict),
        error: Some(evidence),
    }
}

/// JSON spells some bytes longer than the program wrote them; what counts is what travels.
fn bound_output(payload: &ExecutionPayload, decision: Decision) -> Result<Decision, NotCanonical> {
    let bytes = byte_count(&canonical::to_bytes(&decision.output)?);
    let Some(limit) = payload
        .limits
        .output
        .at_most()
        .filter(|limit| bytes > limit.get())
    else {
        return Ok(decision);
    };
    if decision.error.is_some() {
        return Ok(decision);
    }
    let evidence =
        format!("the output is {bytes} bytes as canonical JSON, above the limit of {limit}");
    Ok(Decision {
        output: Value::Null,
        verdict: Some(Verdict {
            violation: Violation::OutputTooLarge,
            limit: Some(LimitValue::bytes(limit)),
            evidence: evidence.clone(),
        }),
        error: Some(format!("{evidence}; raise max_output_size_kb")),
    })
}

fn logs(stderr: &CapturedStream) -> Vec<String> {
    let bytes = stderr.bytes().unwrap_or_default();
    let text: Cow<'_, str> = String::from_utf8_lossy(&bytes);
    let cut = |line: &str| line.chars().take(MAX_LOG_LINE_CHARACTERS).collect();
    text.lines().take(MAX_LOG_LINES).map(cut).collect()
}

pub(crate) fn byte_count(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Bytes in units of 2^shift, with the fraction.
pub(crate) fn per_unit(bytes: u64, shift: u32) -> f64 {
    bytes as f64 / (1u64 << shift) as f64
}

#[cfg(test)]
#[path = "envelope_tests.rs"]
pub(crate) mod tests;
