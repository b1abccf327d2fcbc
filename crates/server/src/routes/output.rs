//! What a run wrote and left: its logs, its events as they happen, its files.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query as UrlQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use cofferdam_contract::ending::Stream;
use cofferdam_contract::record::{CapturedStream, Encoding};
use cofferdam_store::log::Chunk;
use cofferdam_store::model::{Artifact, Outcome as StoredOutcome};
use cofferdam_store::objects::Objects;
use cofferdam_store::{RunId, StoreError};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::runs::{Asked, bad_query, find};
use super::submit::kept_bytes;
use crate::app::{App, RequestId};
use crate::auth::Caller;
use crate::events::{self, ChannelBody, Position, Source};
use crate::fault::{Fault, Refusal};
use crate::live::{Outcome, Phase};
use crate::pieces;
use crate::view::{ArtifactView, LeftOutView};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogsQuery {
    #[serde(default)]
    stream: Wanted,
    /// Lines from the end.
    tail: Option<usize>,
    #[serde(default)]
    format: Format,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Wanted {
    Stdout,
    Stderr,
    #[default]
    Both,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Format {
    #[default]
    Json,
    Text,
}

pub(super) async fn logs(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    query: Result<UrlQuery<LogsQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Fault> {
    let UrlQuery(query) = query.map_err(bad_query)?;
    let asked = find(&app, &caller, &id).await?;
    let run = id_of(&asked);
    let room = app.answers.room(written(&app, &asked).await?).await?;
    let is_known = matches!(asked, Asked::Live(_));
    drop(asked);
    let chunks = app
        .blocking(
            move |app| match cofferdam_store::journal::of_run(app.archive.dir(), run)? {
                Some(journal) => Ok(journal.chunks),
                None => match app.archive.read_run(|history| history.output(run)) {
                    // Taken on, and nothing written yet.
                    Err(StoreError::NoSuchRun { .. }) if is_known => Ok(Vec::new()),
                    other => other,
                },
            },
        )
        .await?;
    let wanted = move |chunk: &Chunk| match query.stream {
        Wanted::Both => true,
        Wanted::Stdout => chunk.stream == Stream::Stdout,
        Wanted::Stderr => chunk.stream == Stream::Stderr,
    };
    let mut chunks: Vec<Chunk> = chunks.into_iter().filter(wanted).collect();
    if let Some(lines) = query.tail {
        chunks = tail(chunks, lines);
    }
    match query.format {
        Format::Text => {
            let bytes: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.bytes).collect();
            Ok(room.bytes(bytes, "text/plain; charset=utf-8"))
        }
        Format::Json => {
            let run_id = run.to_string();
            room.json(StatusCode::OK, move || LogsView { run_id, chunks })
                .await
        }
    }
}

/// How much a run has written, at most, where it still writes.
async fn written(app: &Arc<App>, asked: &Asked) -> Result<usize, Fault> {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    match asked {
        Asked::Live(live) => Ok(match live.phase() {
            Phase::Ended(ended) => match &ended.outcome {
                Outcome::Finished(finished) => bytes(finished.record.usage.output_bytes),
                Outcome::Failed(_) | Outcome::CanceledInQueue | Outcome::Expired => 0,
            },
            Phase::Running { .. } => bytes(app.runner.bounds().largest_output.get()),
            Phase::Queued => 0,
        }),
        Asked::Stored(run) => {
            let run = *run;
            let stored = app.blocking(move |app| app.archive.read_run(|history| history.get(run)));
            Ok(kept_bytes(&stored.await?))
        }
    }
}

/// What a run wrote. There may be millions of pieces of a few bytes each: none is made before it is written into the answer.
#[derive(Debug, Serialize)]
struct LogsView {
    run_id: String,
    #[serde(rename = "pieces", serialize_with = "one_by_one")]
    chunks: Vec<Chunk>,
}

#[derive(Debug, Serialize)]
struct PieceView {
    stream: String,
    at_ms: f64,
    data: String,
    encoding: Encoding,
}

fn one_by_one<S: Serializer>(chunks: &[Chunk], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(chunks.iter().map(|chunk| {
        let captured = CapturedStream::whole(&chunk.bytes);
        PieceView {
            stream: chunk.stream.to_string(),
            at_ms: chunk.at_micros as f64 / 1000.0,
            data: captured.data,
            encoding: captured.encoding,
        }
    }))
}

/// The last lines, whichever chunks they lie in. A last line without its end counts as one.
fn tail(mut chunks: Vec<Chunk>, lines: usize) -> Vec<Chunk> {
    let mut left = lines;
    let mut is_last = true;
    let mut kept = Vec::new();
    while let Some(mut chunk) = chunks.pop() {
        for at in (0..chunk.bytes.len()).rev() {
            let is_end = chunk.bytes.get(at) == Some(&b'\n');
            if is_end && !is_last {
                if left <= 1 {
                    chunk.bytes.drain(..=at);
                    kept.push(chunk);
                    kept.retain(|chunk| !chunk.bytes.is_empty());
                    kept.reverse();
                    return if lines == 0 { Vec::new() } else { kept };
                }
                left -= 1;
            }
            is_last = false;
        }
        kept.push(chunk);
    }
    kept.reverse();
    if lines == 0 { Vec::new() } else { kept }
}

pub(super) async fn events(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    let source = match find(&app, &caller, &id).await? {
        Asked::Live(live) => Source::Live(live),
        Asked::Stored(run) => {
            app.blocking(move |app| app.archive.read_run(|history| history.get(run).map(drop)))
                .await?;
            Source::Stored(run)
        }
    };
    let from = match headers.get("last-event-id") {
        None => Position::default(),
        Some(value) => {
            let text = value.to_str().unwrap_or_default();
            Position::parse(text).ok_or_else(|| {
                Fault::invalid(
                    "Last-Event-ID",
                    text,
                    "is not the id of an event of this stream",
                )
            })?
        }
    };
    if from.has_ended() {
        // Tells a browser that there is no use in coming back.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    // A reader that is slow has two events waiting for it, and the journal has the rest.
    let (to, receiver) = mpsc::channel(2);
    tokio::spawn(events::tell(Arc::clone(&app), source, from, request_id, to));
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/event-stream"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((headers, Body::new(ChannelBody::new(receiver))).into_response())
}

pub(super) async fn artifacts(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Fault> {
    let (run, artifacts, left_out) = left(&app, &find(&app, &caller, &id).await?).await?;
    Ok(Json(json!({
        "run_id": run.to_string(),
        "artifacts": artifacts.iter().map(ArtifactView::from).collect::<Vec<_>>(),
        "left_out": left_out,
    })))
}

pub(super) async fn artifact(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path((id, path)): Path<(String, String)>,
) -> Result<Response, Fault> {
    let (run, artifacts, _) = left(&app, &find(&app, &caller, &id).await?).await?;
    let found = artifacts.into_iter().find(|artifact| artifact.path == path);
    let artifact = found.ok_or_else(|| StoreError::NoSuchArtifact {
        run: run.to_string(),
        path: path.chars().take(200).collect(),
    })?;
    let digest = artifact.digest;
    let reader = app
        .blocking(move |app| Objects::open(app.archive.dir()).reader(&digest))
        .await?;
    let mut response = pieces::body(reader, ()).into_response();
    let headers = response.headers_mut();
    // A stranger wrote it: never shown as a page of ours.
    let kind = HeaderValue::from_str(&artifact.media_type);
    let kind = kind.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(
        header::CONTENT_DISPOSITION,
        HeaderValue::from_static("attachment"),
    );
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(artifact.bytes));
    let policy = HeaderValue::from_static("sandbox; default-src 'none'");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{digest}\"")) {
        headers.insert(header::ETAG, tag);
    }
    Ok(response)
}

fn id_of(asked: &Asked) -> RunId {
    match asked {
        Asked::Live(live) => live.id,
        Asked::Stored(id) => *id,
    }
}

async fn left(
    app: &Arc<App>,
    asked: &Asked,
) -> Result<(RunId, Vec<Artifact>, Vec<LeftOutView>), Fault> {
    let run = id_of(asked);
    let (artifacts, left_out) = match asked {
        Asked::Live(live) => match live.phase() {
            Phase::Ended(ended) => match &ended.outcome {
                Outcome::Finished(finished) => {
                    (finished.artifacts.clone(), finished.left_out.clone())
                }
                Outcome::Failed(_) | Outcome::CanceledInQueue | Outcome::Expired => {
                    (Vec::new(), Vec::new())
                }
            },
            Phase::Queued | Phase::Running { .. } => {
                return Err(Refusal::RunGoesOn.because(format!("run {run}")));
            }
        },
        Asked::Stored(run) => {
            let run = *run;
            let stored = app
                .blocking(move |app| app.archive.read_run(|history| history.get(run)))
                .await?;
            match stored.outcome {
                StoredOutcome::Ended(closing) => (closing.artifacts, closing.left_out),
                StoredOutcome::Running => {
                    return Err(Refusal::RunGoesOn.because(format!("run {run}")));
                }
                StoredOutcome::Interrupted { .. } => (Vec::new(), Vec::new()),
            }
        }
    };
    let left_out = left_out.iter().map(LeftOutView::from).collect();
    Ok((run, artifacts, left_out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str], count: usize) -> String {
        let chunk = |text: &&str| Chunk {
            stream: Stream::Stdout,
            at_micros: 0,
            bytes: text.as_bytes().to_vec(),
        };
        let kept = tail(texts.iter().map(chunk).collect(), count);
        kept.iter()
            .map(|chunk| String::from_utf8_lossy(&chunk.bytes).into_owned())
            .collect()
    }

    #[test]
    fn each_piece_says_where_it_came_from_and_when() {
        let chunk = |stream, at_micros, bytes: &[u8]| Chunk {
            stream,
            at_micros,
            bytes: bytes.to_vec(),
        };
        let logs = LogsView {
            run_id: "r".to_owned(),
            chunks: vec![
                chunk(Stream::Stdout, 1500, b"a\n"),
                chunk(Stream::Stderr, 2000, b"\xff"),
            ],
        };
        let expected = json!({"run_id": "r", "pieces": [
            {"stream": "stdout", "at_ms": 1.5, "data": "a\n", "encoding": "utf-8"},
            {"stream": "stderr", "at_ms": 2.0, "data": "/w==", "encoding": "base64"},
        ]});
        assert_eq!(json!(logs), expected);
    }

    #[test]
    fn the_last_lines_are_found_across_chunks() {
        assert_eq!(lines(&["a\nb", "b\nc\n"], 2), "bb\nc\n");
        assert_eq!(lines(&["a\nb", "b\nc\n"], 1), "c\n");
        assert_eq!(lines(&["a\nb", "b\nc"], 1), "c");
        assert_eq!(lines(&["a\n", "b\n"], 1), "b\n");
        assert_eq!(lines(&["a\n", "b\n"], 9), "a\nb\n");
        assert_eq!(lines(&["a\n", "b\n"], 0), "");
        assert_eq!(lines(&[], 3), "");
    }
}
