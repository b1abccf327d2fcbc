//! What an earlier daemon promised and did not come to do. What waited is queued again, with its name, its place and its deadline; what had begun is not begun again, and whoever was to
//! hear of it hears how it ended.

use std::collections::BTreeMap;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::request::{Network, WorkspaceAccess};
use cofferdam_store::RunId;
use cofferdam_store::database::Query;
use cofferdam_store::log::Chunk;
use cofferdam_store::model::{RunKind, StoredRun};
use cofferdam_store::{StoreError, journal, private_dir};
use cofferdam_toolchain::ResultChannel;

use crate::accepted::{Found, Promise};
use crate::app::App;
use crate::asked_image::RootWish;
use crate::away::Errand;
use crate::config::Carrier;
use crate::fault::Fault;
use crate::known::Declared;
use crate::payload;
use crate::reports::{About, Told};
use crate::runner::{self, TakenUp};
use crate::submission::{Origin, RunRequest, Submission};
use crate::work::{CommandTask, Task, Work, WorkspaceWish};

/// Before anybody is served, so that nobody who comes now has the place of somebody who came before.
pub(crate) fn take_up(app: &std::sync::Arc<App>) -> std::io::Result<()> {
    let mut waiting = Vec::new();
    let found = app.runner.accepted().found()?;
    if app.runner.bounds().carrier == Carrier::Fleet {
        // What was being taken in is still on the fleet. What a daemon had begun by itself is not.
        for found in found.iter().filter(|found| is_errand(found)) {
            let id = found.promise.run_id;
            if let Err(error) = journal::remove_unfinished(app.archive.dir(), id) {
                tracing::warn!(run_id = %id, %error, "what is left of a run could not be removed");
            }
        }
    }
    // What goes on in the history and nowhere else has been interrupted, and is said to be.
    if !found.is_empty()
        && let Err(error) = app.archive.read_all(|_| Ok(()))
    {
        tracing::error!(%error, "the history cannot be read");
    }
    for found in found {
        if let Some(key) = &found.promise.key {
            app.keys.remember(key, found.promise.run_id);
        }
        let id = found.promise.run_id;
        let known = app
            .archive
            .read_run(|history| Ok((history.get(id)?, history.output(id)?)));
        match known {
            Ok(run) => ended(app, &found.promise, Some(run)),
            Err(StoreError::NoSuchRun { .. }) => match &found.request {
                Some(_) if !had_begun(app, id) => waiting.push(queued(app, found)),
                _ => ended(app, &found.promise, None),
            },
            // What cannot be known now is looked at again by the next start.
            Err(error) => {
                tracing::error!(run_id = %id, %error, "what became of a run cannot be read");
            }
        }
    }
    if !waiting.is_empty() {
        tracing::info!(
            runs = waiting.len(),
            "runs that an earlier daemon accepted are queued again"
        );
    }
    app.runner.take_up(waiting);
    Ok(())
}

/// Whether a front door accepted it, which has put it on the fleet or was about to.
fn is_errand(found: &Found) -> bool {
    let request = found.request.as_deref().unwrap_or_default();
    serde_json::from_slice::<Errand>(request).is_ok()
}

/// Whether it has compiled something or run an input: a run of many parts has its own record only at its end.
fn had_begun(app: &App, id: RunId) -> bool {
    let query = Query {
        parent: Some(id),
        limit: 1,
        ..Query::default()
    };
    let parts = app.archive.read_all(|history| history.list(&query));
    parts.is_ok_and(|parts| !parts.runs.is_empty())
}

fn ended(app: &App, promise: &Promise, known: Option<(StoredRun, Vec<Chunk>)>) {
    let about = About {
        run: promise.run_id,
        execution_id: promise.execution_id.as_deref(),
        callback_url: promise.callback_url.as_deref(),
    };
    let known = known.as_ref().map(|(run, output)| (run, output.as_slice()));
    if app.reports.recovered(about, known, promise.answers) == Told::Yes {
        app.runner.accepted().done(promise.run_id);
    }
}

fn queued(app: &App, found: Found) -> TakenUp {
    let was_away = is_errand(&found);
    let Found { promise, request } = found;
    // Of a daemon that was killed when it had just begun.
    let dir = app.archive.dir();
    let removed = private_dir::remove_left(dir, promise.run_id)
        .and_then(|()| journal::remove_unborn(dir, promise.run_id));
    if let Err(error) = removed {
        tracing::warn!(run_id = %promise.run_id, %error, "what is left of a run could not be removed");
    }
    let (name, checked) = again(app, &request.unwrap_or_default());
    let checked = checked.and_then(|submission| match app.runner.bounds().carrier {
        Carrier::Here if was_away => Err(on_the_fleet(promise.run_id)),
        // From now on it is on the fleet, and the next daemon has to know.
        Carrier::Fleet if !was_away => {
            let request = submission.origin.request.as_deref();
            let kept = app.runner.accepted().keep(&promise, request);
            kept.map(|()| submission).map_err(runner::unkept)
        }
        Carrier::Here | Carrier::Fleet => Ok(submission),
    });
    let (submission, refused) = match checked {
        Ok(submission) => (submission, None),
        // A language that is gone, for one.
        Err(fault) => (nothing(app, name), Some(fault)),
    };
    TakenUp {
        promise,
        submission,
        refused,
    }
}

/// It may have been carried out there, so that it is not run here.
fn on_the_fleet(run: RunId) -> Fault {
    let detail = format!(
        "it was accepted by a front door (`serve --fleet`) and may have been run on the fleet, so that it is not run here; look there with `cofferdam fleet jobs {run}`, and send it again if it is still wanted"
    );
    Fault::coded(ErrorCode::BackendUnavailable, detail)
}

/// What was accepted, checked once more, and its command line.
fn again(app: &App, text: &[u8]) -> (Vec<String>, Result<Submission, Fault>) {
    let (bounds, languages) = (app.runner.bounds(), &app.languages);
    // Our own writing: the bounds for what strangers send were held when it came, and it may be longer than that.
    let request = match serde_json::from_slice::<Errand>(text) {
        Ok(Errand::Payload(sealed)) => {
            let text = sealed.to_string();
            let host = &app.runner.host;
            let checked = payload::check_again(text.as_bytes(), bounds, languages, host);
            return (Vec::new(), checked);
        }
        Ok(Errand::Run(errand)) => Ok(errand.into_request()),
        Err(_) => serde_json::from_slice::<RunRequest>(text),
    };
    let parsed = request
        .map_err(|error| Fault::internal(format!("what was accepted cannot be read: {error}")));
    let name = parsed.as_ref().map_or_else(|_| Vec::new(), shown);
    let checked = parsed.and_then(|request| request.check(bounds, languages, &app.runner.host));
    (name, checked)
}

/// Stands for work that cannot be done any more, so that its end is kept like every other.
fn nothing(app: &App, argv: Vec<String>) -> Submission {
    Submission {
        work: Work {
            kind: RunKind::Command,
            task: Task::Command(CommandTask {
                argv: argv.into_iter().map(Into::into).collect(),
                env: Vec::new(),
                cwd: None,
                compile: None,
                channel: ResultChannel::None,
                inputs: None,
            }),
            limits: app.runner.bounds().defaults.clone(),
            stdin: Vec::new(),
            tags: BTreeMap::new(),
            parent: None,
            workspace: WorkspaceWish::None,
            access: WorkspaceAccess::ReadWrite,
            network: Network::Denied,
            root: RootWish::Hosts,
            seed: None,
            sealed: None,
            room: None,
            declared: Declared::default(),
            known: None,
            errand: None,
        },
        priority: 0,
        deadline: std::time::Duration::ZERO,
        origin: Origin::default(),
    }
}

fn shown(request: &RunRequest) -> Vec<String> {
    let language = || match &request.project {
        Some(_) => vec!["project".to_owned()],
        None => request.language.iter().cloned().collect(),
    };
    request.command.clone().unwrap_or_else(language)
}

impl TakenUp {
    /// Why it cannot be run, where it cannot.
    pub(crate) fn refusal(&self) -> Option<Fault> {
        self.refused.clone()
    }
}
