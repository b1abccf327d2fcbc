//! One input's result as a client sees it.

use cofferdam_contract::ending::EndingRecord;
use cofferdam_contract::record::{CapturedStream, UsageRecord};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{InputOutcome, InputResult};
use crate::view::{ArtifactView, RaisedView, status, told};

/// What became of one input, in the order in which they were sent.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct InputView {
    /// Its own run in the history, whose parent is the run of the request; null when it was not run.
    pub(crate) run_id: Option<String>,
    /// `success`, `failure`, `timeout`, `limit`, `canceled`, `never_started`, or `not_run`.
    pub(crate) status: String,
    pub(crate) ending: Option<EndingRecord>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<String>,
    pub(crate) stdout: Option<CapturedStream>,
    pub(crate) stderr: Option<CapturedStream>,
    /// What the handler returned.
    pub(crate) return_value: Option<Value>,
    /// What the handler threw, or why it could not answer.
    pub(crate) raised: Option<RaisedView>,
    pub(crate) usage: Option<UsageRecord>,
    pub(crate) artifacts: Vec<ArtifactView>,
    /// Why it was not run.
    pub(crate) why: Option<String>,
}

impl From<&InputOutcome> for InputView {
    fn from(outcome: &InputOutcome) -> Self {
        match outcome {
            InputOutcome::Ran(result) => Self::ran(result),
            InputOutcome::NotRun { why } => Self::not_run(why),
        }
    }
}

impl InputView {
    fn ran(result: &InputResult) -> Self {
        let record = &result.record;
        let ending = EndingRecord::from(&record.ending);
        let (return_value, raised) = told(&result.answer);
        Self {
            run_id: Some(record.run_id.clone()),
            status: status(&ending, record.exit_code).to_owned(),
            ending: Some(ending),
            exit_code: record.exit_code,
            signal: record.signal.clone(),
            stdout: Some(record.stdout.clone()),
            stderr: Some(record.stderr.clone()),
            return_value,
            raised,
            usage: Some(record.usage),
            artifacts: result.artifacts.iter().map(ArtifactView::from).collect(),
            why: None,
        }
    }

    fn not_run(why: &str) -> Self {
        Self {
            run_id: None,
            status: "not_run".to_owned(),
            ending: None,
            exit_code: None,
            signal: None,
            stdout: None,
            stderr: None,
            return_value: None,
            raised: None,
            usage: None,
            artifacts: Vec::new(),
            why: Some(why.to_owned()),
        }
    }

    pub(crate) fn without_output(mut self) -> Self {
        self.stdout = None;
        self.stderr = None;
        self
    }
}
