//! Mocha's JSON. A test is passed, pending or failed by the list that it stands in again.

use serde::Deserialize;

use super::model::{BadReport, Status, TestCase, TestReport};
use super::place;

#[derive(Deserialize)]
struct Report {
    tests: Vec<Test>,
    #[serde(default)]
    pending: Vec<Test>,
    #[serde(default)]
    failures: Vec<Test>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Test {
    #[serde(default)]
    title: String,
    #[serde(default)]
    full_title: String,
    #[serde(default)]
    file: Option<String>,
    #[serde(default)]
    duration: Option<f64>,
    #[serde(default)]
    err: Problem,
}

#[derive(Deserialize, Default)]
struct Problem {
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    stack: Option<String>,
    #[serde(default)]
    expected: Option<serde_json::Value>,
    #[serde(default)]
    actual: Option<serde_json::Value>,
}

pub(super) fn parse(bytes: &[u8]) -> Result<TestReport, BadReport> {
    let read: Report =
        serde_json::from_slice(bytes).map_err(|error| BadReport(error.to_string()))?;
    let names = |list: &[Test]| -> std::collections::BTreeSet<(Option<String>, String)> {
        list.iter()
            .map(|test| (test.file.clone(), test.full_title.clone()))
            .collect()
    };
    let (pending, failed) = (names(&read.pending), names(&read.failures));
    // A hook that failed is no test, and is a failure.
    let known = names(&read.tests);
    let hooks = read
        .failures
        .into_iter()
        .filter(|test| !known.contains(&(test.file.clone(), test.full_title.clone())));
    let tests = read.tests.into_iter().chain(hooks).map(|test| {
        let key = (test.file.clone(), test.full_title.clone());
        let is_bad = failed.contains(&key) || test.err.message.is_some();
        let status = match (is_bad, pending.contains(&key)) {
            (true, _) => Status::Failed,
            (false, true) => Status::Skipped,
            (false, false) => Status::Passed,
        };
        case(test, status)
    });
    Ok(TestReport {
        tests: tests.collect(),
        ..TestReport::default()
    })
}

fn case(test: Test, status: Status) -> TestCase {
    let group = test.full_title.strip_suffix(&test.title).map(str::trim);
    let suite = group.filter(|group| !group.is_empty()).map(str::to_owned);
    let mut case = TestCase::new(test.title, status);
    case.suite = suite;
    case.file = test.file;
    case.duration_ms = test.duration;
    case.line = test
        .err
        .stack
        .as_deref()
        .and_then(place::first)
        .map(|at| at.1);
    case.message = test.err.message;
    case.stack = test.err.stack;
    let plain = |value: Option<serde_json::Value>| {
        value
            .filter(|value| !value.is_null())
            .map(|value| match value {
                serde_json::Value::String(text) => text,
                other => other.to_string(),
            })
    };
    case.expected = plain(test.err.expected);
    case.actual = plain(test.err.actual);
    case
}
