//! About the daemon itself: its health, its counters, its languages, its description.

use std::sync::Arc;

use axum::Extension;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Caller;
use crate::docs;
use crate::fault::Fault;
use crate::openapi as description;
use crate::self_test::Fitness;
use crate::tokens::Scope;

/// Takes no lock that work is done under, and reads nothing from the disk.
pub(super) async fn health(State(app): State<Arc<App>>) -> Response {
    let load = app.runner.load();
    let mut body = json!({
        "status": "healthy",
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": app.started.elapsed().as_secs(),
        "active_executions": load.running,
        "queued_executions": load.queued,
    });
    match app.self_test.fitness() {
        Fitness::Fit => Json(body).into_response(),
        Fitness::Unfit { reason } => {
            body["status"] = json!("unhealthy");
            body["reason"] = json!(reason);
            (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
        }
    }
}

pub(super) async fn metrics(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Fault> {
    caller.must(Scope::Read)?;
    let (load, uptime) = (app.runner.load(), app.started.elapsed());
    let pool = app.runner.pool().map(|pool| pool.figures());
    let spans = app.tracer.figures();
    let text = app.metrics.render(load, uptime, spans, pool);
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

pub(super) async fn languages(State(app): State<Arc<App>>) -> Result<Json<Value>, Fault> {
    let views = app
        .blocking(|app| Ok(app.languages.views(&app.runner.host)))
        .await?;
    Ok(Json(json!({ "languages": views })))
}

pub(super) async fn openapi() -> Json<Value> {
    Json(description::document())
}

pub(super) async fn docs() -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    let headers = [(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(policy),
    )];
    (headers, Html(docs::page(&description::document()))).into_response()
}
