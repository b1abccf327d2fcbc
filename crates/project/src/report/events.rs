//! What our own reporters write while the tests of Jest, Vitest or Mocha run: one JSON object on each line, and one that says that all is told.

use serde::Deserialize;

use super::budget::Budget;
use super::few::{Few, Plain};
use super::model::{Status, TestCase, TestReport};
use super::place;

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    name: String,
    /// The groups that it stands in, the outermost first.
    #[serde(default)]
    suite: Few<String>,
    #[serde(default)]
    status: Option<Told>,
    #[serde(default)]
    duration_ms: Option<f64>,
    #[serde(default)]
    file: Option<String>,
    #[serde(default)]
    message: Plain,
    #[serde(default)]
    stack: Plain,
    #[serde(default)]
    expected: Plain,
    #[serde(default)]
    actual: Plain,
    /// Something beside the tests that went wrong.
    #[serde(default)]
    problem: Option<String>,
    /// Nothing follows.
    #[serde(default)]
    end: bool,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Told {
    Passed,
    Failed,
    Skipped,
}

pub(super) fn parse(bytes: &[u8], budget: &mut Budget) -> TestReport {
    let text = String::from_utf8_lossy(bytes);
    let mut report = TestReport::default();
    let mut is_whole = false;
    for event in text
        .lines()
        .filter_map(|line| serde_json::from_str::<Event>(line).ok())
    {
        is_whole |= event.end;
        if let Some(problem) = event.problem {
            report.problem(problem);
        } else if let Some(told) = event.status {
            let status = match told {
                Told::Passed => Status::Passed,
                Told::Failed => Status::Failed,
                Told::Skipped => Status::Skipped,
            };
            let mut case = TestCase::new(event.name, status);
            let suite = event.suite.0.join(" › ");
            case.suite = Some(suite).filter(|suite| !suite.is_empty());
            case.duration_ms = event.duration_ms;
            case.file = event.file;
            case.message = event.message.0;
            case.stack = event.stack.0;
            case.expected = event.expected.0;
            case.actual = event.actual.0;
            case.line = case.stack.as_deref().and_then(place::first).map(|at| at.1);
            report.push(case, budget);
        }
    }
    if !is_whole {
        report.cut_by(Some("it does not say that all tests are told".to_owned()));
    }
    report
}
