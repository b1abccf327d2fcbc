//! Tests that are run more than once: how often, what the attempts come to together, and which tests are flaky.

use std::collections::{BTreeMap, HashMap, HashSet};

use cofferdam_project::Action;
use cofferdam_project::coverage::Covered;
use cofferdam_project::report::{Counts, Status, TestCase, TestReport};

use crate::outcome::{Counting, Outcome, ProjectOutcome, StepOutcome, Tests, Verdict};

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
    let counting = match attempts {
        Attempts::One | Attempts::Retry(_) => Counting::LastAttempt,
        Attempts::Repeat(_) => Counting::WorstAttempt,
    };
    let tested: Vec<&StepOutcome> = projects
        .iter()
        .flat_map(ProjectOutcome::last_attempts)
        .collect();
    let counts = count(&projects, counting);
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
        Verdict::Failed | Verdict::Unreadable => {
            worst.map(StepOutcome::exit_code).max().unwrap_or(1)
        }
        // One that never began has no step that says why.
        Verdict::Stopped => {
            let never_began = projects
                .iter()
                .any(|project| project.verdict == verdict && !project.has_stopped());
            let own = never_began.then_some(NEVER_BEGAN);
            worst
                .map(StepOutcome::exit_code)
                .chain(own)
                .max()
                .unwrap_or(NEVER_BEGAN)
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
        counting,
        counts,
        coverage,
        warnings: Vec::new(),
        flaky,
        projects,
    }
}

/// As for everything that could not be begun.
const NEVER_BEGAN: u8 = 125;

/// Of a test that was tried more than once, what counts counts once.
fn count(projects: &[ProjectOutcome], counting: Counting) -> Option<Counts> {
    let mut counts: Option<Counts> = None;
    for project in projects {
        for last in project.last_attempts() {
            let Some(tests) = &last.tests else {
                continue;
            };
            let sum = counts.get_or_insert_default();
            if counting == Counting::LastAttempt || last.attempt == 1 {
                sum.add(tests.counts);
                continue;
            }
            // Where not all were kept one by one, nobody knows which is which: the attempt with most failures stands for all.
            let attempts = project.steps.iter().filter(|step| step.index == last.index);
            let attempts: Vec<&Tests> = attempts.filter_map(|step| step.tests.as_ref()).collect();
            if attempts.iter().any(|tests| tests.beyond().is_some()) {
                let worst = attempts
                    .iter()
                    .max_by_key(|tests| (tests.counts.failed, tests.counts.total));
                sum.add(worst.map_or_else(Counts::default, |tests| tests.counts));
                continue;
            }
            for tried in project.tried_at(last.index) {
                sum.one(tried.case.status);
            }
        }
    }
    counts
}

/// A test with all attempts at it.
#[derive(Debug, Clone, Copy)]
pub struct Tried<'a> {
    /// The attempt that counts.
    pub case: &'a TestCase,
    pub attempts: usize,
    pub failed: usize,
}

impl Outcome {
    /// All tests as they count, as a report. One that was tried more than once says how often it failed.
    pub fn as_they_count(&self) -> TestReport {
        let mut all = TestReport::default();
        for tried in self.projects.iter().flat_map(|project| self.tried(project)) {
            let mut case = tried.case.clone();
            if tried.attempts > 1 && tried.failed > 0 {
                let message = case.message.unwrap_or_default();
                let (failed, attempts) = (tried.failed, tried.attempts);
                case.message = Some(format!("{failed} of {attempts} failed: {message}"));
            }
            all.tests.push(case);
        }
        if let Some(counts) = self.counts {
            let kept = all.counts();
            all.beyond.total = counts.total.saturating_sub(kept.total);
            all.beyond.passed = counts.passed.saturating_sub(kept.passed);
            all.beyond.failed = counts.failed.saturating_sub(kept.failed);
            all.beyond.skipped = counts.skipped.saturating_sub(kept.skipped);
        }
        all
    }

    /// The tests of a project as they count, each once.
    pub fn tried<'a>(&self, project: &'a ProjectOutcome) -> Vec<Tried<'a>> {
        let last = project.last_attempts();
        match self.counting {
            Counting::LastAttempt => last
                .iter()
                .filter_map(|step| step.tests.as_ref())
                .flat_map(|tests| &tests.tests)
                .map(|case| Tried {
                    case,
                    attempts: 1,
                    failed: usize::from(case.status == Status::Failed),
                })
                .collect(),
            Counting::WorstAttempt => last
                .iter()
                .flat_map(|step| project.tried_at(step.index))
                .collect(),
        }
    }
}

impl ProjectOutcome {
    /// The tests of one step over all attempts: of each the worst one, in the order in which they were first told.
    fn tried_at(&self, index: usize) -> Vec<Tried<'_>> {
        let mut all: Vec<Tried<'_>> = Vec::new();
        let mut places = HashMap::new();
        for step in self.steps.iter().filter(|step| step.index == index) {
            // Tests of one name in one attempt are different tests.
            let mut nth: HashMap<_, usize> = HashMap::new();
            for case in step.tests.iter().flat_map(|tests| &tests.tests) {
                // Where a test stands is told by some only when it fails.
                let name = (case.suite.as_deref(), case.name.as_str());
                let number = nth.entry(name).or_default();
                *number += 1;
                let at = *places.entry((name, *number)).or_insert(all.len());
                match all.get_mut(at) {
                    Some(known) => known.add(case),
                    None => all.push(Tried {
                        case,
                        attempts: 1,
                        failed: usize::from(case.status == Status::Failed),
                    }),
                }
            }
        }
        // Where not all were kept, those that are not there were tried as often as the others.
        let steps = || self.steps.iter().filter(|step| step.index == index);
        let is_cut = |step: &StepOutcome| {
            let tests = step.tests.as_ref();
            tests.is_some_and(|tests| tests.beyond().is_some())
        };
        if steps().any(is_cut) {
            let attempts = steps().count();
            for tried in &mut all {
                tried.attempts = attempts;
            }
        }
        all
    }

    /// Whether one of its steps was stopped.
    fn has_stopped(&self) -> bool {
        self.steps
            .iter()
            .any(|step| step.verdict == Verdict::Stopped)
    }

    /// The last attempt of each step.
    pub fn last_attempts(&self) -> Vec<&StepOutcome> {
        let mut last: BTreeMap<usize, &StepOutcome> = BTreeMap::new();
        for step in &self.steps {
            last.insert(step.index, step);
        }
        last.into_values().collect()
    }
}

impl<'a> Tried<'a> {
    fn add(&mut self, case: &'a TestCase) {
        let rank = |status| match status {
            Status::Skipped => 0,
            Status::Passed => 1,
            Status::Failed => 2,
        };
        self.attempts += 1;
        self.failed += usize::from(case.status == Status::Failed);
        if rank(case.status) > rank(self.case.status) {
            self.case = case;
        }
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
    // What could not be worked on to its end is not forgiven by what was done before.
    if project.verdict != Verdict::Stopped || project.has_stopped() {
        project.verdict = verdicts.into_iter().max().unwrap_or(project.verdict);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A project with one step, tried as often as there are lists of tests; `+` passes, `-` fails, `~` is skipped.
    fn project(attempts: &[&str]) -> ProjectOutcome {
        let step = |(at, cases): (usize, &&str)| -> Value {
            let cases = cases.split_whitespace().map(|word| {
                let status = match word.chars().last() {
                    Some('+') => "passed",
                    Some('-') => "failed",
                    _ => "skipped",
                };
                json!({ "name": word.trim_end_matches(['+', '-', '~']), "status": status })
            });
            let cases: Vec<Value> = cases.collect();
            let of = |status: &str| cases.iter().filter(|case| case["status"] == status).count();
            let counts = json!({ "total": cases.len(), "passed": of("passed"), "failed": of("failed"), "skipped": of("skipped") });
            let verdict = if of("failed") > 0 { "failed" } else { "passed" };
            json!({
                "argv": ["t"], "index": 0, "run_id": "r", "ending": {"kind": "exited", "code": 0}, "exit_code": 0,
                "wall_ms": 1.0, "attempt": at + 1, "verdict": verdict, "detail": null, "diagnostics": [],
                "tests": { "counts": counts, "cases": cases, "problems": [] }, "said": null,
            })
        };
        let steps: Vec<Value> = attempts.iter().enumerate().map(step).collect();
        let verdict = if steps.iter().any(|step| step["verdict"] == "failed") {
            "failed"
        } else {
            "passed"
        };
        let project = json!({
            "manifest": "m", "ecosystem": null, "name": null, "verdict": verdict, "detail": null, "steps": steps,
        });
        serde_json::from_value(project).unwrap()
    }

    #[test]
    fn of_tests_that_are_repeated_each_is_told_with_all_its_attempts() {
        let attempts = ["a+ b+ c~", "a- b+ c~", "a+ b+ c+", "a- b+ d-"];
        let outcome = sum_up(Action::Test, vec![project(&attempts)], Attempts::Repeat(4));
        let told: Vec<(&str, Status, usize, usize)> = outcome
            .tried(&outcome.projects[0])
            .into_iter()
            .map(|tried| {
                let case = tried.case;
                (
                    case.name.as_str(),
                    case.status,
                    tried.attempts,
                    tried.failed,
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                ("a", Status::Failed, 4, 2),
                ("b", Status::Passed, 4, 0),
                ("c", Status::Passed, 3, 0),
                ("d", Status::Failed, 1, 1),
            ]
        );
        let counts = outcome.counts.unwrap();
        assert_eq!((counts.total, counts.passed, counts.failed), (4, 2, 2));
        assert_eq!(outcome.exit_code, 1);
    }

    #[test]
    fn of_tests_that_are_retried_the_last_attempt_counts() {
        let outcome = sum_up(
            Action::Test,
            vec![project(&["a- b+", "a+ b+"])],
            Attempts::Retry(1),
        );
        assert_eq!(outcome.flaky, ["a"]);
        assert_eq!(outcome.counts.unwrap().failed, 0);
        assert_eq!(outcome.tried(&outcome.projects[0]).len(), 2);
    }

    #[test]
    fn a_project_that_could_not_be_worked_on_to_its_end_is_not_forgiven() {
        let mut broken = project(&["a- b+", "a+ b+"]);
        broken.verdict = Verdict::Stopped;
        let outcome = sum_up(Action::Test, vec![broken], Attempts::Retry(1));
        assert_eq!(
            (outcome.verdict, outcome.exit_code),
            (Verdict::Stopped, 125)
        );
        assert_eq!(outcome.flaky, ["a"]);
    }

    #[test]
    fn one_that_never_began_is_told_beside_the_others() {
        let mut never = project(&[]);
        never.verdict = Verdict::Stopped;
        let outcome = sum_up(Action::Test, vec![project(&["a+"]), never], Attempts::One);
        assert_eq!(
            (outcome.verdict, outcome.exit_code),
            (Verdict::Stopped, 125)
        );
        assert_eq!(outcome.counts.unwrap().passed, 1);
    }
}
