//! Sending work: one run, several, or a sealed payload.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::envelope::ResultEnvelope;
use cofferdam_contract::seal::Sealed;
use cofferdam_store::model::StoredRun;
use cofferdam_store::{RunId, StoreError};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::answers::AnswerRoom;
use crate::app::{App, RequestId};
use crate::auth::Caller;
use crate::body::{self, Form};
use crate::fault::{ErrorBody, Fault, Refusal};
use crate::idempotency::{Key, KeyUse};
use crate::live::{Ended, Live, Outcome, Phase};
use crate::patience;
use crate::payload;
use crate::submission::{BatchRequest, RunRequest, Submission};
use crate::tokens::Scope;
use crate::trace;
use crate::upload;
use crate::view::{AskedView, RunView};

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
/// The part of the room for answers that one answer to a batch may take. Output beyond it stays at `/v1/runs/{id}`.
const BATCH_SHARE: u64 = 8;

pub(super) async fn run(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Fault> {
    caller.must(Scope::Run)?;
    let form = body::form(&headers)?;
    let (bytes, room) = body::whole(body, app.body_bounds()).await?;
    let (mut request, identity) = match form {
        Form::Json => (body::parsed::<RunRequest>(&bytes).await?, bytes),
        Form::Parts { boundary } => {
            let uploaded = upload::read(bytes, boundary).await?;
            (uploaded.request, uploaded.identity.into())
        }
    };
    let wait = request.wait;
    let key = Key::of(&headers, &caller.id)?;
    request.has_key = key.is_some();
    let (mut submission, known) = app.check_one(request, &caller, &headers).await?;
    if let Some(ended) = known {
        return known_answer(&app, submission, ended, request_id).await;
    }
    submission.origin.place = patience::place(&app, &caller, app.config.runs.patience.runs).await;
    let Some(key) = key else {
        drop(identity);
        room.shrink_to(submission.work.weight());
        submission.work.room = Some(room);
        let live = submit(&app, submission, &caller).await?;
        if wait {
            await_or_cancel(&app, &live).await;
        }
        return answer(&app, live, &request_id).await;
    };
    let weight = submission.work.weight();
    submission.work.room = Some(room.clone());
    let of_thread = Arc::clone(&app);
    let id = unblocked(move || {
        submission.origin.key = Some(KeyUse::new(&key, &identity));
        of_thread.keys.once(key, &identity, || {
            let live = of_thread.submit(submission, &caller)?;
            Ok(live.id)
        })
    })
    .await?;
    room.shrink_to(weight);
    drop(room);
    match app.runner.find(id) {
        Some(live) => {
            if wait {
                live.ended().await;
            }
            answer(&app, live, &request_id).await
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
    let mut request: BatchRequest = body::parsed(&bytes).await?;
    drop(bytes);
    if request.runs.is_empty() || request.runs.len() > MAX_BATCH {
        let fix = format!("send 1 to {MAX_BATCH} runs");
        return Err(Fault::invalid("runs", request.runs.len(), &fix));
    }
    for run in &mut request.runs {
        run.wait = request.wait;
    }
    let submissions = app.check(request.runs).await?;
    room.shrink_to(submissions.iter().map(|one| one.work.weight()).sum());
    let mut taken = Vec::new();
    let mut waiting = JoinSet::new();
    for mut submission in submissions {
        submission.work.room = Some(room.clone());
        let live = submit(&app, submission, &caller).await;
        taken.push(live.as_ref().map(|live| live.id).map_err(Fault::clone));
        if let (true, Ok(live)) = (request.wait, live) {
            // Holds the run until its end and no longer: its result is remembered with the others, or history.
            let guard = app.abandoned(&live);
            waiting.spawn(async move {
                live.ended().await;
                guard.disarm();
            });
        }
    }
    drop(room);
    // When the client goes, the set goes, and with it all that still wait.
    while waiting.join_next().await.is_some() {}
    let status = if request.wait {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    let ids = taken.iter().flatten();
    let weights = ids.filter_map(|id| app.runner.find(*id).map(|live| result_weight(&live)));
    let weight = weights.sum::<usize>().min(largest_batch(&app));
    // Without room for what they wrote, the runs come without it: whoever waited for them learns how they ended.
    let (room, left) = match app.answers.room(weight).await {
        Ok(room) => (room, largest_batch(&app)),
        Err(_) => (app.answers.room(0).await?, 0),
    };
    let made = Arc::clone(&app);
    // However small it is: what is remembered no more is read from the disk.
    let making = move || batch_answer(&made, taken, left, &request_id);
    let answer = tokio::task::spawn_blocking(making).await;
    let answer = answer.map_err(|_| Fault::internal("a fault of the daemon; its log says more"))?;
    room.json(status, move || answer).await
}

/// In the order of the requests. After `left` bytes of output, the rest is left where it is.
fn batch_answer(
    app: &App,
    taken: Vec<Result<RunId, Fault>>,
    mut left: usize,
    request_id: &str,
) -> BatchAnswer {
    let mut item = |taken: Result<RunId, Fault>| {
        let id = match taken {
            Ok(id) => id,
            Err(fault) => {
                return BatchItem::Refused {
                    error: fault.body(request_id),
                };
            }
        };
        let weight;
        let mut view = match app.runner.find(id) {
            Some(live) => {
                weight = result_weight(&live);
                RunView::of_live(&live, request_id)
            }
            None => match from_history(app, id, left) {
                Ok((view, size)) => {
                    weight = size;
                    view
                }
                Err(error) => {
                    return BatchItem::Refused {
                        error: Fault::from(error).body(request_id),
                    };
                }
            },
        };
        match left.checked_sub(weight) {
            Some(rest) => left = rest,
            None => view = view.without_output(),
        }
        BatchItem::Run(Box::new(view))
    };
    BatchAnswer {
        runs: taken.into_iter().map(&mut item).collect(),
    }
}

fn largest_batch(app: &App) -> usize {
    let bytes = app.config.http.answers.get() / BATCH_SHARE;
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A run that is remembered no more, with its output if that is no more than `left`, and how large that is.
fn from_history(app: &App, id: RunId, left: usize) -> Result<(RunView, usize), StoreError> {
    app.archive.read_run(|history| {
        let run = history.get(id)?;
        let size = kept_bytes(&run);
        let output = if size <= left {
            history.output(id)?
        } else {
            Vec::new()
        };
        Ok((RunView::of_stored(run, &output), size))
    })
}

pub(super) async fn payload(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Fault> {
    caller.must(Scope::Run)?;
    let (bytes, room) = body::read(&headers, body, app.body_bounds()).await?;
    let checked = app.check_payload(bytes, &caller, &headers).await?;
    let (sealed, mut submission, known) = checked;
    if let Some(ended) = known {
        let room = app.answers.room(ended.weight()).await?;
        let id = ended.run_id().to_owned();
        return envelope(sealed, Arc::new(ended), room, id).await;
    }
    submission.origin.place = patience::place(&app, &caller, app.config.runs.patience.runs).await;
    submission.work.room = Some(room);
    let live = submit(&app, submission, &caller).await?;
    await_or_cancel(&app, &live).await;
    let id = live.id;
    let (ended, room) = result(&app, live).await?;
    match &ended.outcome {
        Outcome::Finished(_) => {}
        Outcome::Failed(fault) => return Err(fault.clone()),
        Outcome::Expired => return Err(Refusal::DeadlinePassed.because(format!("run {id}"))),
        Outcome::CanceledInQueue => {
            let detail = format!("run {id} was cancelled before its turn came");
            return Err(Refusal::RunEnded.because(detail));
        }
    }
    envelope(sealed, ended, room, id.to_string()).await
}

async fn envelope(
    sealed: Arc<Sealed>,
    ended: Arc<Ended>,
    room: AnswerRoom,
    id: String,
) -> Result<Response, Fault> {
    let making = tokio::task::spawn_blocking(move || match &ended.outcome {
        Outcome::Finished(finished) => match &finished.envelope {
            Some(envelope) => Ok(ResultEnvelope::clone(envelope)),
            None => payload::envelope(&sealed, &finished.record),
        },
        _ => Err(Fault::internal("the run was lost")),
    });
    let made = making.await;
    let envelope =
        made.unwrap_or_else(|_| Err(Fault::internal("a fault of the daemon; its log says more")))?;
    let mut response = room.json(StatusCode::OK, move || envelope).await?;
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-run-id", id);
    }
    Ok(response)
}

/// What another run gave before, in the form of a run.
async fn known_answer(
    app: &App,
    submission: Submission,
    ended: Ended,
    request_id: String,
) -> Result<Response, Fault> {
    let asked = AskedView {
        execution_id: submission.origin.execution_id,
        kind: submission.work.kind.as_str().to_owned(),
        command: submission.work.command_line(),
    };
    let room = app.answers.room(ended.weight()).await?;
    let view = RunView::of_known(&ended, asked, &request_id);
    let location = HeaderValue::from_str(&format!("/v1/runs/{}", view.run_id));
    let mut response = room.json(StatusCode::OK, move || view).await?;
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
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

/// The result of a run that has ended, with the room for an answer. Where others have to be read first, it is not held meanwhile.
pub(super) async fn result(app: &App, live: Arc<Live>) -> Result<(Arc<Ended>, AnswerRoom), Fault> {
    let (id, weight) = (live.id, result_weight(&live));
    let (live, room) = match app.answers.room_now(weight) {
        Some(room) => (Some(live), room),
        None => {
            drop(live);
            let room = app.answers.room(weight).await;
            let room = room.map_err(|fault| about(fault, id))?;
            (app.runner.find(id), room)
        }
    };
    match live.as_deref().map(Live::phase) {
        Some(Phase::Ended(ended)) => Ok((ended, room)),
        Some(_) => Err(Fault::internal("the run was lost")),
        None => {
            let detail = format!("run {id} has ended and is history by now");
            Err(Refusal::AnswersFull.because(detail))
        }
    }
}

/// Nobody else knows this run: when its client goes, it goes.
pub(super) async fn await_or_cancel(app: &App, live: &Arc<Live>) -> Option<Arc<Ended>> {
    let guard = app.abandoned(live);
    let ended = live.ended().await;
    guard.disarm();
    ended
}

/// 200 with the result, 202 before there is one, the engine's own error where it could not be run.
async fn answer(app: &Arc<App>, live: Arc<Live>, request_id: &str) -> Result<Response, Fault> {
    let id = live.id;
    let location = HeaderValue::from_str(&format!("/v1/runs/{id}"));
    let status = match live.phase() {
        Phase::Ended(ended) => match &ended.outcome {
            Outcome::Failed(fault) => Err(fault.clone()),
            Outcome::Expired => Err(Refusal::DeadlinePassed.because(format!("run {id}"))),
            Outcome::Finished(_) | Outcome::CanceledInQueue => Ok(StatusCode::OK),
        },
        Phase::Queued | Phase::Running { .. } => Ok(StatusCode::ACCEPTED),
    };
    let mut response = match status {
        // Also without room: where the result will be is told in any case.
        Ok(status) => view(app, live, status, request_id)
            .await
            .unwrap_or_else(Fault::into_response),
        Err(fault) => fault.into_response(),
    };
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// A run with its result. Where other answers have to be read first, the result is not held meanwhile.
pub(super) async fn view(
    app: &Arc<App>,
    live: Arc<Live>,
    status: StatusCode,
    request_id: &str,
) -> Result<Response, Fault> {
    let (id, weight) = (live.id, result_weight(&live));
    let request_id = request_id.to_owned();
    let (live, room) = match app.answers.room_now(weight) {
        Some(room) => (Some(live), room),
        None => {
            drop(live);
            let room = app.answers.room(weight).await;
            let room = room.map_err(|fault| about(fault, id))?;
            (app.runner.find(id), room)
        }
    };
    match live {
        Some(live) => {
            let make = move || RunView::of_live(&live, &request_id);
            room.json(status, make).await
        }
        None => {
            drop(room);
            stored(app, id).await
        }
    }
}

/// So that whoever gets no answer knows what to ask for later.
fn about(mut fault: Fault, id: RunId) -> Fault {
    fault.detail = format!("run {id}: {}", fault.detail);
    fault
}

pub(super) fn result_weight(live: &Live) -> usize {
    match live.phase() {
        Phase::Ended(ended) => ended.weight() + live.weight(),
        Phase::Queued | Phase::Running { .. } => live.weight(),
    }
}

/// What the history has of its output.
pub(super) fn kept_bytes(run: &StoredRun) -> usize {
    let kept = run.log.stdout.bytes.saturating_add(run.log.stderr.bytes);
    usize::try_from(kept).unwrap_or(usize::MAX)
}

pub(super) async fn stored(app: &Arc<App>, id: RunId) -> Result<Response, Fault> {
    let gone = |fault: Fault| match fault.code {
        code if code == ErrorCode::HistoryNotFound.as_str() => Fault::coded(
            ErrorCode::HistoryNotFound,
            format!("run {id} was removed from the history"),
        ),
        _ => fault,
    };
    let run = app.blocking(move |app| app.archive.read_run(|history| history.get(id)));
    let run = run.await.map_err(gone)?;
    let room = app.answers.room(kept_bytes(&run)).await?;
    let output = app.blocking(move |app| app.archive.read_run(|history| history.output(id)));
    let output = output.await.map_err(gone)?;
    room.json(StatusCode::OK, move || RunView::of_stored(run, &output))
        .await
}
