//! What the history keeps of tests: enough to compare two runs by, and what failed.

use cofferdam_project::report::{Counts, Status, TestCase};
use serde_json::{Value, json};

use crate::outcome::{Outcome, ProjectOutcome, StepOutcome, Tests};

/// What a record can hold of it.
const MOST_CASES: usize = 10_000;
const MOST_WHOLE: usize = 1_000;
const LONGEST: usize = 200;

/// Each case with its name, its status and the beginning of its message.
pub(crate) fn cases<'a>(counts: Counts, tests: impl Iterator<Item = &'a TestCase>) -> Value {
    let short = |text: &Option<String>| {
        text.as_ref()
            .map(|text| text.chars().take(LONGEST).collect::<String>())
    };
    let case = |case: &TestCase| {
        json!({
            "name": case.name.chars().take(LONGEST).collect::<String>(),
            "suite": short(&case.suite),
            "status": case.status,
            "duration_ms": case.duration_ms,
            "message": short(&case.message),
        })
    };
    // Failures first: of what does not fit, they are missed most.
    let (failed, others): (Vec<&TestCase>, Vec<&TestCase>) =
        tests.partition(|case| case.status == Status::Failed);
    let tests = failed.into_iter().chain(others);
    let kept: Vec<Value> = tests.take(MOST_CASES).map(case).collect();
    json!({
        "counts": counts,
        "not_kept": counts.total.saturating_sub(kept.len()),
        "cases": kept,
    })
}

impl Outcome {
    /// All cases in short, and the outcome itself with only those whole that failed.
    pub fn kept(&self) -> Value {
        let mut kept = match self.counts {
            Some(counts) => {
                let tried = self.projects.iter().flat_map(|project| self.tried(project));
                cases(counts, tried.map(|tried| tried.case))
            }
            None => json!({}),
        };
        kept["project"] = json!(self.only_failed());
        kept
    }

    /// Without a copy of what is left out.
    fn only_failed(&self) -> Self {
        let projects = self.projects.iter().map(|project| ProjectOutcome {
            steps: project.steps.iter().map(StepOutcome::only_failed).collect(),
            ecosystem: project.ecosystem,
            verdict: project.verdict,
            manifest: project.manifest.clone(),
            name: project.name.clone(),
            detail: project.detail.clone(),
        });
        Self {
            projects: projects.collect(),
            coverage: self.coverage.clone(),
            warnings: self.warnings.clone(),
            flaky: self.flaky.clone(),
            ..*self
        }
    }
}

impl StepOutcome {
    fn only_failed(&self) -> Self {
        let diagnostics = self.diagnostics.iter().take(MOST_WHOLE);
        let failed = |tests: &Tests| {
            let failed = tests
                .tests
                .iter()
                .filter(|case| case.status == Status::Failed);
            Tests {
                counts: tests.counts,
                tests: failed.take(MOST_WHOLE).cloned().collect(),
                problems: tests.problems.clone(),
            }
        };
        Self {
            argv: self.argv.clone(),
            run_id: self.run_id.clone(),
            ending: self.ending.clone(),
            detail: self.detail.clone(),
            diagnostics: diagnostics.cloned().collect(),
            tests: self.tests.as_ref().map(failed),
            coverage: self.coverage.clone(),
            // Its run in the history has what it printed.
            printed: None,
            said: self.said.clone(),
            ..*self
        }
    }
}
