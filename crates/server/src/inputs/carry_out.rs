//! Running each input in turn. Every one sees the compiled program as it was compiled: what it writes goes into a layer of its own and is gone before the next begins.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_contract::ending::{Ending, SetupFailure, SetupFailureKind, StopCause, Stream};
use cofferdam_contract::limits::Limits;
use cofferdam_contract::record::{CapturedStream, FinishedRun, RunRecord};
use cofferdam_contract::request::{BackendName, WorkspaceAccess};
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_contract::usage::Usage;
use cofferdam_engine::pipeline::{self, KeptFiles};
use cofferdam_store::model::Artifact;
use cofferdam_store::private_dir::PrivateDir;
use cofferdam_workshop::used;
use jiff::Timestamp;

use crate::fault::Fault;
use crate::language::{self, Answer};
use crate::live::Live;
use crate::work::{Place, Work, input_of, streams, within};
use crate::workspace::PlacedFile;

/// What is to be run, checked.
#[derive(Debug, Clone)]
pub(crate) struct Inputs {
    pub(crate) each: Vec<InputTask>,
    /// What all of them may write and answer together.
    pub(crate) output: Bytes,
}

/// One input of the program.
#[derive(Debug, Clone)]
pub(crate) struct InputTask {
    pub(crate) argv: Vec<OsString>,
    pub(crate) stdin: Vec<u8>,
    /// For its handler.
    pub(crate) event: Option<PlacedFile>,
    pub(crate) limits: Limits,
}

/// What became of it.
#[derive(Debug)]
pub(crate) enum InputOutcome {
    Ran(Box<InputResult>),
    NotRun { why: String },
}

#[derive(Debug)]
pub(crate) struct InputResult {
    pub(crate) record: RunRecord,
    pub(crate) answer: Answer,
    pub(crate) artifacts: Vec<Artifact>,
}

impl Inputs {
    /// The most that one of them needs; `None` for no limit.
    pub(crate) fn memory(&self) -> Option<Bytes> {
        let each = self.each.iter().map(|input| input.limits.memory.at_most());
        each.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// What they may take together, one after the other.
    pub(crate) fn wall_time(&self, without_limit: Duration) -> Duration {
        self.each.iter().fold(Duration::ZERO, |sum, input| {
            let own = input.limits.wall_time.at_most().unwrap_or(without_limit);
            sum.saturating_add(own)
        })
    }
}

/// Runs all of them, in order. The record is about them together: the first that did not end well says how it ended.
pub(crate) fn carry_out(
    work: &Work,
    inputs: &Inputs,
    live: &Live,
    place: Place<'_>,
    private: &PrivateDir,
) -> Result<(RunRecord, Vec<InputOutcome>), Fault> {
    let started_at = Timestamp::now();
    let mut left = inputs.output.get();
    let mut outcomes = Vec::with_capacity(inputs.each.len());
    let mut stopped: Option<StopCause> = None;
    let mut fault: Option<SetupFailure> = None;
    for input in &inputs.each {
        stopped = stopped.or_else(|| no_more(left, inputs, live));
        if let Some(cause) = &stopped {
            let why = reason(cause, inputs);
            outcomes.push(InputOutcome::NotRun { why });
            continue;
        }
        let result = match run_one(work, input, left, live, place, private) {
            Ok(result) => result,
            // What ran before it stays a result.
            Err(failed) if !outcomes.is_empty() => {
                let why = failed.detail;
                fault.get_or_insert_with(|| never_started(outcomes.len(), &why));
                outcomes.push(InputOutcome::NotRun { why });
                continue;
            }
            Err(fault) => return Err(fault),
        };
        left = left.saturating_sub(result.weight());
        if result.record.ending == Ending::Stopped(StopCause::Canceled) {
            stopped = Some(StopCause::Canceled);
        }
        outcomes.push(InputOutcome::Ran(Box::new(result)));
    }
    let record = together(live, &outcomes, stopped, fault, started_at);
    Ok((record, outcomes))
}

/// Why the next one cannot be run.
fn no_more(left: u64, inputs: &Inputs, live: &Live) -> Option<StopCause> {
    if left == 0 {
        return Some(StopCause::Output {
            limit: inputs.output,
            stream: Stream::Stdout,
        });
    }
    (Instant::now() >= live.deadline).then(|| StopCause::WallTime {
        limit: live.deadline.saturating_duration_since(live.arrived),
    })
}

fn reason(cause: &StopCause, inputs: &Inputs) -> String {
    match cause {
        StopCause::Canceled => "the run was cancelled".to_owned(),
        StopCause::Output { .. } => format!(
            "the inputs before it wrote all that they may write together, {} bytes",
            inputs.output.get()
        ),
        _ => "the deadline of the run had passed".to_owned(),
    }
}

fn run_one(
    work: &Work,
    input: &InputTask,
    left: u64,
    live: &Live,
    place: Place<'_>,
    private: &PrivateDir,
) -> Result<InputResult, Fault> {
    if let Some(event) = &input.event {
        private.replace(&event.path, &event.content, event.executable.mode())?;
    }
    let mut request = work.request(Some(private.path().to_owned()))?;
    request.argv.clone_from(&input.argv);
    request.limits.clone_from(&input.limits);
    request.limits.wall_time = within(request.limits.wall_time, live.deadline);
    let output = request.limits.output.at_most().map_or(left, Bytes::get);
    request.limits.output = Cap::AtMost(Bytes::new(output.min(left)));
    if let Some(workspace) = &mut request.workspace {
        workspace.access = WorkspaceAccess::CopyOnWrite;
    }
    let files = KeptFiles::default();
    let mut recording = place.recording();
    recording.files = Some(files.clone());
    recording.artifacts = place.kept.artifacts;
    recording.sender = Some(live.tenant.clone());
    recording.kind = work.kind;
    recording.tags.clone_from(&work.tags);
    recording.parent = Some(live.id);
    let cancel = live.cancel.descriptor()?;
    let cancel = cancel.as_ref().map(|cancel| cancel.as_fd());
    let stdin = input_of(input.stdin.clone());
    let usage = Arc::clone(&live.usage);
    let mut streams = streams(&request, stdin, recording, cancel, usage);
    let channel = work.channel();
    streams.result = channel.is_open().then_some(language::KEEP_OF_CHANNEL);
    let mut record = pipeline::run(work.grant(request)?, streams, place.host)?;
    let answer = language::answer(channel, &record);
    record.result = None;
    // Nobody is shown them, and there may be very many.
    record.changes = None;
    let (artifacts, _) = files.told();
    Ok(InputResult {
        record,
        answer,
        artifacts,
    })
}

impl InputResult {
    /// What it takes of the bytes for all.
    fn weight(&self) -> u64 {
        let kept = self.record.stdout.data.len() + self.record.stderr.data.len();
        u64::try_from(kept + self.answer.weight()).unwrap_or(u64::MAX)
    }
}

/// Of all together: well only where each was run and ended well.
fn ending_of<'a>(
    mut each: impl Iterator<Item = &'a Ending>,
    fault: Option<SetupFailure>,
    stopped: Option<StopCause>,
) -> Ending {
    let well = Ending::Exited { code: 0 };
    match (each.find(|ending| **ending != well), fault, stopped) {
        (Some(ending), _, _) => ending.clone(),
        // It came before whatever stopped the rest.
        (None, Some(fault), _) => Ending::NeverStarted(fault),
        (None, None, Some(cause)) => Ending::Stopped(cause),
        (None, None, None) => well,
    }
}

fn never_started(index: usize, why: &str) -> SetupFailure {
    SetupFailure {
        kind: SetupFailureKind::Sandbox,
        step: format!("inputs[{index}]"),
        message: format!("inputs[{index}] could not be run: {why}"),
        errno: None,
    }
}

fn together(
    live: &Live,
    outcomes: &[InputOutcome],
    stopped: Option<StopCause>,
    fault: Option<SetupFailure>,
    started_at: Timestamp,
) -> RunRecord {
    let records = || {
        outcomes.iter().filter_map(|outcome| match outcome {
            InputOutcome::Ran(result) => Some(&result.record),
            InputOutcome::NotRun { .. } => None,
        })
    };
    let ending = ending_of(records().map(|record| &record.ending), fault, stopped);
    let first = records().next();
    let mut record = RunRecord::new(FinishedRun {
        run_id: live.id.to_string(),
        backend: BackendName::Native,
        ending,
        stdout: CapturedStream::whole(b""),
        stderr: CapturedStream::whole(b""),
        result: None,
        usage: Usage::default(),
        enforced_by: first
            .map(|record| record.enforced_by.clone())
            .unwrap_or_default(),
        isolation: first
            .map(|record| record.isolation.clone())
            .unwrap_or_default(),
        denials: Vec::new(),
        changes: None,
        started_at,
        ended_at: Timestamp::now(),
    });
    record.usage = used(records().map(|record| &record.usage));
    // Of the first, which says it of all of them: each began anew.
    record.determinism = first.and_then(|record| record.determinism.clone());
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_together_ended_well_only_where_each_was_run_and_did() {
        let well = Ending::Exited { code: 0 };
        let badly = Ending::Exited { code: 3 };
        let fault = || Some(never_started(1, "no control groups"));
        let canceled = || Some(StopCause::Canceled);
        let of = |each: &[Ending], fault, stopped| ending_of(each.iter(), fault, stopped);
        let (one, two) = ([well.clone()], [well.clone(), badly.clone()]);
        assert_eq!(of(&one, None, None), well);
        assert_eq!(of(&two, None, canceled()), badly);
        assert_eq!(of(&two, fault(), None), badly);
        assert_eq!(
            of(&one, None, canceled()),
            Ending::Stopped(StopCause::Canceled)
        );
        let Ending::NeverStarted(failure) = of(&one, fault(), canceled()) else {
            panic!("an input that could not be run");
        };
        assert_eq!(
            failure.message,
            "inputs[1] could not be run: no control groups"
        );
    }
}
