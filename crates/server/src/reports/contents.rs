//! What the reports say, made from how a run ended. Sends nothing.

use std::time::Duration;

use cofferdam_callback::message::{
    Artifact, ArtifactKind, ArtifactsReport, Metrics, ResultReport, ResultStatus, StatusReport,
};
use cofferdam_contract::ending::{Ending, Stream};
use cofferdam_contract::ending::{EndingRecord, StopCause};
use cofferdam_store::log::Chunk;
use cofferdam_store::model::{self, Outcome as StoredOutcome, StoredRun};
use jiff::Timestamp;

use crate::live::{Ended, Outcome};
use crate::routes::told;
use crate::view;

/// Why a run that was cancelled was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cancelled {
    ByClient,
    /// The daemon ends: not the client's doing, and worth another try.
    ByTheEnd,
}

/// A run that this daemon saw end.
pub(super) fn result(ended: &Ended, run_id: &str, cancelled: Cancelled) -> ResultReport {
    let finished = match &ended.outcome {
        Outcome::Finished(finished) => finished,
        Outcome::Failed(fault) => {
            let status = if fault.status.is_client_error() {
                ResultStatus::Failed
            } else {
                ResultStatus::Crashed
            };
            return unrun(status, format!("{}: {}", fault.code, fault.detail));
        }
        Outcome::Expired => {
            let why = "its deadline passed before its turn came";
            return unrun(ResultStatus::Timeout, why.to_owned());
        }
        Outcome::CanceledInQueue => {
            let why = "canceled before its turn came";
            return unrun(cancelled.status(), why.to_owned());
        }
    };
    let usage = &finished.record.usage;
    // The same words as the answer to whoever waits for it.
    let Some(told) = told(ended, run_id.to_owned(), None) else {
        return unrun(ResultStatus::Crashed, "it never ran".to_owned());
    };
    let status = match (told.status, &finished.record.ending) {
        ("success", _) => ResultStatus::Success,
        ("timeout", _) => ResultStatus::Timeout,
        (_, Ending::Stopped(StopCause::Canceled)) => cancelled.status(),
        (_, Ending::NeverStarted(_)) => ResultStatus::Crashed,
        _ => ResultStatus::Failed,
    };
    ResultReport {
        status,
        stdout: told.stdout,
        stderr: told.stderr,
        exit_code: told.exit_code,
        execution_time: milliseconds(usage.wall_ms),
        return_value: told.return_value,
        metrics: Metrics {
            duration: milliseconds(usage.wall_ms),
            cpu_time: Some(milliseconds(usage.cpu_ms)),
            peak_memory_bytes: usage.memory_peak_bytes,
            io_read_bytes: None,
            io_write_bytes: None,
        },
        artifacts: told.artifacts,
    }
}

/// What a killed daemon had seen and did not come to tell. `answers` where the program could have answered apart from its output: that answer is not in the history.
pub(super) fn recovered(run: &StoredRun, output: &[Chunk], answers: bool) -> ResultReport {
    let text = |stream, removed| {
        let captured = view::joined(output, stream, removed);
        String::from_utf8_lossy(&captured.bytes().unwrap_or_default()).into_owned()
    };
    let mut report = unrun(
        ResultStatus::Crashed,
        "the daemon was killed while it ran".to_owned(),
    );
    report.stdout = text(Stream::Stdout, run.log.stdout.removed);
    let told = text(Stream::Stderr, run.log.stderr.removed);
    let StoredOutcome::Ended(closing) = &run.outcome else {
        report.stderr = joined(told, &report.stderr);
        return report;
    };
    report.exit_code = closing.exit_code.unwrap_or(-1);
    report.execution_time = milliseconds(closing.usage.wall_ms);
    report.metrics = Metrics {
        duration: report.execution_time,
        cpu_time: Some(milliseconds(closing.usage.cpu_ms)),
        peak_memory_bytes: closing.usage.memory_peak_bytes,
        io_read_bytes: None,
        io_write_bytes: None,
    };
    let artifacts = closing.artifacts.iter();
    report.artifacts = artifacts.map(|artifact| artifact.path.clone()).collect();
    let status = view::status(&closing.ending, closing.exit_code);
    if answers && status == "success" {
        let why = "the daemon was killed before it had passed on the return value";
        report.stderr = joined(told, why);
        return report;
    }
    (report.status, report.stderr) = match (status, &closing.ending) {
        ("success", _) => (ResultStatus::Success, told),
        ("timeout", _) => (ResultStatus::Timeout, told),
        (_, EndingRecord::NeverStarted { message, .. }) => {
            (ResultStatus::Crashed, joined(told, message))
        }
        (_, EndingRecord::Stopped { detail, .. }) => (ResultStatus::Failed, joined(told, detail)),
        _ => (ResultStatus::Failed, told),
    };
    report
}

/// A run that cannot be found, or never ran.
pub(super) fn unrun(status: ResultStatus, why: String) -> ResultReport {
    ResultReport {
        status,
        stdout: String::new(),
        stderr: why,
        exit_code: -1,
        execution_time: Duration::ZERO,
        return_value: None,
        metrics: Metrics {
            duration: Duration::ZERO,
            cpu_time: None,
            peak_memory_bytes: None,
            io_read_bytes: None,
            io_write_bytes: None,
        },
        artifacts: Vec::new(),
    }
}

/// The change of state that goes with a result, where it is one that the protocol has.
pub(super) fn status(report: &ResultReport, at: Timestamp) -> Option<StatusReport> {
    let error = report.stderr.lines().last().map(str::to_owned);
    match report.status {
        ResultStatus::Timeout => Some(StatusReport::Timeout {
            timeout_at: at,
            error,
        }),
        ResultStatus::Crashed => Some(StatusReport::Crashed {
            crashed_at: at,
            error,
        }),
        ResultStatus::Success | ResultStatus::Failed => None,
    }
}

pub(super) fn artifacts_of(ended: &Ended) -> &[model::Artifact] {
    match &ended.outcome {
        Outcome::Finished(finished) => &finished.artifacts,
        Outcome::Failed(_) | Outcome::CanceledInQueue | Outcome::Expired => &[],
    }
}

/// `None` where nothing was left.
pub(super) fn artifacts(left: &[model::Artifact]) -> Option<ArtifactsReport> {
    let artifacts = left.iter().map(|artifact| Artifact {
        path: artifact.path.clone(),
        size: artifact.bytes,
        mime_type: artifact.media_type.clone(),
        kind: kind(&artifact.path),
        created_at: None,
        checksum: Some(artifact.digest.to_string()),
        download_url: None,
    });
    (!left.is_empty()).then(|| ArtifactsReport {
        artifacts: artifacts.collect(),
    })
}

fn kind(path: &str) -> ArtifactKind {
    if path.starts_with("output/") {
        ArtifactKind::Output
    } else if path.starts_with("logs/") || path.ends_with(".log") {
        ArtifactKind::Log
    } else {
        ArtifactKind::Artifact
    }
}

fn joined(mut text: String, line: &str) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
    text
}

fn milliseconds(time: f64) -> Duration {
    Duration::try_from_secs_f64(time / 1000.0).unwrap_or_default()
}

impl Cancelled {
    const fn status(self) -> ResultStatus {
        match self {
            Self::ByClient => ResultStatus::Failed,
            Self::ByTheEnd => ResultStatus::Crashed,
        }
    }
}
