//! A sealed payload whose task is an action of a project: its steps run one after the other, within the payload's limits for all of them together, and what came of them is the output. That says
//! nothing of times and ids, so that running it again gives the same.

use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::ending::Stream;
use cofferdam_contract::payload::FilesystemWrite;
use cofferdam_contract::record::{CapturedStream, RunRecord};
use cofferdam_contract::request::{BackendName, Network, WorkspaceAccess};
use cofferdam_contract::seal::{RunPlace, Sealed};
use cofferdam_contract::task::{ProjectAction, ProjectTask};
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::Recording;
use cofferdam_project::Action;
use cofferdam_project::report::Budget;
use cofferdam_project::report::Counts;
use cofferdam_store::{DataDir, RunId};
use cofferdam_workshop::{
    Begun, Bench, Engine, Outcome, ProjectOutcome, Shelf, Spent, Together, Watcher, Wish,
    WorkError, act,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cache::place as cache_place;
use crate::failure::Failure;

/// The record of all steps together. Each of them is a run in the history, with the payload.
pub(crate) fn run(
    sealed: &Sealed,
    task: &ProjectTask,
    place: &RunPlace,
    dir: Option<&DataDir>,
    recording: Option<Recording>,
) -> Result<RunRecord, Failure> {
    let unsupported = |message: &str| Failure::new(ErrorCode::BackendUnsupportedTask, message);
    let payload = sealed.payload();
    let action = match task.action {
        ProjectAction::Run => Action::Run,
        ProjectAction::Build => Action::Build,
        ProjectAction::Test => Action::Test,
        ProjectAction::Restore => Action::Restore,
    };
    if place.backend != BackendName::Native {
        return Err(unsupported(
            "--backend: project tasks run in the native backend; leave it out",
        ));
    }
    if payload.network != Network::Denied {
        return Err(unsupported(
            "network_allowed: project tasks have no network; seal the payload without it",
        ));
    }
    let Some(workspace) = &place.workspace else {
        let fix = "says which project a project task is about; name its directory";
        return Err(Failure::problem("--workspace", "", fix));
    };
    let root = workspace.canonicalize().map_err(|error| {
        let what = format!("--workspace: cannot use `{}`", workspace.display());
        Failure::io(ErrorCode::InputUnreadable, &what, &error)
    })?;
    let dir = dir.ok_or_else(|| {
        let fix = "says where reports are laid; name a directory";
        Failure::problem("--data-dir", "", fix)
    })?;
    let cancel = cofferdam_engine::cancel_on_signals()?;
    let host = Host::detect();
    let notes = Arc::new(Notes {
        recording: recording.map(Mutex::new),
        action,
        records: Mutex::default(),
        stderr: Mutex::default(),
    });
    let started_at = Timestamp::now();
    let bench = Bench {
        action,
        cache: cache_place(None, &root)?,
        root,
        shelf: Shelf::Own,
        data_dir: dir.clone(),
        access: match payload.filesystem_write {
            FilesystemWrite::Allowed => WorkspaceAccess::ReadWrite,
            // Building writes; what it writes goes.
            FilesystemWrite::Denied => WorkspaceAccess::CopyOnWrite,
        },
        env: Vec::new(),
        mounts: Vec::new(),
        waived: place.waived.clone(),
        backend: place.backend,
        limits: payload.limits.clone(),
        until: payload
            .limits
            .wall_time
            .at_most()
            .and_then(|limit| Instant::now().checked_add(limit)),
        together: Some(Mutex::new(Spent::default())),
        host: &host,
        cancel: Some(cancel.as_fd()),
        usage: None,
        watcher: Arc::clone(&notes) as Arc<dyn Watcher>,
        carrier: Arc::new(Engine),
        stdin: None,
        budget: Arc::new(Mutex::new(Budget::default())),
    };
    let outcome = act(&bench, Wish::plain(action))?;
    let records = notes.records.lock().unwrap_or_else(PoisonError::into_inner);
    let last = records.last();
    let stderr = notes.stderr.lock().unwrap_or_else(PoisonError::into_inner);
    let together = Together {
        run_id: last.map_or_else(|| RunId::new().to_string(), |record| record.run_id.clone()),
        backend: place.backend,
        records: &records,
        ending: outcome.ending(last.map(|record| &record.ending)),
        stdout: output(&outcome, &records),
        stderr: CapturedStream::whole(&stderr),
        started_at,
    };
    let mut record = together.record();
    record.unrecorded = last.and_then(|record| record.unrecorded.clone());
    Ok(record)
}

/// What a program printed is its answer, as of a command, and says so where there was more; of everything else what came of it is told.
fn output(outcome: &Outcome, records: &[RunRecord]) -> CapturedStream {
    let steps = outcome.projects.iter().flat_map(|project| &project.steps);
    let printed = steps.filter_map(|step| Some((step, step.printed.as_ref()?)));
    let Some((step, printed)) = printed.last() else {
        return CapturedStream::whole(told(outcome).to_string().as_bytes());
    };
    let record = records.iter().find(|record| record.run_id == step.run_id);
    let all = record.map_or(0, |record| record.stdout.original_bytes);
    let kept = u64::try_from(printed.len()).unwrap_or(u64::MAX);
    CapturedStream::new(printed.as_bytes(), all.max(kept))
}

/// What does not differ from one time to the next.
fn told(outcome: &Outcome) -> Value {
    let project = |project: &ProjectOutcome| {
        let steps = project.last_attempts();
        let diagnostics: Vec<_> = steps.iter().flat_map(|step| &step.diagnostics).collect();
        let mut tests: Vec<Value> = steps
            .iter()
            .filter_map(|step| step.tests.as_ref())
            .flat_map(|tests| &tests.tests)
            .map(|case| json!({ "name": case.full_name(), "status": case.status }))
            .collect();
        tests.sort_by_key(ToString::to_string);
        json!({
            "manifest": project.manifest,
            "verdict": project.verdict,
            "diagnostics": diagnostics,
            "tests": tests,
        })
    };
    json!({
        "action": outcome.action,
        "verdict": outcome.verdict,
        "exit_code": outcome.exit_code,
        "counts": outcome.counts,
        "projects": outcome.projects.iter().map(project).collect::<Vec<_>>(),
    })
}

/// Whoever reads an envelope sees what the tools said only at its end.
#[derive(Debug)]
struct Notes {
    action: Action,
    recording: Option<Mutex<Recording>>,
    records: Mutex<Vec<RunRecord>>,
    stderr: Mutex<Vec<u8>>,
}

/// For the log of the envelope.
const MOST_SAID: usize = 64 << 10;

impl Watcher for Notes {
    fn recording(&self) -> Result<Option<Recording>, WorkError> {
        let Some(given) = &self.recording else {
            return Ok(None);
        };
        let given = given.lock().unwrap_or_else(PoisonError::into_inner);
        let mut recording = Recording::new(given.dir.clone());
        recording.tags = given.tags.clone();
        recording.parent = given.parent;
        recording.payload = given.payload.clone();
        recording.rules = given.rules.clone();
        Ok(Some(recording))
    }

    fn began(&self, _: &Begun<'_>) {}

    fn said(&self, stream: Stream, bytes: &[u8]) {
        // What a program prints is the output itself.
        if (self.action, stream) == (Action::Run, Stream::Stdout) {
            return;
        }
        let mut said = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST_SAID.saturating_sub(said.len()).min(bytes.len());
        said.extend_from_slice(bytes.get(..room).unwrap_or_default());
    }

    fn counted(&self, _: Counts) {}

    fn ended(&self, record: &RunRecord) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.push(record.clone());
    }
}
