//! What came of it, in the form that `--json` prints.

use cofferdam_contract::codes;
use cofferdam_contract::ending::Ending;
use cofferdam_contract::record::RunRecord;
use cofferdam_project::diagnostic::{Diagnostic, Severity};
use cofferdam_project::report::{Counts, TestCase, TestReport};
use cofferdam_project::{Action, Ecosystem, Project};
use serde::Serialize;

/// Everything, for all projects that were asked about.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) action: Action,
    pub(super) verdict: Verdict,
    pub(super) exit_code: u8,
    /// Null where nothing was tested.
    pub(super) counts: Option<Counts>,
    /// What a person should look at.
    pub(super) warnings: Vec<String>,
    /// Failed at first and passed at another attempt.
    pub(super) flaky: Vec<String>,
    pub(super) projects: Vec<ProjectOutcome>,
}

#[derive(Debug, Serialize)]
pub(super) struct ProjectOutcome {
    pub(super) manifest: String,
    /// Null where the project itself named the commands.
    pub(super) ecosystem: Option<Ecosystem>,
    pub(super) name: Option<String>,
    pub(super) verdict: Verdict,
    /// Why, where the steps do not say it themselves.
    pub(super) detail: Option<String>,
    pub(super) steps: Vec<StepOutcome>,
}

#[derive(Debug, Serialize)]
pub(super) struct StepOutcome {
    pub(super) argv: Vec<String>,
    /// Which step of its project, whatever the attempt.
    #[serde(skip)]
    pub(super) index: usize,
    pub(super) run_id: String,
    #[serde(flatten)]
    pub(super) ending: Ended,
    pub(super) wall_ms: f64,
    pub(super) attempt: u32,
    pub(super) verdict: Verdict,
    /// Why it is this verdict, where the tests and diagnostics do not say it themselves.
    pub(super) detail: Option<String>,
    pub(super) diagnostics: Vec<Diagnostic>,
    /// Null where no tests were expected.
    pub(super) tests: Option<Tests>,
    /// The end of what it said, where it failed and nothing of it could be understood.
    pub(super) said: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Ended {
    pub(super) ending: Ending,
    #[serde(rename = "exit_code")]
    pub(super) code: Option<i32>,
}

#[derive(Debug, Serialize)]
pub(super) struct Tests {
    pub(super) counts: Counts,
    #[serde(rename = "cases")]
    pub(super) tests: Vec<TestCase>,
    pub(super) problems: Vec<String>,
}

/// How it went; the worst of many counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// There was nothing to do.
    Nothing,
    Passed,
    Failed,
    /// It failed, and no test could be found in what it reported.
    Unreadable,
    /// A limit or a person ended it, or it never began.
    Stopped,
}

/// What a run and its tests come to together. Believes neither alone: a report can be forged or cut, and an exit code can be swallowed.
pub(super) fn judge(record: &RunRecord, tests: Option<&TestReport>) -> (Verdict, Option<String>) {
    let code = match &record.ending {
        Ending::Exited { code } => *code,
        Ending::Signaled { signal } => {
            let why = format!("ended by signal {signal}");
            return (Verdict::Failed, Some(why));
        }
        Ending::Stopped(cause) => return (Verdict::Stopped, Some(cause.explain())),
        Ending::NeverStarted(failure) => {
            return (Verdict::Stopped, Some(failure.message.clone()));
        }
    };
    let Some(tests) = tests else {
        return match code {
            0 => (Verdict::Passed, None),
            _ => (Verdict::Failed, None),
        };
    };
    let counts = tests.counts();
    match (code, counts.total, counts.failed) {
        (0, 0, _) => (Verdict::Passed, Some("no tests ran".to_owned())),
        (0, _, 0) => (Verdict::Passed, None),
        (0, _, _) => (
            Verdict::Failed,
            Some("it ended with code 0, and its report tells of failures".to_owned()),
        ),
        (_, 0, _) => {
            let why = tests
                .problems
                .first()
                .map_or_else(String::new, |why| format!(": {why}"));
            let why =
                format!("it ended with code {code}, and no test could be found in its report{why}");
            (Verdict::Unreadable, Some(why))
        }
        (_, _, 0) => (
            Verdict::Failed,
            Some(format!(
                "none of its tests failed, and it ended with code {code}"
            )),
        ),
        (_, _, _) => (Verdict::Failed, None),
    }
}

impl Verdict {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing to do",
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Unreadable => "unreadable",
            Self::Stopped => "stopped",
        }
    }
}

impl ProjectOutcome {
    pub(super) fn new(project: &Project) -> Self {
        Self {
            manifest: project.manifest.clone(),
            ecosystem: Some(project.ecosystem),
            name: project.name.clone(),
            verdict: Verdict::Nothing,
            detail: None,
            steps: Vec::new(),
        }
    }
}

impl StepOutcome {
    /// What the command line exits with for this step.
    pub(super) fn exit_code(&self) -> u8 {
        match self.verdict {
            Verdict::Nothing | Verdict::Passed => 0,
            Verdict::Failed | Verdict::Unreadable => 1,
            Verdict::Stopped => codes::exit_code(&self.ending.ending),
        }
    }

    pub(super) fn errors(&self) -> usize {
        self.diagnostics
            .iter()
            .filter(|found| found.severity == Severity::Error)
            .count()
    }
}
