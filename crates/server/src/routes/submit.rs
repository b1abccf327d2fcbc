//! Sending work: one run, several, or a sealed payload.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use cofferdam_contract::codes::ErrorCode;
use cofferdam_store::RunId;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::{App, RequestId};
use crate::auth::Caller;
use crate::body;
use crate::fault::{ErrorBody, Fault, Refusal};
use crate::idempotency::{Key, KeyUse};
use crate::live::{Live, Outcome};
use crate::payload;
use crate::submission::{BatchRequest, RunRequest, Submission};
use crate::tokens::Scope;
use crate::trace;
use crate::view::RunView;

/// What became of a batch, in its order.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BatchAnswer {
    pub(crate) runs: Vec<BatchItem>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum BatchItem {
    Run(Box<RunView>),
    /// It was not taken on.
    Refused {
        error: ErrorBody,
    },
}

const MAX_BATCH: usize = 100;

pub(super) async fn run(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Fault> {
    caller.must(Scope::Run)?;
    let (bytes, room) = body::read(&headers, body, app.body_bounds()).await?;
    let mut request: RunRequest = body::parse(&bytes)?;
    let wait = request.wait;
    let key = Key::of(&headers, &caller.id)?;
    request.has_key = key.is_some();
    let mut submission = app.check_one(request).await?;
    submission.work.room = Some(room);
    let Some(key) = key else {
        let live = submit(&app, submission, &caller).await?;
        if wait {
            await_or_cancel(&app, &live).await;
        }
        return Ok(answer(&live, &request_id));
    };
    let of_thread = Arc::clone(&app);
    let id = unblocked(move || {
        submission.origin.key = Some(KeyUse::new(&key, &bytes));
        of_thread.keys.once(key, &bytes, || {
            let live = of_thread.submit(submission, &caller)?;
            Ok(live.id)
        })
    })
    .await?;
    match app.runner.find(id) {
        Some(live) => {
            if wait {
                live.ended().await;
            }
            Ok(answer(&live, &request_id))
        }
        // Long ended.
        None => stored(&app, id).await,
    }
}

pub(super) async fn batch(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Fault> {
    caller.must(Scope::Run)?;
    let (bytes, room) = body::read(&headers, body, app.body_bounds()).await?;
    let mut request: BatchRequest = body::parse(&bytes)?;
    if request.runs.is_empty() || request.runs.len() > MAX_BATCH {
        let fix = format!("send 1 to {MAX_BATCH} runs");
        return Err(Fault::invalid("runs", request.runs.len(), &fix));
    }
    for run in &mut request.runs {
        run.wait = request.wait;
    }
    let submissions = app.check(request.runs).await?;
    let (mut taken, mut guards) = (Vec::new(), Vec::new());
    for mut submission in submissions {
        submission.work.room = Some(room.clone());
        let one = submit(&app, submission, &caller).await;
        if request.wait {
            guards.extend(one.iter().map(|live| app.abandoned(live)));
        }
        taken.push(one);
    }
    if request.wait {
        for live in taken.iter().flatten() {
            live.ended().await;
        }
        for guard in guards {
            guard.disarm();
        }
    }
    let runs = taken.into_iter().map(|taken| match taken {
        Ok(live) => BatchItem::Run(Box::new(RunView::of_live(&live, &request_id))),
        Err(fault) => BatchItem::Refused {
            error: fault.body(&request_id),
        },
    });
    let answer = BatchAnswer {
        runs: runs.collect(),
    };
    let status = if request.wait {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    Ok((status, Json(answer)).into_response())
}

pub(super) async fn payload(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Fault> {
    caller.must(Scope::Run)?;
    let (bytes, room) = body::read(&headers, body, app.body_bounds()).await?;
    let (sealed, mut submission) = payload::check(&bytes, app.runner.bounds())?;
    submission.work.room = Some(room);
    let live = submit(&app, submission, &caller).await?;
    let ended = await_or_cancel(&app, &live).await;
    let Some(ended) = ended else {
        return Err(Fault::internal("the run was lost"));
    };
    let envelope = match &ended.outcome {
        Outcome::Finished(finished) => payload::envelope(&sealed, &finished.record)?,
        Outcome::Failed(fault) => return Err(fault.clone()),
        Outcome::Expired => return Err(Refusal::DeadlinePassed.because(format!("run {}", live.id))),
        Outcome::CanceledInQueue => {
            let detail = format!("run {} was cancelled before its turn came", live.id);
            return Err(Refusal::RunEnded.because(detail));
        }
    };
    let mut response = Json(envelope).into_response();
    if let Ok(id) = HeaderValue::from_str(&live.id.to_string()) {
        response.headers_mut().insert("x-run-id", id);
    }
    Ok(response)
}

/// What is to be on the disk first is written on a thread that may block.
pub(super) async fn submit(
    app: &Arc<App>,
    submission: Submission,
    caller: &Caller,
) -> Result<Arc<Live>, Fault> {
    if !app.runner.promises(&submission) {
        return app.submit(submission, caller);
    }
    let (app, caller) = (Arc::clone(app), caller.clone());
    let outlives = submission.origin.request.is_some();
    let (live, guard) = unblocked(move || {
        let live = app.submit(submission, &caller)?;
        // Nobody may be there any more to hear of it.
        let guard = (!outlives).then(|| app.abandoned(&live));
        Ok((live, guard))
    })
    .await?;
    if let Some(guard) = guard {
        guard.disarm();
    }
    Ok(live)
}

async fn unblocked<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let trace = trace::current();
    let done = tokio::task::spawn_blocking(|| trace::carried(trace, work)).await;
    done.unwrap_or_else(|_| Err(Fault::internal("a fault of the daemon; its log says more")))
}

/// Nobody else knows this run: when its client goes, it goes.
pub(super) async fn await_or_cancel(
    app: &App,
    live: &Arc<Live>,
) -> Option<Arc<crate::live::Ended>> {
    let guard = app.abandoned(live);
    let ended = live.ended().await;
    guard.disarm();
    ended
}

/// 200 with the result, 202 before there is one, the engine's own error where it could not be run.
fn answer(live: &Live, request_id: &str) -> Response {
    let view = RunView::of_live(live, request_id);
    let location = HeaderValue::from_str(&format!("/v1/runs/{}", live.id));
    let mut response = match live.phase() {
        crate::live::Phase::Ended(ended) => match &ended.outcome {
            Outcome::Failed(fault) => fault.clone().into_response(),
            Outcome::Expired => Refusal::DeadlinePassed
                .because(format!("run {}", live.id))
                .into_response(),
            Outcome::Finished(_) | Outcome::CanceledInQueue => Json(view).into_response(),
        },
        _ => (StatusCode::ACCEPTED, Json(view)).into_response(),
    };
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

async fn stored(app: &Arc<App>, id: RunId) -> Result<Response, Fault> {
    let view = app
        .blocking(move |app| {
            app.archive
                .read_run(|history| Ok(RunView::of_stored(history.get(id)?, &history.output(id)?)))
        })
        .await
        .map_err(|fault| match fault.code {
            code if code == ErrorCode::HistoryNotFound.as_str() => Fault::coded(
                ErrorCode::HistoryNotFound,
                format!("run {id} was removed from the history"),
            ),
            _ => fault,
        })?;
    Ok(Json(view).into_response())
}
