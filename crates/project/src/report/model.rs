//! What every format becomes: cases with a status. Counts are made from the cases and never read.

use serde::{Deserialize, Serialize};

use super::budget::{self, Budget};
use super::{events, go_json, jest, junit, libtest, mocha, tap, text, trx, vstest};

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    Trx,
    /// In all dialects.
    Junit,
    /// Jest's and Vitest's JSON.
    Jest,
    Mocha,
    /// Versions 13 and 14.
    Tap,
    GoJson,
    /// What `cargo test` prints.
    LibtestText,
    /// What nextest prints with `libtest-json`.
    LibtestJson,
    /// What `pytest -v` prints, while its tests run.
    PytestText,
    /// What `python -m unittest -v` prints.
    UnittestText,
    /// What our own reporters for Jest, Vitest and Mocha write, line by line.
    Events,
    /// What `dotnet test` prints while its tests run.
    VstestText,
}

/// The tests of one report.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TestReport {
    pub tests: Vec<TestCase>,
    /// What went wrong beside the tests: a file that could not be loaded, a report that ends in the middle.
    pub problems: Vec<String>,
    /// Why it is not all of it: the report is not there, or ends in the middle.
    #[serde(skip)]
    pub cut: Option<String>,
    /// Tests that are counted and not kept one by one: there are too many of them.
    #[serde(skip)]
    pub beyond: Counts,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestCase {
    pub name: String,
    /// The class, module or group that it stands in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    pub status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Passed,
    Failed,
    Skipped,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub total: usize,
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
}

/// Why a report could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadReport(pub(crate) String);

/// The largest report that is read.
pub const MAX_REPORT: u64 = 64 << 20;
/// Names, messages and stacks are cut here: one test must not fill the history.
const MAX_NAME: usize = 2 << 10;
pub(super) const MAX_TEXT: usize = 32 << 10;
const MAX_PROBLEMS: usize = 100;

/// Reads a report of a known format that stands alone.
pub fn parse(format: Format, bytes: &[u8]) -> Result<TestReport, BadReport> {
    let mut budget = Budget::default();
    let mut report = parse_within(format, bytes, &mut budget)?;
    report.tell_bounds(&budget);
    Ok(report)
}

/// Reads one of several reports: what is kept of all of them together is bounded.
pub fn parse_within(
    format: Format,
    bytes: &[u8],
    budget: &mut Budget,
) -> Result<TestReport, BadReport> {
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_REPORT) {
        return Err(BadReport(format!(
            "is larger than {} MiB",
            MAX_REPORT >> 20
        )));
    }
    let read = match format {
        Format::Trx => trx::parse(bytes, budget),
        Format::Junit => junit::parse(bytes, budget),
        Format::Jest => jest::parse(bytes, budget),
        Format::Mocha => mocha::parse(bytes, budget),
        Format::Tap => Ok(tap::parse(bytes, budget)),
        Format::GoJson => Ok(go_json::parse(bytes, budget)),
        Format::LibtestText => Ok(libtest::text(bytes, budget)),
        Format::LibtestJson => Ok(libtest::json(bytes, budget)),
        Format::PytestText => Ok(text::pytest(bytes, budget)),
        Format::UnittestText => Ok(text::unittest(bytes, budget)),
        Format::Events => Ok(events::parse(bytes, budget)),
        Format::VstestText => Ok(vstest::parse(bytes, budget)),
    };
    read.map(|mut report| {
        report.problems.truncate(MAX_PROBLEMS);
        for problem in &mut report.problems {
            cut(problem, MAX_TEXT);
        }
        report
    })
}

impl TestCase {
    pub(super) fn new(name: impl Into<String>, status: Status) -> Self {
        Self {
            name: name.into(),
            suite: None,
            status,
            duration_ms: None,
            file: None,
            line: None,
            message: None,
            stack: None,
            expected: None,
            actual: None,
        }
    }

    /// As a person would name it.
    pub fn full_name(&self) -> String {
        match &self.suite {
            Some(suite) if !self.name.starts_with(suite.as_str()) => {
                format!("{suite} › {}", self.name)
            }
            _ => self.name.clone(),
        }
    }

    /// Every text within its bound, and no time that nobody can wait for.
    fn bound(&mut self) {
        cut(&mut self.name, MAX_NAME);
        let Self {
            suite,
            file,
            message,
            stack,
            expected,
            actual,
            ..
        } = self;
        for (text, longest) in [
            (suite, MAX_NAME),
            (file, MAX_NAME),
            (message, MAX_TEXT),
            (stack, MAX_TEXT),
            (expected, MAX_TEXT),
            (actual, MAX_TEXT),
        ] {
            if text.as_deref().is_some_and(|text| text.trim().is_empty()) {
                *text = None;
            }
            if let Some(text) = text {
                cut(text, longest);
            }
        }
        self.duration_ms = self.duration_ms.filter(|ms| ms.is_finite() && *ms >= 0.0);
    }
}

impl Counts {
    pub fn add(&mut self, other: Self) {
        self.total += other.total;
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    pub fn one(&mut self, status: Status) {
        self.total += 1;
        match status {
            Status::Passed => self.passed += 1,
            Status::Failed => self.failed += 1,
            Status::Skipped => self.skipped += 1,
        }
    }
}

impl TestReport {
    /// A report that says nothing but why.
    pub fn unreadable(why: String) -> Self {
        Self {
            problems: vec![why.clone()],
            cut: Some(why),
            ..Self::default()
        }
    }

    pub fn counts(&self) -> Counts {
        let mut counts = self.beyond;
        for test in &self.tests {
            counts.one(test.status);
        }
        counts
    }

    pub fn add(&mut self, other: Self) {
        self.tests.extend(other.tests);
        self.problems.extend(other.problems);
        self.problems.truncate(MAX_PROBLEMS);
        self.cut = self.cut.take().or(other.cut);
        self.beyond.add(other.beyond);
    }

    /// Says what the bounds have left out.
    pub fn tell_bounds(&mut self, budget: &Budget) {
        let (kept, beyond) = (self.tests.len(), self.beyond.total);
        if beyond > 0 {
            let all = kept + beyond;
            self.problems.insert(
                0,
                format!("only {kept} of {all} tests are kept one by one; all of them are counted"),
            );
        }
        if budget.thinned() > 0 {
            let thinned = budget.thinned();
            self.problems.insert(
                0,
                format!("what {thinned} tests said is left out: it is too much altogether"),
            );
        }
    }

    /// One more test. It counts in any case, and is kept where there is room; says where.
    pub(super) fn push(&mut self, mut case: TestCase, budget: &mut Budget) -> Option<usize> {
        case.bound();
        if !budget.take(&mut case) {
            self.beyond.one(case.status);
            return None;
        }
        self.tests.push(case);
        Some(self.tests.len() - 1)
    }

    /// What is learnt of a test later.
    pub(super) fn amend(
        &mut self,
        at: usize,
        budget: &mut Budget,
        change: impl FnOnce(&mut TestCase),
    ) {
        if let Some(case) = self.tests.get_mut(at) {
            let before = budget::length(case);
            change(case);
            case.bound();
            budget.amend(case, before);
        }
    }

    pub(super) fn problem(&mut self, problem: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        }
    }

    /// Says that it ends in the middle.
    pub(super) fn cut_by(&mut self, why: Option<String>) {
        let Some(why) = why else {
            return;
        };
        let why = format!("the report is not whole: {why}");
        self.problems.push(why.clone());
        self.cut = Some(why);
    }
}

fn cut(text: &mut String, longest: usize) {
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest));
        // What was cut off must not stay in memory.
        text.shrink_to_fit();
        text.push('…');
    }
}

/// Adds to a text that is kept only up to a bound.
pub(super) fn say(said: &mut String, line: &str) {
    if said.len() < MAX_TEXT {
        let room = MAX_TEXT - said.len();
        said.push_str(
            line.get(..line.floor_char_boundary(room))
                .unwrap_or_default(),
        );
        said.push('\n');
    }
}
