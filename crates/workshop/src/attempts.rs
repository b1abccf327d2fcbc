//! Tests that are run more than once: how often, what the attempts come to together, and which tests are flaky.

use std::collections::{BTreeMap, HashSet};

use cofferdam_project::Action;
use cofferdam_project::coverage::Covered;
use cofferdam_project::report::{Counts, Status, TestCase};

use crate::outcome::{Outcome, ProjectOutcome, StepOutcome, Verdict};

/// How often tests are run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Attempts {
    #[default]
    One,
    /// Up to this many times more, while something fails.
    Retry(u32),
    /// This many times, whatever happens.
    Repeat(u32),
}

pub(crate) fn sum_up(
    action: Action,
    mut projects: Vec<ProjectOutcome>,
    attempts: Attempts,
) -> Outcome {
    let mut flaky = Vec::new();
    if let Attempts::Retry(_) = attempts {
        for project in &mut projects {
            forgive(project, &mut flaky);
        }
    }
    let tested: Vec<&StepOutcome> = projects
        .iter()
        .flat_map(ProjectOutcome::last_attempts)
        .collect();
    let mut counts = None;
    for tests in tested.iter().filter_map(|step| step.tests.as_ref()) {
        let sum: &mut Counts = counts.get_or_insert_default();
        sum.total += tests.counts.total;
        sum.passed += tests.counts.passed;
        sum.failed += tests.counts.failed;
        sum.skipped += tests.counts.skipped;
    }
    let verdict = projects
        .iter()
        .map(|project| project.verdict)
        .max()
        .unwrap_or(Verdict::Nothing);
    let worst = projects
        .iter()
        .flat_map(|project| &project.steps)
        .filter(|step| step.verdict == verdict);
    let exit_code = match verdict {
        Verdict::Nothing | Verdict::Passed => 0,
        Verdict::Failed | Verdict::Unreadable | Verdict::Stopped => {
            worst.map(StepOutcome::exit_code).max().unwrap_or(1)
        }
    };
    let mut coverage: Option<Covered> = None;
    for read in tested.iter().filter_map(|step| step.coverage.as_ref()) {
        match &mut coverage {
            Some(all) => all.add(read),
            None => coverage = Some(read.clone()),
        }
    }
    Outcome {
        action,
        verdict,
        exit_code,
        counts,
        coverage,
        warnings: Vec::new(),
        flaky,
        projects,
    }
}

impl ProjectOutcome {
    /// The last attempt of each step.
    pub fn last_attempts(&self) -> Vec<&StepOutcome> {
        let mut last: BTreeMap<usize, &StepOutcome> = BTreeMap::new();
        for step in &self.steps {
            last.insert(step.index, step);
        }
        last.into_values().collect()
    }
}

/// With retries the last attempt counts, and what failed in an earlier one and passed in the last is flaky.
fn forgive(project: &mut ProjectOutcome, flaky: &mut Vec<String>) {
    let key = |case: &TestCase| (case.suite.clone(), case.name.clone());
    let verdicts: Vec<Verdict> = project
        .last_attempts()
        .iter()
        .map(|step| step.verdict)
        .collect();
    for last in project.last_attempts() {
        let earlier = project
            .steps
            .iter()
            .filter(|step| step.index == last.index && step.attempt < last.attempt);
        let failed: HashSet<_> = earlier
            .filter_map(|step| step.tests.as_ref())
            .flat_map(|tests| {
                tests
                    .tests
                    .iter()
                    .filter(|case| case.status == Status::Failed)
                    .map(key)
            })
            .collect();
        let cases = last.tests.iter().flat_map(|tests| &tests.tests);
        for case in
            cases.filter(|case| case.status == Status::Passed && failed.contains(&key(case)))
        {
            flaky.push(case.full_name());
        }
    }
    project.verdict = verdicts.into_iter().max().unwrap_or(project.verdict);
}
