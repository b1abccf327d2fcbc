//! A run as a bundle, the file that `cofferdam export` writes. It is made whole first, in a directory that goes with it, and only so many at once.

use std::fs::File;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use cofferdam_store::bundle::{
    self, Artifacts, ExportOptions, HistorySource, IfPresent, Limits, Provenance,
};
use cofferdam_store::model::Outcome;
use cofferdam_store::private_dir::PrivateDir;
use cofferdam_store::{History, RunId, StoreError};
use jiff::Timestamp;
use tokio::sync::Semaphore;

use super::runs::{Asked, find};
use crate::app::App;
use crate::auth::Caller;
use crate::fault::{Fault, Refusal};
use crate::live::Phase;
use crate::pieces;

/// Bundles that are made or sent at once.
const AT_ONCE: usize = 4;
static EXPORTS: Semaphore = Semaphore::const_new(AT_ONCE);
/// What goes into one.
const LARGEST: u64 = 1 << 30;

pub(super) async fn export(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, Fault> {
    let run = match find(&app, &caller, &id).await? {
        Asked::Stored(run) => run,
        Asked::Live(live) => match live.phase() {
            Phase::Ended(_) => live.id,
            Phase::Queued | Phase::Running { .. } => {
                return Err(Refusal::RunGoesOn.because(format!("run {}", live.id)));
            }
        },
    };
    let Ok(turn) = EXPORTS.try_acquire() else {
        return Err(Refusal::AnswersFull.because(format!("{AT_ONCE} exports are under way")));
    };
    let stored = app
        .blocking(move |app| app.archive.read_run(|history| history.get(run)))
        .await?;
    let size: u64 = match &stored.outcome {
        Outcome::Running => return Err(Refusal::RunGoesOn.because(format!("run {run}"))),
        Outcome::Interrupted { .. } => 0,
        Outcome::Ended(closing) => closing.artifacts.iter().map(|file| file.bytes).sum(),
    };
    if size > LARGEST {
        let detail =
            format!("run {run}: its files are {size} bytes, and at most {LARGEST} are sent");
        return Err(Refusal::ExportTooLarge.because(detail));
    }
    // The turn goes with the work: a client that goes away does not end it.
    let (file, bytes, held) = app
        .blocking(move |app| {
            let (file, bytes, private) = write(app, run)?;
            Ok((file, bytes, (private, turn)))
        })
        .await?;
    let mut response = pieces::body(file, held).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/zip"),
    );
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    let name = format!("attachment; filename=\"{run}.{}\"", bundle::EXTENSION);
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

/// With a history of its own: the others' is not kept from them meanwhile.
fn write(app: &App, run: RunId) -> Result<(File, u64, PrivateDir), StoreError> {
    let dir = app.archive.dir();
    let private = PrivateDir::create(dir, RunId::new())?;
    let to = private.path().join("bundle");
    let options = ExportOptions {
        artifacts: Artifacts::With,
        sign: None,
        provenance: Provenance {
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            user: None,
            exported_at: Timestamp::now(),
            cofferdam_version: env!("CARGO_PKG_VERSION").to_owned(),
            git: None,
        },
        if_present: IfPresent::Refuse,
        limits: Limits::default(),
    };
    let history = History::open(dir)?;
    let source = HistorySource::new(&history);
    let exported = bundle::export(&source, &[run], &options, &to, &mut |_| {})?;
    let file = File::open(&to).map_err(|source| StoreError::Io {
        what: "read",
        path: to,
        source,
    })?;
    Ok((file, exported.bytes, private))
}
