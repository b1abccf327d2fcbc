//! The tests of two runs compared, as `cofferdam runs diff` does it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use cofferdam_workshop::{TestsDiff, compare};

use super::runs::{Asked, find};
use crate::app::App;
use crate::auth::Caller;
use crate::fault::Fault;

/// Of `other` against `id`. Both must be the caller's to see.
pub(super) async fn diff(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path((id, other)): Path<(String, String)>,
) -> Result<Json<TestsDiff>, Fault> {
    let mut ids = Vec::new();
    for text in [&id, &other] {
        ids.push(match find(&app, &caller, text).await? {
            Asked::Live(live) => live.id,
            Asked::Stored(id) => id,
        });
    }
    let read = app.blocking(move |app| {
        // With what has just ended: the history may have them as going on.
        app.archive.read_all(|history| {
            let runs = ids.into_iter().map(|id| history.get(id));
            runs.collect::<Result<Vec<_>, _>>()
        })
    });
    let runs = read.await?;
    let diff = match runs.as_slice() {
        [a, b] => compare(a, b),
        _ => None,
    };
    let fix = "cannot be compared; name two runs of tests that have ended";
    diff.map(Json)
        .ok_or_else(|| Fault::invalid("run", format!("{id}, {other}"), fix))
}
