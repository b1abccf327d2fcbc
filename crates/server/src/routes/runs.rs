//! Looking at runs and cancelling them. A token that may only run things sees what it has sent itself, for as long as the daemon remembers that.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query as UrlQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use cofferdam_store::database::{Query, StatusFilter};
use cofferdam_store::model::{RunKind, Status};
use cofferdam_store::{RunId, StoreError};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::submit::{stored, view};
use crate::app::{App, RequestId};
use crate::archive;
use crate::auth::Caller;
use crate::fault::{Fault, Refusal};
use crate::live::Live;
use crate::tokens::Scope;
use crate::view::RunView;

/// Which runs to list.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// A status or a cause, several with commas between: `failure,memory`. `queued` alone shows what waits.
    pub(crate) status: Option<String>,
    /// RFC 3339.
    pub(crate) since: Option<String>,
    pub(crate) until: Option<String>,
    pub(crate) exit_code: Option<i32>,
    /// A glob over the whole command line.
    pub(crate) command: Option<String>,
    /// `KEY` or `KEY=VALUE`, several with commas between.
    pub(crate) tag: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) parent: Option<String>,
    pub(crate) longer_than_ms: Option<u64>,
    pub(crate) shorter_than_ms: Option<u64>,
    pub(crate) has_artifacts: Option<bool>,
    /// `next` of the page before.
    pub(crate) before: Option<String>,
    /// 1 to 200, 50 unless said.
    pub(crate) limit: Option<usize>,
}

/// A page of runs.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ListAnswer {
    /// Newest first.
    pub(crate) runs: Vec<Value>,
    /// Give this as `before` for the next page; null at the end.
    pub(crate) next: Option<String>,
}

/// A run that somebody asked about.
pub(super) enum Asked {
    Live(Arc<Live>),
    Stored(RunId),
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    query: Result<UrlQuery<ListQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<ListAnswer>, Fault> {
    let UrlQuery(query) = query.map_err(bad_query)?;
    if query.status.as_deref() == Some("queued") {
        let queued = app.runner.queued();
        let is_seen = |live: &&Arc<Live>| caller.may(Scope::Read) || live.tenant == caller.id;
        let views = queued
            .iter()
            .rev()
            .filter(is_seen)
            .map(|live| json!(RunView::of_live(live, &request_id)));
        return Ok(Json(ListAnswer {
            runs: views.collect(),
            next: None,
        }));
    }
    caller.must(Scope::Read)?;
    let query = query.checked()?;
    let page = app
        .blocking(move |app| app.archive.read_all(|history| history.list(&query)))
        .await?;
    Ok(Json(ListAnswer {
        runs: page.runs.iter().map(|run| json!(run)).collect(),
        next: page.next.map(|id| id.to_string()),
    }))
}

pub(super) async fn show(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    Path(id): Path<String>,
) -> Result<Response, Fault> {
    match find(&app, &caller, &id)? {
        Asked::Live(live) => view(&app, live, StatusCode::OK, &request_id).await,
        Asked::Stored(id) => stored(&app, id).await,
    }
}

pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    Path(id): Path<String>,
) -> Result<Response, Fault> {
    caller.must(Scope::Run)?;
    let live = match find(&app, &caller, &id)? {
        Asked::Live(live) => live,
        Asked::Stored(id) => {
            // Known to the history, so that it has ended or is another process's.
            app.blocking(move |app| app.archive.read_run(|history| history.get(id).map(drop)))
                .await?;
            return Err(Refusal::RunEnded.because(format!("run {id}")));
        }
    };
    if live.tenant != caller.id {
        caller.must(Scope::Admin)?;
    }
    let (runner, of_thread) = (Arc::clone(&app.runner), Arc::clone(&live));
    let cancelled = tokio::task::spawn_blocking(move || runner.cancel(&of_thread));
    match cancelled.await {
        Ok(done) => done?,
        Err(_) => return Err(Fault::internal("a fault of the daemon; its log says more")),
    }
    let view = RunView::of_live(&live, &request_id).without_output();
    Ok((StatusCode::ACCEPTED, Json(view)).into_response())
}

/// The run, if this caller may see it. What may not be seen looks like what is not there.
pub(super) fn find(app: &App, caller: &Caller, text: &str) -> Result<Asked, Fault> {
    let id = archive::parse_id(text)?;
    let missing = || {
        Fault::from(StoreError::NoSuchRun {
            asked: id.to_string(),
        })
    };
    match app.runner.find(id) {
        Some(live) if caller.may(Scope::Read) || live.tenant == caller.id => Ok(Asked::Live(live)),
        Some(_) => Err(missing()),
        None if caller.may(Scope::Read) => Ok(Asked::Stored(id)),
        None => Err(missing()),
    }
}

pub(super) fn bad_query(error: axum::extract::rejection::QueryRejection) -> Fault {
    use std::error::Error as _;
    let why = error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string);
    Fault::coded(
        cofferdam_contract::codes::ErrorCode::InputInvalid,
        format!("query: {why}"),
    )
}

impl ListQuery {
    fn checked(self) -> Result<Query, Fault> {
        const MOST: usize = 200;
        let time = |field: &str, text: Option<String>| match text {
            None => Ok(None),
            Some(text) => text.parse::<Timestamp>().map(Some).map_err(|_| {
                Fault::invalid(
                    field,
                    &text,
                    "is not a time; write it like 2026-01-31T12:00:00Z",
                )
            }),
        };
        let id = |text: Option<String>| text.map(|text| archive::parse_id(&text)).transpose();
        let limit = self.limit.unwrap_or(50);
        if !(1..=MOST).contains(&limit) {
            return Err(Fault::invalid("limit", limit, "ask for 1 to 200"));
        }
        let kind = match self.kind {
            None => None,
            Some(text) => {
                let known = RunKind::ALL.into_iter().find(|kind| kind.as_str() == text);
                Some(known.ok_or_else(|| {
                    Fault::invalid("kind", &text, "is none of command, payload, build, test")
                })?)
            }
        };
        Ok(Query {
            since: time("since", self.since)?,
            until: time("until", self.until)?,
            statuses: statuses(self.status.as_deref().unwrap_or_default()),
            exit_code: self.exit_code,
            command: self.command,
            tags: tags(self.tag.as_deref().unwrap_or_default()),
            kind,
            parent: id(self.parent)?,
            longer_than: self.longer_than_ms.map(Duration::from_millis),
            shorter_than: self.shorter_than_ms.map(Duration::from_millis),
            has_artifacts: self.has_artifacts,
            before: id(self.before)?,
            limit,
            ..Query::default()
        })
    }
}

fn statuses(text: &str) -> Vec<StatusFilter> {
    let words = text
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty());
    words
        .map(|word| {
            let known = Status::ALL
                .into_iter()
                .find(|status| status.as_str() == word);
            known.map_or_else(
                || StatusFilter::Cause(word.to_owned()),
                StatusFilter::Status,
            )
        })
        .collect()
}

fn tags(text: &str) -> Vec<(String, Option<String>)> {
    let words = text.split(',').filter(|word| !word.is_empty());
    words
        .map(|word| match word.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (word.to_owned(), None),
        })
        .collect()
}
