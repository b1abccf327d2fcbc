//! What the history keeps of tests: enough to compare two runs by, and what failed.

use cofferdam_project::report::{Counts, Status, TestCase};
use serde_json::{Value, json};

use crate::outcome::{Outcome, ProjectOutcome, Tests};

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
        let steps = self.projects.iter().flat_map(ProjectOutcome::last_attempts);
        let tests = steps.filter_map(|step| step.tests.as_ref());
        let mut kept = match self.counts {
            Some(counts) => cases(counts, tests.flat_map(|tests| &tests.tests)),
            None => json!({}),
        };
        let mut whole = self.clone();
        for step in whole.projects.iter_mut().flat_map(|one| &mut one.steps) {
            step.diagnostics.truncate(MOST_WHOLE);
            if let Some(tests) = &mut step.tests {
                only_failed(tests);
            }
        }
        kept["project"] = json!(whole);
        kept
    }
}

fn only_failed(tests: &mut Tests) {
    tests.tests.retain(|case| case.status == Status::Failed);
    tests.tests.truncate(MOST_WHOLE);
}
