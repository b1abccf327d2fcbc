//! `POST /execute`: the executor interface. Source code in, one result out; its own error names, its own statuses, the same runs underneath.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use cofferdam_contract::ending::{Ending, StopCause};
use cofferdam_contract::envelope::CachedFrom;
use cofferdam_contract::record::CapturedStream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::submit::{await_or_cancel, result, submit};
use crate::app::App;
use crate::auth::Caller;
use crate::body;
use crate::fault::{Fault, Refusal};
use crate::language::Answer;
use crate::live::{Ended, Outcome};
use crate::patience;
use crate::submission::{HandlerWish, LimitsRequest, RunRequest};
use crate::tokens::Scope;

/// Code to be executed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecuteRequest {
    /// At most 1 MiB.
    pub(crate) code: String,
    pub(crate) language: String,
    /// Seconds, 1 to 3600; 30 unless said.
    pub(crate) timeout: Option<u64>,
    /// What the handler is called with.
    pub(crate) event: Option<Value>,
    /// The same as a JSON text.
    pub(crate) stdin: Option<String>,
    /// The client's own name for it, given back in the answer, used in reports and kept with the run.
    pub(crate) execution_id: Option<String>,
    /// Where the result is sent as well; an address that the operator allows.
    pub(crate) callback_url: Option<String>,
    /// Not kept.
    #[allow(
        dead_code,
        reason = "accepted, because clients of this interface send it"
    )]
    pub(crate) session_id: Option<String>,
    #[serde(default)]
    pub(crate) env_vars: BTreeMap<String, String>,
    /// The image whose interpreter runs it, one of those that the operator allows.
    pub(crate) image: Option<String>,
    /// The same answer each time: one that is known may be given instead of a run.
    #[serde(default)]
    pub(crate) pure: bool,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct ExecuteAnswer {
    pub(crate) execution_id: Option<String>,
    pub(crate) run_id: String,
    /// `success`, `failed`, `timeout` or `error`.
    pub(crate) status: &'static str,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// -1 where the program did not end by itself.
    pub(crate) exit_code: i32,
    /// Seconds.
    pub(crate) execution_time: f64,
    pub(crate) return_value: Option<Value>,
    pub(crate) metrics: ExecuteMetrics,
    pub(crate) artifacts: Vec<String>,
    /// The run that gave this answer first, where no run was made for it; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cached: Option<CachedFrom>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct ExecuteMetrics {
    pub(crate) duration_ms: f64,
    pub(crate) cpu_time_ms: f64,
    pub(crate) peak_memory_mb: Option<f64>,
}

const MAX_CODE: usize = 1 << 20;
const DEFAULT_TIMEOUT: u64 = 30;
const MAX_TIMEOUT: u64 = 3600;
const OUTPUT: u64 = 10 << 20;

pub(super) async fn execute(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Fault> {
    answer(&app, &caller, &headers, body).await.map_err(renamed)
}

async fn answer(
    app: &Arc<App>,
    caller: &Caller,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Fault> {
    caller.must(Scope::Run)?;
    let (bytes, room) = body::read(headers, body, app.body_bounds()).await?;
    let request: ExecuteRequest = body::parsed(&bytes).await?;
    drop(bytes);
    let execution_id = request.execution_id.clone();
    let request = request.into_run(app.runner.bounds().longest)?;
    let (mut submission, known) = app.check_one(request, caller, headers).await?;
    if let Some(ended) = known {
        let room = app.answers.room(ended.weight()).await?;
        let run_id = ended.run_id().to_owned();
        return room
            .json(StatusCode::OK, move || told(&ended, run_id, execution_id))
            .await;
    }
    room.shrink_to(submission.work.weight());
    submission.work.room = Some(room);
    submission.origin.place = patience::place(app, caller, app.config.runs.patience.execute).await;
    let live = submit(app, submission, caller).await?;
    await_or_cancel(app, &live).await;
    let run_id = live.id.to_string();
    let (ended, room) = result(app, live).await?;
    check_ran(&ended, &run_id)?;
    room.json(StatusCode::OK, move || told(&ended, run_id, execution_id))
        .await
}

impl ExecuteRequest {
    fn into_run(self, longest: Duration) -> Result<RunRequest, Fault> {
        if self.code.len() > MAX_CODE {
            return Err(Fault::invalid(
                "code",
                self.code.len(),
                "is longer than 1048576 bytes",
            ));
        }
        let default = || DEFAULT_TIMEOUT.min(longest.as_secs().max(1));
        let timeout = self.timeout.unwrap_or_else(default);
        if !(1..=MAX_TIMEOUT).contains(&timeout) {
            return Err(Fault::invalid("timeout", timeout, "use 1 to 3600 seconds"));
        }
        let event = match (self.event, self.stdin) {
            (Some(_), Some(_)) => {
                return Err(Fault::invalid(
                    "stdin",
                    "",
                    "is given beside event; give one of them",
                ));
            }
            (event, None) => event,
            (None, Some(text)) => Some(body::parse(text.as_bytes()).map_err(|mut fault| {
                fault.detail = format!("stdin: {}", fault.detail);
                fault
            })?),
        };
        Ok(RunRequest {
            language: Some(self.language),
            code: Some(self.code),
            event: event.or_else(|| Some(Value::Object(Default::default()))),
            env: self.env_vars,
            limits: LimitsRequest {
                wall_time_ms: Some(timeout * 1000),
                cpu_time_ms: Some(timeout * 1000),
                output_bytes: Some(OUTPUT),
                ..LimitsRequest::default()
            },
            handler: HandlerWish::IfThere,
            execution_id: self.execution_id,
            callback_url: self.callback_url,
            wait: true,
            image: self.image,
            pure: self.pure,
            ..RunRequest::default()
        })
    }
}

fn check_ran(ended: &Ended, run_id: &str) -> Result<(), Fault> {
    match &ended.outcome {
        Outcome::Finished(_) => Ok(()),
        Outcome::Failed(fault) => Err(fault.clone()),
        Outcome::Expired => Err(Refusal::DeadlinePassed.because(format!("run {run_id}"))),
        Outcome::CanceledInQueue => {
            Err(Refusal::RunEnded.because(format!("run {run_id} was cancelled")))
        }
    }
}

/// How it ended, in the words of this interface. `None` for what never came to the engine; [`check_ran`] has refused that.
pub(crate) fn told(
    ended: &Ended,
    run_id: String,
    execution_id: Option<String>,
) -> Option<ExecuteAnswer> {
    let Outcome::Finished(finished) = &ended.outcome else {
        return None;
    };
    let record = &finished.record;
    let (status, why) = match &record.ending {
        Ending::Exited { code: 0 } => ("success", None),
        Ending::Exited { .. } | Ending::Signaled { .. } => ("failed", None),
        Ending::Stopped(cause @ StopCause::WallTime { .. }) => ("timeout", Some(cause.explain())),
        Ending::Stopped(cause) => ("error", Some(cause.explain())),
        Ending::NeverStarted(failure) => ("error", Some(failure.message.clone())),
    };
    let mut stderr = text(&record.stderr);
    let (status, raised) = match &finished.answer {
        Answer::None | Answer::Value(_) => (status, None),
        // The shims print what was thrown.
        Answer::Raised(raised) if !stderr.contains(&raised.message) => (
            failed(status),
            Some(format!("{}: {}", raised.kind, raised.message)),
        ),
        Answer::Raised(_) => (failed(status), None),
        Answer::Bad { why } => (failed(status), Some(why.clone())),
    };
    for line in raised.into_iter().chain(why) {
        if !stderr.is_empty() && !stderr.ends_with('\n') {
            stderr.push('\n');
        }
        stderr.push_str(&line);
        stderr.push('\n');
    }
    Some(ExecuteAnswer {
        execution_id,
        run_id,
        status,
        stdout: text(&record.stdout),
        stderr,
        exit_code: record.exit_code.unwrap_or(-1),
        execution_time: record.usage.wall_ms / 1000.0,
        return_value: match &finished.answer {
            Answer::Value(value) if status == "success" => Some(value.clone()),
            _ => None,
        },
        metrics: ExecuteMetrics {
            duration_ms: record.usage.wall_ms,
            cpu_time_ms: record.usage.cpu_ms,
            peak_memory_mb: record
                .usage
                .memory_peak_bytes
                .map(|bytes| bytes as f64 / f64::from(1 << 20)),
        },
        artifacts: finished
            .artifacts
            .iter()
            .map(|artifact| artifact.path.clone())
            .collect(),
        cached: record.cached.clone(),
    })
}

/// A handler that did not answer has not succeeded, whatever its program returned.
fn failed(status: &'static str) -> &'static str {
    match status {
        "success" => "failed",
        other => other,
    }
}

/// This interface has text only; bytes that are none are shown as U+FFFD.
fn text(stream: &CapturedStream) -> String {
    String::from_utf8_lossy(&stream.bytes().unwrap_or_default()).into_owned()
}

/// The names that clients of this interface know, where it has one.
fn renamed(mut fault: Fault) -> Fault {
    fault.code = match fault.status {
        StatusCode::BAD_REQUEST => "Executor.ValidationError",
        StatusCode::INTERNAL_SERVER_ERROR => "Executor.InternalError",
        _ if fault.code == Refusal::QueueFull.code() => "Executor.QueueFull",
        _ => fault.code,
    };
    fault
}
