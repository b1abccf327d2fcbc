//! Every route with what it takes and gives. The router is made from this list and the API description describes it, so that neither knows a path that the other does not.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, post};

use super::{about, diff, execute, export, output, runs, submit};
use crate::app::App;
use crate::fault::{Fault, Refusal};
use crate::middleware;

/// One method of one path.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) access: Access,
    pub(crate) takes: Option<&'static str>,
    /// Status, media type, name of the schema. No media type: no body.
    pub(crate) gives: &'static [(u16, &'static str, &'static str)],
    pub(crate) patience: Patience,
    handler: fn() -> MethodRouter<Arc<App>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
    Delete,
}

/// Who may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Anybody,
    /// A token with this scope.
    Scope(&'static str),
}

/// How long an answer may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// The daemon's own time limit.
    Short,
    /// As long as the run, or as the reader reads.
    Run,
}

const JSON: &str = "application/json";

pub(crate) const ROUTES: &[Route] = &[
    Route {
        method: Method::Get,
        path: "/health",
        summary: "Whether this daemon can run anything. Unhealthy until a small program has gone through a sandbox.",
        access: Access::Anybody,
        takes: None,
        gives: &[(200, JSON, "Health"), (503, JSON, "Health")],
        patience: Patience::Short,
        handler: || get(about::health),
    },
    Route {
        method: Method::Post,
        path: "/execute",
        summary: "Run source code and answer with its result: the executor interface.",
        access: Access::Scope("run"),
        takes: Some("ExecuteRequest"),
        gives: &[(200, JSON, "ExecuteAnswer")],
        patience: Patience::Run,
        handler: || post(execute::execute),
    },
    Route {
        method: Method::Post,
        path: "/v1/runs",
        summary: "Run a command, source code, or an action of a project. Answers when it has ended, or at once with `wait: false`. An `Idempotency-Key` makes a repetition the same run; without one, a run whose client goes away while waiting is cancelled. As `multipart/form-data` the request is the part `request`, and files come as parts `file` or `executable`, each with its path as filename; a project comes as the part `project`, a tar archive or a git bundle.",
        access: Access::Scope("run"),
        takes: Some("RunRequest"),
        gives: &[(200, JSON, "RunView"), (202, JSON, "RunView")],
        patience: Patience::Run,
        handler: || post(submit::run),
    },
    Route {
        method: Method::Get,
        path: "/v1/runs",
        summary: "Runs, newest first. `status=queued` shows what waits in this daemon.",
        access: Access::Scope("read"),
        takes: None,
        gives: &[(200, JSON, "ListAnswer")],
        patience: Patience::Short,
        handler: || get(runs::list),
    },
    Route {
        method: Method::Post,
        path: "/v1/runs/batch",
        summary: "Several runs at once. All are checked before any is taken on.",
        access: Access::Scope("run"),
        takes: Some("BatchRequest"),
        gives: &[(200, JSON, "BatchAnswer"), (202, JSON, "BatchAnswer")],
        patience: Patience::Run,
        handler: || post(submit::batch),
    },
    Route {
        method: Method::Get,
        path: "/v1/runs/{id}",
        summary: "One run.",
        access: Access::Scope("read"),
        takes: None,
        gives: &[(200, JSON, "RunView")],
        patience: Patience::Short,
        handler: || get(runs::show),
    },
    Route {
        method: Method::Delete,
        path: "/v1/runs/{id}",
        summary: "Cancel a run that waits or goes on.",
        access: Access::Scope("run"),
        takes: None,
        gives: &[(202, JSON, "RunView")],
        patience: Patience::Short,
        handler: || delete(runs::cancel),
    },
    Route {
        method: Method::Post,
        path: "/v1/runs/{id}/cancel",
        summary: "Cancel a run that waits or goes on.",
        access: Access::Scope("run"),
        takes: None,
        gives: &[(202, JSON, "RunView")],
        patience: Patience::Short,
        handler: || post(runs::cancel),
    },
    Route {
        method: Method::Get,
        path: "/v1/runs/{id}/logs",
        summary: "What a run wrote, secrets taken out: `stream=stdout|stderr|both`, `tail=LINES`, `format=json|text`.",
        access: Access::Scope("read"),
        takes: None,
        gives: &[(200, JSON, "Logs"), (200, "text/plain", "")],
        patience: Patience::Short,
        handler: || get(output::logs),
    },
    Route {
        method: Method::Get,
        path: "/v1/runs/{id}/events",
        summary: "A run as it happens: server-sent events `state`, `output`, `usage` (`cpu_ms` so far, `memory_bytes` and `processes` at the moment, twice a second), `progress` (of a project: its `step`, and the `counts` of tests that have ended), `end`, or `error` when it cannot go on. `Last-Event-ID` goes on where a reader was.",
        access: Access::Scope("read"),
        takes: None,
        gives: &[(200, "text/event-stream", ""), (204, "", "")],
        patience: Patience::Run,
        handler: || get(output::events),
    },
    Route {
        method: Method::Get,
        path: "/v1/runs/{id}/artifacts",
        summary: "The files that a run left in its workspace.",
        access: Access::Scope("read"),
        takes: None,
        gives: &[(200, JSON, "Artifacts")],
        patience: Patience::Short,
        handler: || get(output::artifacts),
    },
    Route {
        method: Method::Get,
        path: "/v1/runs/{id}/artifacts/{*path}",
        summary: "The contents of one such file.",
        access: Access::Scope("read"),
        takes: None,
        gives: &[(200, "*/*", "")],
        patience: Patience::Run,
        handler: || get(output::artifact),
    },
    Route {
        method: Method::Get,
        path: "/v1/runs/{id}/diff/{other}",
        summary: "Two runs of tests compared: which tests of `other` fail newly, are fixed, slower, added or gone.",
        access: Access::Scope("read"),
        takes: None,
        gives: &[(200, JSON, "TestsDiff")],
        patience: Patience::Short,
        handler: || get(diff::diff),
    },
    Route {
        method: Method::Get,
        path: "/v1/runs/{id}/export",
        summary: "A run that has ended with everything that it left, as a bundle: what `cofferdam export` writes and `cofferdam import` reads.",
        access: Access::Scope("read"),
        takes: None,
        gives: &[(200, "application/zip", "")],
        patience: Patience::Run,
        handler: || get(export::export),
    },
    Route {
        method: Method::Post,
        path: "/v1/payloads",
        summary: "Execute a sealed payload; the answer is its result envelope.",
        access: Access::Scope("run"),
        takes: Some("ExecutionPayload"),
        gives: &[(200, JSON, "ResultEnvelope")],
        patience: Patience::Run,
        handler: || post(submit::payload),
    },
    Route {
        method: Method::Get,
        path: "/v1/languages",
        summary: "The languages that source code can be in.",
        access: Access::Scope("any"),
        takes: None,
        gives: &[(200, JSON, "Languages")],
        patience: Patience::Short,
        handler: || get(about::languages),
    },
    Route {
        method: Method::Get,
        path: "/metrics",
        summary: "Counters, in Prometheus' text format.",
        access: Access::Scope("read"),
        takes: None,
        gives: &[(200, "text/plain", "")],
        patience: Patience::Short,
        handler: || get(about::metrics),
    },
    Route {
        method: Method::Get,
        path: "/openapi.json",
        summary: "This description.",
        access: Access::Scope("any"),
        takes: None,
        gives: &[(200, JSON, "")],
        patience: Patience::Short,
        handler: || get(about::openapi),
    },
    Route {
        method: Method::Get,
        path: "/docs",
        summary: "This description, to read.",
        access: Access::Scope("any"),
        takes: None,
        gives: &[(200, "text/html", "")],
        patience: Patience::Short,
        handler: || get(about::docs),
    },
];

pub(crate) fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let mut handler = (route.handler)();
        if route.patience == Patience::Short {
            handler =
                handler.route_layer(from_fn_with_state(Arc::clone(app), middleware::within_time));
        }
        if route.access != Access::Anybody {
            handler = handler.route_layer(from_fn_with_state(
                Arc::clone(app),
                middleware::authenticate,
            ));
        }
        router = router.route(route.path, handler);
    }
    router
        .fallback(unknown)
        .layer(axum::middleware::from_fn(crate::head::check))
        .layer(from_fn_with_state(Arc::clone(app), middleware::observe))
        .with_state(Arc::clone(app))
}

async fn unknown(request: axum::extract::Request) -> Fault {
    let path: String = request.uri().path().chars().take(200).collect();
    Refusal::NoSuchRoute.because(path)
}
