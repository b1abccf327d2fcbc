//! The way through: unpack, run the steps, keep what came of them. The record of the request's run is about all of them together.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Mutex};

use cofferdam_contract::ending::{Ending, SetupFailure, SetupFailureKind};
use cofferdam_contract::request::{BackendName, WorkspaceAccess};
use cofferdam_project::Action;
use cofferdam_project::report::Budget;
use cofferdam_store::collect::Collected;
use cofferdam_store::private_dir::PrivateDir;
use cofferdam_workshop::{
    Bench, Engine, Outcome, Shelf, Together, Verdict, Watcher, Wish, WorkError, act, task,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::desk::Desk;
use super::unpack::{Unpacked, unpack};
use super::{Done, ProjectTask, keep};
use crate::fault::Fault;
use crate::kept;
use crate::live::{Finished, Live, Stage};
use crate::trace::RunPhase;
use crate::work::{Place, Work};

/// Below the data directory: what the operator has fetched for everybody's projects.
const CACHES: &str = "caches";

pub(crate) fn carry_out(
    work: &Work,
    task: &ProjectTask,
    live: &Live,
    place: Place<'_>,
    private: &PrivateDir,
) -> Result<Finished, Fault> {
    let started_at = Timestamp::now();
    let desk = Arc::new(Desk::new(live, place));
    let phase = live.trace.phase(RunPhase::Build);
    let unpacked = unpack(&task.source, work, private.path(), &desk, live, place)?;
    drop(phase);
    if let Unpacked::Stopped(mut record) = unpacked {
        record.run_id = live.id.to_string();
        kept::keep(place, live, work, &mut record);
        return Ok(Finished::without_files(*record, Stage::Run));
    }
    let phase = live.trace.phase(RunPhase::Run);
    let cancel = live.cancel.descriptor()?;
    let cancel = cancel.as_ref().map(|cancel| cancel.as_fd());
    let done = run(work, task, (live, cancel), place, private, &desk);
    drop(phase);
    let _phase = live.trace.phase(RunPhase::Record);
    let (outcome, ending) = match done {
        Ok(done) => done,
        Err(error) => {
            // Nothing has been run yet: it is refused as it would have been at the door.
            if desk.state().journal.is_none() {
                return Err(Fault::coded(error.code, in_request(&error.to_string())));
            }
            (None, never_started(&error))
        }
    };
    // Nothing to do is in the history too.
    desk.begin();
    let collected = match &outcome {
        Some(outcome) => keep::files(outcome, &task.keep, private.path(), &desk, place),
        None => Collected::default(),
    };
    let mut state = desk.state();
    let together = Together {
        run_id: live.id.to_string(),
        backend: BackendName::Native,
        records: &state.records,
        ending,
        stdout: state.stdout.captured(),
        stderr: state.stderr.captured(),
        started_at,
    };
    let mut record = together.record();
    let journal = state.journal.take();
    drop(state);
    let results = outcome.as_ref().map(Outcome::kept);
    if let Some(journal) = journal {
        record.unrecorded = keep::close(journal, &record, results, &collected, &desk);
    }
    Ok(Finished {
        artifacts: collected.artifacts,
        left_out: collected.left_out,
        project: outcome.map(|outcome| done_of(&outcome)),
        ..Finished::without_files(record, Stage::Run)
    })
}

type Ran = (Option<Outcome>, Ending);

fn run(
    work: &Work,
    task: &ProjectTask,
    (live, cancel): (&Live, Option<BorrowedFd<'_>>),
    place: Place<'_>,
    private: &PrivateDir,
    desk: &Arc<Desk>,
) -> Result<Ran, WorkError> {
    let budget = Arc::new(Mutex::new(Budget::shared()));
    let bench = |action: Action| Bench {
        action,
        root: private.path().to_owned(),
        cache: place.dir.path().join(CACHES),
        shelf: Shelf::Shared,
        data_dir: place.dir.clone(),
        access: WorkspaceAccess::ReadWrite,
        env: task.env.clone(),
        mounts: Vec::new(),
        waived: Vec::new(),
        backend: BackendName::Native,
        limits: work.limits.clone(),
        until: Some(live.deadline),
        together: None,
        host: place.host,
        cancel,
        usage: Some(Arc::clone(&live.usage)),
        watcher: Arc::clone(desk) as Arc<dyn Watcher>,
        carrier: Arc::new(Engine),
        stdin: None,
        budget: Arc::clone(&budget),
    };
    let mut outcome = None;
    if task.restore {
        let restored = act(&bench(Action::Restore), Wish::plain(Action::Restore))?;
        if restored.verdict > Verdict::Passed {
            outcome = Some(restored);
        }
    }
    let outcome = match outcome {
        Some(failed) => failed,
        None => match &task.task {
            Some(name) => self::task(&bench(Action::Build), name)?,
            None => act(&bench(task.wish.action), task.wish.clone())?,
        },
    };
    let state = desk.state();
    let last = state.records.last().map(|record| &record.ending);
    let ending = outcome.ending(last);
    drop(state);
    Ok((Some(outcome), ending))
}

/// In the words of the API instead of those of the command line.
fn in_request(text: &str) -> String {
    text.replace("--only", "project.only")
        .replace("--filter", "project.filter")
        .replace("NAME: ", "project.task: ")
        .replace("ARGS: ", "project.args: ")
        .replace("leave --fail-fast out", "leave fail_fast out")
        .replace("leave --coverage out", "leave coverage out")
        .replace("--fail-fast", "project.fail_fast")
        .replace("--coverage", "project.coverage")
        .replace("--retries", "project.retries")
        .replace("--repeat", "project.repeat")
}

fn never_started(error: &WorkError) -> Ending {
    let message = in_request(&error.to_string());
    tracing::warn!(
        code = error.code.as_str(),
        "a project could not be worked on to its end"
    );
    Ending::NeverStarted(SetupFailure {
        kind: SetupFailureKind::Sandbox,
        step: "work on the project".to_owned(),
        message,
        errno: None,
    })
}

fn done_of(outcome: &Outcome) -> Box<Done> {
    let mut value: Value = json!(outcome);
    if let Some(members) = value.as_object_mut() {
        members.insert("schema".to_owned(), json!(cofferdam_workshop::SCHEMA));
    }
    Box::new(Done {
        bytes: value.to_string().len(),
        outcome: value,
    })
}
