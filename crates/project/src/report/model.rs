//! What every format becomes: cases with a status. Counts are made from the cases and never read.

use serde::{Deserialize, Serialize};

use super::{go_json, jest, junit, libtest, mocha, tap, text, trx};

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
const MAX_CASES: usize = 500_000;
/// Names, messages and stacks are cut here: one test must not fill the history.
const MAX_NAME: usize = 2 << 10;
const MAX_TEXT: usize = 32 << 10;

/// Reads a report of a known format.
pub fn parse(format: Format, bytes: &[u8]) -> Result<TestReport, BadReport> {
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_REPORT) {
        return Err(BadReport(format!(
            "is larger than {} MiB",
            MAX_REPORT >> 20
        )));
    }
    let read = match format {
        Format::Trx => trx::parse(bytes),
        Format::Junit => junit::parse(bytes),
        Format::Jest => jest::parse(bytes),
        Format::Mocha => mocha::parse(bytes),
        Format::Tap => Ok(tap::parse(bytes)),
        Format::GoJson => Ok(go_json::parse(bytes)),
        Format::LibtestText => Ok(libtest::text(bytes)),
        Format::LibtestJson => Ok(libtest::json(bytes)),
        Format::PytestText => Ok(text::pytest(bytes)),
        Format::UnittestText => Ok(text::unittest(bytes)),
    };
    read.map(TestReport::bounded)
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

    /// What tells it from other tests, across runs.
    pub fn key(&self) -> (Option<&str>, Option<&str>, &str) {
        (self.file.as_deref(), self.suite.as_deref(), &self.name)
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
}

impl TestReport {
    pub fn counts(&self) -> Counts {
        let mut counts = Counts {
            total: self.tests.len(),
            ..Counts::default()
        };
        for test in &self.tests {
            match test.status {
                Status::Passed => counts.passed += 1,
                Status::Failed => counts.failed += 1,
                Status::Skipped => counts.skipped += 1,
            }
        }
        counts
    }

    pub fn add(&mut self, other: Self) {
        self.tests.extend(other.tests);
        self.problems.extend(other.problems);
        self.cut = self.cut.take().or(other.cut);
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

    fn bounded(mut self) -> Self {
        if self.tests.len() > MAX_CASES {
            self.problems.push(format!(
                "only the first {MAX_CASES} of {} tests are kept",
                self.tests.len()
            ));
            self.tests.truncate(MAX_CASES);
        }
        for test in &mut self.tests {
            cut(&mut test.name, MAX_NAME);
            let TestCase {
                suite,
                file,
                message,
                stack,
                expected,
                actual,
                ..
            } = test;
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
            // A report may say anything; a time is a number that a person can wait for.
            test.duration_ms = test.duration_ms.filter(|ms| ms.is_finite() && *ms >= 0.0);
        }
        for problem in &mut self.problems {
            cut(problem, MAX_TEXT);
        }
        self.problems.truncate(100);
        self
    }
}

fn cut(text: &mut String, longest: usize) {
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest));
        text.push('…');
    }
}
