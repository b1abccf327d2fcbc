//! Checks an answer against the payload it claims to answer. Believes only what it can recompute: proof, sizes, schema; and holds
//! the rest against the limits.

use std::time::Duration;

use serde_json::Value;

use crate::canonical;
use crate::envelope::{
    MAX_LOG_LINE_CHARACTERS, MAX_LOG_LINES, ResultEnvelope, Status, byte_count, per_unit,
    proof_of_work,
};
use crate::ids::id_problem;
use crate::output_class::OutputClass;
use crate::output_format::OutputFormat;
use crate::payload::{ExecutionPayload, parse_utc};
use crate::problem::Problem;
use crate::units::Bytes;
use crate::verdict::Violation;

/// How far measured times may lie above their limit without a verdict: the clock is read after the program is gone.
pub const TIME_TOLERANCE: Duration = Duration::from_millis(500);

/// How far measured memory may lie above its limit without a verdict: the kernel charges in batches of pages per CPU.
pub const MEMORY_TOLERANCE: Bytes = Bytes::new(1 << 20);

/// Two ways to divide by 1024 may differ in the last digit.
const SIZE_TOLERANCE_KB: f64 = 1e-6;

pub(crate) fn problems(envelope: &ResultEnvelope, payload: &ExecutionPayload) -> Vec<Problem> {
    let mut found = Vec::new();
    check_ids(envelope, payload, &mut found);
    check_status(envelope, &mut found);
    check_ending(envelope, &mut found);
    check_usage(envelope, payload, &mut found);
    check_output(envelope, payload, &mut found);
    check_partial(envelope, &mut found);
    check_logs(envelope, &mut found);
    check_bytes(envelope, payload, &mut found);
    if parse_utc(&envelope.completed_at).is_none() {
        let fix = "is not an RFC 3339 time in UTC; write one such as 2026-01-31T12:00:00Z";
        found.push(Problem::new("completed_at", &envelope.completed_at, fix));
    }
    found
}

fn check_ids(envelope: &ResultEnvelope, payload: &ExecutionPayload, found: &mut Vec<Problem>) {
    for (field, id) in [
        ("result_id", &envelope.result_id),
        ("worker_id", &envelope.worker_id),
    ] {
        if let Some(fix) = id_problem(id) {
            found.push(Problem::new(field, id, fix));
        }
    }
    if envelope.payload_id != payload.payload_id {
        let fix = format!(
            "answers another payload; this one is {}",
            payload.payload_id
        );
        found.push(Problem::new("payload_id", &envelope.payload_id, fix));
    }
}

fn check_status(envelope: &ResultEnvelope, found: &mut Vec<Problem>) {
    match envelope.status {
        Status::Success => {
            if let Some(verdict) = &envelope.verdict {
                let fix = "contradicts the status SUCCESS; a broken rule is an ERROR";
                found.push(Problem::new("verdict", verdict.violation.as_str(), fix));
            }
            if let Some(message) = &envelope.error_message {
                let fix = "contradicts the status SUCCESS; leave it out";
                found.push(Problem::new("error_message", message, fix));
            }
        }
        Status::Error => {
            if envelope.error_message.as_deref().is_none_or(str::is_empty) {
                let fix = "is missing; an ERROR says what went wrong";
                found.push(Problem::new("error_message", "nothing", fix));
            }
            if envelope.output != Value::Null {
                let fix =
                    "is there although the status is ERROR; leave it null and use partial_output";
                found.push(Problem::new("output", &envelope.output, fix));
            }
        }
    }
}

/// What is said about how the run ended excuses a difference from another answer, so it must be what this status and verdict come from: who was stopped gives no output.
fn check_ending(envelope: &ResultEnvelope, found: &mut Vec<Problem>) {
    let Some(by) = &envelope.produced_by else {
        return;
    };
    let violation = envelope.verdict.as_ref().map(|verdict| verdict.violation);
    let fits = match (by.ending.split_once(':'), envelope.status) {
        (Some(("exited", "0")), Status::Success) => true,
        // It ended well, and its output was no answer.
        (Some(("exited", "0")), Status::Error) => matches!(
            violation,
            Some(Violation::MalformedResult | Violation::OutputTooLarge)
        ),
        (Some(("exited" | "signaled", _)), Status::Error) => matches!(
            violation,
            None | Some(Violation::NetworkViolation | Violation::FilesystemViolation)
        ),
        (Some(("stopped", cause)), Status::Error) => {
            violation.is_some() && violation == Violation::of_stop(cause)
        }
        (Some(("never_started", _)), Status::Error) => violation.is_none(),
        (_, Status::Success | Status::Error) => false,
    };
    if !fits {
        let status = match envelope.status {
            Status::Success => "SUCCESS",
            Status::Error => "ERROR",
        };
        let verdict = violation.map_or("no verdict", Violation::as_str);
        let fix = format!(
            "contradicts the status {status} with {verdict}; write how the run ended, as exited:0"
        );
        found.push(Problem::new("produced_by.ending", &by.ending, fix));
    }
}

/// One measured figure and the limit it is held against.
struct Figure {
    field: &'static str,
    used: f64,
    limit: Option<f64>,
    tolerance: f64,
    /// The verdict that excuses it: the worker admits that the limit was exceeded.
    excused_by: Option<Violation>,
}

fn check_usage(envelope: &ResultEnvelope, payload: &ExecutionPayload, found: &mut Vec<Problem>) {
    let limits = &payload.limits;
    let megabytes = |bytes: Bytes| per_unit(bytes.get(), 20);
    let figures = [
        Figure {
            field: "runtime_seconds",
            used: envelope.runtime_seconds,
            limit: limits.wall_time.at_most().map(|limit| limit.as_secs_f64()),
            tolerance: TIME_TOLERANCE.as_secs_f64(),
            excused_by: Some(Violation::Timeout),
        },
        Figure {
            field: "cpu_seconds",
            used: envelope.cpu_seconds,
            limit: limits.cpu_time.at_most().map(|limit| limit.as_secs_f64()),
            tolerance: TIME_TOLERANCE.as_secs_f64(),
            excused_by: Some(Violation::CpuLimitExceeded),
        },
        Figure {
            field: "memory_used_mb",
            used: envelope.memory_used_mb.unwrap_or(0.0),
            limit: limits.memory.at_most().map(megabytes),
            tolerance: megabytes(MEMORY_TOLERANCE),
            excused_by: Some(Violation::MemoryLimitExceeded),
        },
        Figure {
            field: "output_size_kb",
            used: envelope.output_size_kb,
            limit: limits
                .output
                .at_most()
                .map(|limit| per_unit(limit.get(), 10)),
            tolerance: 0.0,
            // Nothing: an output that is too large is left out of the envelope.
            excused_by: None,
        },
    ];
    let admitted = envelope.verdict.as_ref().map(|verdict| verdict.violation);
    found.extend(figures.iter().filter_map(|figure| figure.problem(admitted)));
}

impl Figure {
    fn problem(&self, admitted: Option<Violation>) -> Option<Problem> {
        // NaN is no figure either; it cannot come from JSON, but from a caller.
        if !self.used.is_finite() || self.used < 0.0 {
            return Some(Problem::new(
                self.field,
                self.used,
                "is not a measured figure; write what was used, 0 or more",
            ));
        }
        let limit = self
            .limit
            .filter(|limit| self.used > limit + self.tolerance)?;
        if admitted.is_some() && admitted == self.excused_by {
            return None;
        }
        let fix = format!(
            "is above the payload's limit of {limit} (tolerance {})",
            self.tolerance
        );
        Some(Problem::new(self.field, self.used, fix))
    }
}

fn check_output(envelope: &ResultEnvelope, payload: &ExecutionPayload, found: &mut Vec<Problem>) {
    let canonical_output = match canonical::to_bytes(&envelope.output) {
        Ok(bytes) => bytes,
        Err(error) => {
            found.push(Problem::new("output", &envelope.output, error.to_string()));
            return;
        }
    };
    let size = per_unit(byte_count(&canonical_output), 10);
    // Not `>`: a figure that is no number must fail here too.
    let agrees = (envelope.output_size_kb - size).abs() <= SIZE_TOLERANCE_KB;
    if !agrees {
        let fix = format!("is not the size of the output, which is {size}");
        found.push(Problem::new("output_size_kb", envelope.output_size_kb, fix));
    }
    let proof = proof_of_work(&envelope.payload_id, &canonical_output);
    if envelope.proof_of_work != proof {
        let fix = format!("is not the proof of this output, which is {proof}");
        found.push(Problem::new("proof_of_work", &envelope.proof_of_work, fix));
    }
    if envelope.status == Status::Success
        && let OutputFormat::Schema(schema) = &payload.expected_output_format
    {
        let in_output = |problem: Problem| Problem {
            field: format!("output: {}", problem.field),
            ..problem
        };
        found.extend(schema.problems(&envelope.output).into_iter().map(in_output));
    }
}

/// The hash of what was written, where the payload wants it and as far as it can be made again from the output.
fn check_bytes(envelope: &ResultEnvelope, payload: &ExecutionPayload, found: &mut Vec<Problem>) {
    let is_wanted = payload.output_class == OutputClass::Exact;
    match &envelope.stdout_sha256 {
        None if is_wanted && envelope.status == Status::Success => {
            let fix = "is missing; the payload compares the bytes of its output";
            found.push(Problem::new("stdout_sha256", "nothing", fix));
        }
        Some(hash) if envelope.status == Status::Success => {
            let plain = match payload.expected_output_format {
                OutputFormat::Anything => written(&envelope.output),
                OutputFormat::Schema(_) => None,
            };
            let hashed = plain.map(|bytes| canonical::Digest::of(&bytes).hex());
            if hashed.is_some_and(|hashed| hashed != *hash) {
                let fix = "is not the hash of the output's stdout";
                found.push(Problem::new("stdout_sha256", hash, fix));
            }
        }
        None | Some(_) => {}
    }
}

/// What the program wrote, out of an output that is nothing else.
fn written(output: &Value) -> Option<Vec<u8>> {
    match output.get("stdout")? {
        Value::String(text) => Some(text.clone().into_bytes()),
        encoded => {
            let base64 = encoded.get("base64")?.as_str()?;
            data_encoding::BASE64.decode(base64.as_bytes()).ok()
        }
    }
}

fn check_partial(envelope: &ResultEnvelope, found: &mut Vec<Problem>) {
    let Some(partial) = &envelope.partial_output else {
        return;
    };
    for (field, stream) in [
        ("partial_output.stdout", &partial.stdout),
        ("partial_output.stderr", &partial.stderr),
    ] {
        if stream.bytes().is_none() {
            let fix = "is not the base64 that its encoding says; encode it again";
            found.push(Problem::new(field, &stream.data, fix));
        }
    }
}

fn check_logs(envelope: &ResultEnvelope, found: &mut Vec<Problem>) {
    let lines = envelope.logs.len();
    if lines > MAX_LOG_LINES {
        let fix = format!("has more than {MAX_LOG_LINES} lines; keep the first");
        found.push(Problem::new("logs", format!("{lines} lines"), fix));
    }
    // One is enough to refuse, and a million lines would make a million problems.
    let long = |line: &&String| line.chars().nth(MAX_LOG_LINE_CHARACTERS).is_some();
    if let Some((i, line)) = envelope
        .logs
        .iter()
        .enumerate()
        .find(|(_, line)| long(line))
    {
        let fix = format!("is longer than {MAX_LOG_LINE_CHARACTERS} characters; cut it");
        found.push(Problem::new(format!("logs[{i}]"), line, fix));
    }
}
