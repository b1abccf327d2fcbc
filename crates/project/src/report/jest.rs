//! The JSON of Jest, which Vitest writes too. A file that could not be loaded has no tests and is a problem of its own.

use serde::Deserialize;
use serde_json::Value;

use super::model::{BadReport, Status, TestCase, TestReport};
use super::place;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    test_results: Vec<File>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    name: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    assertion_results: Vec<Assertion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Assertion {
    #[serde(default)]
    ancestor_titles: Vec<String>,
    #[serde(default)]
    title: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    duration: Option<f64>,
    #[serde(default)]
    failure_messages: Vec<String>,
    #[serde(default)]
    failure_details: Vec<Value>,
    #[serde(default)]
    location: Option<Location>,
}

#[derive(Deserialize)]
struct Location {
    line: u32,
}

pub(super) fn parse(bytes: &[u8]) -> Result<TestReport, BadReport> {
    let read: Report =
        serde_json::from_slice(bytes).map_err(|error| BadReport(error.to_string()))?;
    let mut report = TestReport::default();
    for file in read.test_results {
        if file.assertion_results.is_empty() && file.status == "failed" {
            report
                .problems
                .push(format!("{}: {}", file.name, file.message.trim()));
        }
        report.tests.extend(
            file.assertion_results
                .into_iter()
                .map(|test| case(test, &file.name)),
        );
    }
    Ok(report)
}

fn case(test: Assertion, file: &str) -> TestCase {
    let status = match test.status.as_str() {
        "passed" | "focused" => Status::Passed,
        "pending" | "skipped" | "todo" | "disabled" => Status::Skipped,
        _ => Status::Failed,
    };
    let mut case = TestCase::new(test.title, status);
    case.suite = Some(test.ancestor_titles.join(" › ")).filter(|suite| !suite.is_empty());
    case.duration_ms = test.duration;
    case.file = Some(file.to_owned());
    case.line = test.location.map(|at| at.line);
    let stack = test.failure_messages.join("\n");
    if status == Status::Failed {
        case.message = stack.lines().next().map(str::to_owned);
        case.line = place::first(&stack).map(|at| at.1).or(case.line);
        let result = test
            .failure_details
            .first()
            .map(|detail| &detail["matcherResult"]);
        case.expected = result.and_then(|result| plain(&result["expected"]));
        case.actual = result.and_then(|result| plain(&result["actual"]));
        case.stack = Some(stack);
    }
    case
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}
