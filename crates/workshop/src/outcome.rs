//! What came of it, in the form that `--json` prints and the daemon answers with.

use cofferdam_contract::codes;
use cofferdam_contract::ending::{Ending, EndingRecord};
use cofferdam_contract::record::RunRecord;
use cofferdam_project::coverage::Covered;
use cofferdam_project::diagnostic::{Diagnostic, Severity};
use cofferdam_project::report::{Counts, TestCase, TestReport};
use cofferdam_project::{Action, Ecosystem, Project};
use serde::{Deserialize, Serialize};

/// The name of the form.
pub const SCHEMA: &str = "cofferdam.project/1";

/// Everything, for all projects that were asked about.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub action: Action,
    pub verdict: Verdict,
    pub exit_code: u8,
    /// Which attempt of a test counts, where there is more than one.
    #[serde(default)]
    pub counting: Counting,
    /// Null where nothing was tested.
    pub counts: Option<Counts>,
    /// Which lines the tests reached; null unless that was asked for and told.
    #[serde(default)]
    pub coverage: Option<Covered>,
    /// What a person should look at.
    pub warnings: Vec<String>,
    /// Failed at first and passed at another attempt.
    pub flaky: Vec<String>,
    pub projects: Vec<ProjectOutcome>,
}

/// Which attempt of a test counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counting {
    /// What passes at last has passed.
    #[default]
    LastAttempt,
    /// What does not pass each time has failed.
    WorstAttempt,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProjectOutcome {
    pub manifest: String,
    /// Null where the project itself named the commands.
    pub ecosystem: Option<Ecosystem>,
    pub name: Option<String>,
    pub verdict: Verdict,
    /// Why, where the steps do not say it themselves.
    pub detail: Option<String>,
    pub steps: Vec<StepOutcome>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepOutcome {
    pub argv: Vec<String>,
    /// Which step of its project, whatever the attempt.
    pub index: usize,
    pub run_id: String,
    #[serde(flatten)]
    pub ending: Ended,
    pub wall_ms: f64,
    pub attempt: u32,
    pub verdict: Verdict,
    /// Why it is this verdict, where the tests and diagnostics do not say it themselves.
    pub detail: Option<String>,
    pub diagnostics: Vec<Diagnostic>,
    /// Null where no tests were expected.
    pub tests: Option<Tests>,
    /// Which lines its tests reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<Covered>,
    /// Whether it is the project's program, and no tool.
    #[serde(skip)]
    pub is_program: bool,
    /// What a program printed on its standard output, up to 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed: Option<String>,
    /// The end of what it said, where it failed and nothing of it could be understood.
    pub said: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ended {
    pub ending: EndingRecord,
    #[serde(rename = "exit_code")]
    pub code: Option<i32>,
    /// What a command line exits with after it.
    #[serde(skip)]
    pub exits: u8,
}

impl From<&Ending> for Ended {
    fn from(ending: &Ending) -> Self {
        Self {
            ending: EndingRecord::from(ending),
            code: match ending {
                Ending::Exited { code } => Some(*code),
                Ending::Signaled { .. } | Ending::Stopped(_) | Ending::NeverStarted(_) => None,
            },
            exits: codes::exit_code(ending),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tests {
    pub counts: Counts,
    #[serde(rename = "cases")]
    pub tests: Vec<TestCase>,
    pub problems: Vec<String>,
}

/// How it went; the worst of many counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There was nothing to do.
    Nothing,
    Passed,
    Failed,
    /// It failed, and no test could be found in what it reported; or it did not, and its report is missing or ends in the middle.
    Unreadable,
    /// A limit or a person ended it, or it never began.
    Stopped,
}

/// What a run and its tests come to together. Believes neither alone: a report can be forged or cut, and an exit code can be swallowed.
pub(crate) fn judge(record: &RunRecord, tests: Option<&TestReport>) -> (Verdict, Option<String>) {
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
        (0, _, 0) if tests.cut.is_some() => {
            let why = tests.cut.as_deref().unwrap_or_default();
            let why = format!("it ended with code 0 before its tests had: {why}");
            (Verdict::Unreadable, Some(why))
        }
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
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing to do",
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Unreadable => "unreadable",
            Self::Stopped => "stopped",
        }
    }
}

impl Tests {
    /// Those that are counted and not kept one by one.
    pub(crate) fn beyond(&self) -> Option<Counts> {
        let mut kept = Counts::default();
        for case in &self.tests {
            kept.one(case.status);
        }
        (self.counts.total > kept.total).then(|| Counts {
            total: self.counts.total - kept.total,
            passed: self.counts.passed.saturating_sub(kept.passed),
            failed: self.counts.failed.saturating_sub(kept.failed),
            skipped: self.counts.skipped.saturating_sub(kept.skipped),
        })
    }
}

impl ProjectOutcome {
    pub(crate) fn new(project: &Project) -> Self {
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
    pub(crate) fn exit_code(&self) -> u8 {
        match self.verdict {
            Verdict::Nothing | Verdict::Passed => 0,
            // A program is somebody's own, and so is what its codes mean.
            Verdict::Failed if self.is_program => self.ending.exits,
            Verdict::Failed | Verdict::Unreadable => 1,
            Verdict::Stopped => self.ending.exits,
        }
    }

    pub fn errors(&self) -> usize {
        self.diagnostics
            .iter()
            .filter(|found| found.severity == Severity::Error)
            .count()
    }
}
