//! A run as a client sees it: the same form whether it waits, goes on, has just ended, or comes from the history.

use std::collections::BTreeMap;
use std::time::Duration;

use cofferdam_contract::ending::{EndingRecord, Stream};
use cofferdam_contract::enforcement::Enforcement;
use cofferdam_contract::envelope::CachedFrom;
use cofferdam_contract::network_record::NetworkRecord;
use cofferdam_contract::record::{CapturedStream, Change, Denial, UsageRecord};
use cofferdam_store::log::Chunk;
use cofferdam_store::model::{Artifact, LeftOut, Outcome as StoredOutcome, StoredRun};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::fault::ErrorBody;
use crate::inputs::InputView;
use crate::language::Answer;
use crate::live::{Ended, Finished, Live, Outcome, Phase, Stage};

/// One run.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct RunView {
    pub(crate) run_id: String,
    /// The sender's own name for it.
    pub(crate) execution_id: Option<String>,
    pub(crate) state: State,
    /// `queued`, `running`, `success`, `failure`, `timeout`, `limit`, `canceled`, `never_started`, `interrupted`.
    pub(crate) status: String,
    pub(crate) kind: String,
    pub(crate) command: Vec<String>,
    pub(crate) tags: BTreeMap<String, String>,
    /// RFC 3339, UTC; null for runs that did not come through this daemon, or long ago.
    pub(crate) submitted_at: Option<String>,
    pub(crate) started_at: Option<String>,
    pub(crate) ended_at: Option<String>,
    pub(crate) queued_ms: Option<f64>,
    pub(crate) ending: Option<EndingRecord>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<String>,
    pub(crate) stdout: Option<CapturedStream>,
    pub(crate) stderr: Option<CapturedStream>,
    /// Whether `stdout` and `stderr` are as the program wrote them, or from the history, without secrets and shortened.
    pub(crate) source: Source,
    /// `compile` when the code did not compile and nothing was run.
    pub(crate) stage: Option<&'static str>,
    /// What the handler returned.
    pub(crate) return_value: Option<Value>,
    /// What the handler threw, or why it could not answer.
    pub(crate) raised: Option<RaisedView>,
    /// What became of each input, where the program was run for several; they are runs of their own, whose `parent` is this one.
    pub(crate) inputs: Option<Vec<InputView>>,
    /// What came of a project: `cofferdam.project/1`, as `cofferdam test --json` prints it. From the history only with the tests that failed. Its steps are runs of their own, whose `parent` is this one.
    pub(crate) project: Option<Value>,
    pub(crate) usage: Option<UsageRecord>,
    pub(crate) enforced_by: Enforcement,
    pub(crate) isolation: BTreeMap<String, String>,
    /// What was fixed for a run that was asked to be deterministic, and how; null otherwise.
    pub(crate) determinism: Option<BTreeMap<String, String>>,
    pub(crate) denials: Vec<Denial>,
    /// What went out and came in, and what was turned away; null for a run without network.
    pub(crate) network: Option<NetworkRecord>,
    pub(crate) changes: Option<Vec<Change>>,
    pub(crate) artifacts: Vec<ArtifactView>,
    pub(crate) left_out: Vec<LeftOutView>,
    /// Why it could not be run, where it could not.
    pub(crate) error: Option<ErrorBody>,
    /// Why it is not in the history, or not whole.
    pub(crate) unrecorded: Option<String>,
    /// The trace that it belongs to, as in `traceparent`; null when it comes from the history.
    pub(crate) trace_id: Option<String>,
    /// The run that gave this answer first, where no run was made for it; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cached: Option<CachedFrom>,
}

/// What was asked, where no run is made for it.
#[derive(Debug)]
pub(crate) struct AskedView {
    pub(crate) execution_id: Option<String>,
    pub(crate) kind: String,
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Queued,
    Running,
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    Live,
    History,
}

/// An error of a handler.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct RaisedView {
    /// The exception's type, or one of ours: `UnserializableResult`, `MissingHandler`, `NoAnswer`…
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) message: String,
    pub(crate) traceback: String,
}

/// A file that the run left in its workspace.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ArtifactView {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    pub(crate) media_type: String,
    /// `added` or `changed`.
    pub(crate) kind: &'static str,
}

/// A file that was not kept.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct LeftOutView {
    pub(crate) path: String,
    pub(crate) why: String,
}

impl RunView {
    pub(crate) fn of_live(live: &Live, request_id: &str) -> Self {
        let mut view = Self::empty(live.id.to_string(), Source::Live);
        view.execution_id.clone_from(&live.execution_id);
        view.kind = live.kind.as_str().to_owned();
        view.command.clone_from(&live.command);
        view.tags.clone_from(&live.tags);
        view.submitted_at = Some(live.submitted_at.to_string());
        view.trace_id = Some(live.trace.id());
        match live.phase() {
            Phase::Queued => {}
            Phase::Running { since, queued } => {
                view.state = State::Running;
                view.status = "running".to_owned();
                view.started_at = Some(since.to_string());
                view.queued_ms = Some(milliseconds(queued));
            }
            Phase::Ended(ended) => view.set_ended(&ended, request_id),
        }
        view
    }

    /// An answer for which no run was made; it goes by the run that gave it first.
    pub(crate) fn of_known(ended: &Ended, asked: AskedView, request_id: &str) -> Self {
        let mut view = Self::empty(ended.run_id().to_owned(), Source::Live);
        view.execution_id = asked.execution_id;
        view.kind = asked.kind;
        view.command = asked.command;
        view.set_ended(ended, request_id);
        view
    }

    pub(crate) fn of_stored(run: StoredRun, output: &[Chunk]) -> Self {
        let mut view = Self::empty(run.opening.run_id.to_string(), Source::History);
        view.kind = run.opening.kind.as_str().to_owned();
        view.command = run.opening.command;
        view.execution_id = run.opening.execution_id;
        view.tags = run.opening.tags;
        view.started_at = Some(run.opening.started_at.to_string());
        view.status = run.status.as_str().to_owned();
        view.stdout = Some(joined(output, Stream::Stdout, run.log.stdout.removed));
        view.stderr = Some(joined(output, Stream::Stderr, run.log.stderr.removed));
        match run.outcome {
            StoredOutcome::Running => view.state = State::Running,
            StoredOutcome::Interrupted { noticed_at } => {
                view.state = State::Ended;
                view.ended_at = Some(noticed_at.to_string());
            }
            StoredOutcome::Ended(closing) => {
                view.state = State::Ended;
                view.ended_at = Some(closing.ended_at.to_string());
                view.ending = Some(closing.ending);
                view.exit_code = closing.exit_code;
                view.signal = closing.signal;
                view.usage = Some(closing.usage);
                view.enforced_by = closing.enforced_by;
                view.isolation = closing.isolation;
                view.determinism = closing.determinism;
                view.denials = closing.denials;
                view.network = closing.network;
                view.changes = closing.changes;
                view.artifacts = closing.artifacts.iter().map(ArtifactView::from).collect();
                view.left_out = closing.left_out.iter().map(LeftOutView::from).collect();
                view.project = closing
                    .results
                    .and_then(|mut results| results.get_mut("project").map(Value::take));
            }
        }
        view
    }

    /// For a list or the end of a stream, where the output is elsewhere.
    pub(crate) fn without_output(mut self) -> Self {
        self.stdout = None;
        self.stderr = None;
        self.inputs = self.inputs.map(|inputs| {
            let inputs = inputs.into_iter();
            inputs.map(InputView::without_output).collect()
        });
        self
    }

    fn empty(run_id: String, source: Source) -> Self {
        Self {
            run_id,
            execution_id: None,
            state: State::Queued,
            status: "queued".to_owned(),
            kind: String::new(),
            command: Vec::new(),
            tags: BTreeMap::new(),
            submitted_at: None,
            started_at: None,
            ended_at: None,
            queued_ms: None,
            ending: None,
            exit_code: None,
            signal: None,
            stdout: None,
            stderr: None,
            source,
            stage: None,
            return_value: None,
            raised: None,
            inputs: None,
            project: None,
            usage: None,
            enforced_by: Enforcement::default(),
            isolation: BTreeMap::new(),
            determinism: None,
            denials: Vec::new(),
            network: None,
            changes: None,
            artifacts: Vec::new(),
            left_out: Vec::new(),
            error: None,
            unrecorded: None,
            trace_id: None,
            cached: None,
        }
    }

    fn set_ended(&mut self, ended: &Ended, request_id: &str) {
        self.state = State::Ended;
        self.ended_at = Some(ended.at.to_string());
        self.queued_ms = Some(milliseconds(ended.queued));
        match &ended.outcome {
            Outcome::Finished(finished) => self.set_finished(finished),
            Outcome::CanceledInQueue => self.status = "canceled".to_owned(),
            Outcome::Expired => self.status = "timeout".to_owned(),
            Outcome::Failed(fault) => {
                self.status = "never_started".to_owned();
                self.error = Some(fault.body(request_id));
            }
        }
    }

    fn set_finished(&mut self, finished: &Finished) {
        let record = &finished.record;
        let ending = EndingRecord::from(&record.ending);
        self.status = status(&ending, record.exit_code).to_owned();
        self.ending = Some(ending);
        self.stage = match finished.stage {
            Stage::Compile => Some("compile"),
            Stage::Run => None,
        };
        (self.return_value, self.raised) = told(&finished.answer);
        self.inputs = finished
            .inputs
            .as_ref()
            .map(|inputs| inputs.iter().map(InputView::from).collect());
        self.project = finished.project.as_ref().map(|done| done.outcome.clone());
        self.started_at = Some(record.started_at.clone());
        self.ended_at = Some(record.ended_at.clone());
        self.exit_code = record.exit_code;
        self.signal.clone_from(&record.signal);
        self.stdout = Some(record.stdout.clone());
        self.stderr = Some(record.stderr.clone());
        self.usage = Some(record.usage);
        self.enforced_by = record.enforced_by.clone();
        self.isolation = record.isolation.clone();
        self.determinism.clone_from(&record.determinism);
        self.denials = record.denials.clone();
        self.network.clone_from(&record.network);
        self.changes = record.changes.clone();
        self.artifacts = finished.artifacts.iter().map(ArtifactView::from).collect();
        self.left_out = finished.left_out.iter().map(LeftOutView::from).collect();
        self.unrecorded.clone_from(&record.unrecorded);
        self.cached.clone_from(&record.cached);
    }
}

/// What a handler returned, and what it threw or why it could not answer.
pub(crate) fn told(answer: &Answer) -> (Option<Value>, Option<RaisedView>) {
    match answer {
        Answer::None => (None, None),
        Answer::Value(value) => (Some(value.clone()), None),
        Answer::Raised(raised) => (None, Some(raised.into())),
        Answer::Bad { why } => {
            let raised = RaisedView {
                kind: "NoAnswer".to_owned(),
                message: why.clone(),
                traceback: String::new(),
            };
            (None, Some(raised))
        }
    }
}

/// The same words as the history's.
pub(crate) fn status(ending: &EndingRecord, exit_code: Option<i32>) -> &'static str {
    match ending {
        EndingRecord::Exited if exit_code == Some(0) => "success",
        EndingRecord::Exited | EndingRecord::Signaled => "failure",
        EndingRecord::NeverStarted { .. } => "never_started",
        EndingRecord::Stopped { cause, .. } => match cause.as_str() {
            "wall_time" | "cpu_time" => "timeout",
            "canceled" => "canceled",
            _ => "limit",
        },
    }
}

impl From<&cofferdam_toolchain::Raised> for RaisedView {
    fn from(raised: &cofferdam_toolchain::Raised) -> Self {
        Self {
            kind: raised.kind.clone(),
            message: raised.message.clone(),
            traceback: raised.traceback.clone(),
        }
    }
}

impl From<&Artifact> for ArtifactView {
    fn from(artifact: &Artifact) -> Self {
        use cofferdam_store::model::ArtifactKind;
        Self {
            path: artifact.path.clone(),
            bytes: artifact.bytes,
            sha256: artifact.digest.to_string(),
            media_type: artifact.media_type.clone(),
            kind: match artifact.kind {
                ArtifactKind::Added => "added",
                ArtifactKind::Changed => "changed",
            },
        }
    }
}

impl From<&LeftOut> for LeftOutView {
    fn from(left_out: &LeftOut) -> Self {
        Self {
            path: left_out.path.clone(),
            why: left_out.why.clone(),
        }
    }
}

/// One stream of the chunks; `removed` is what the history cut out.
pub(crate) fn joined(chunks: &[Chunk], stream: Stream, removed: u64) -> CapturedStream {
    let bytes: Vec<u8> = chunks
        .iter()
        .filter(|chunk| chunk.stream == stream)
        .flat_map(|chunk| chunk.bytes.iter().copied())
        .collect();
    let kept = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    CapturedStream::new(&bytes, kept.saturating_add(removed))
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}
