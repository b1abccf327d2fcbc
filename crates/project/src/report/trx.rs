//! TRX, as `dotnet test` writes it. A skipped test is `NotExecuted` there, and the counters do not count it.

use std::collections::BTreeMap;

use super::model::{BadReport, Status, TestCase, TestReport};
use super::place;
use crate::xml::{self, Element};

pub(super) fn parse(bytes: &[u8]) -> Result<TestReport, BadReport> {
    let document = xml::parse(bytes).map_err(BadReport)?;
    if document.root.name != "TestRun" {
        return Err(BadReport("its root is not <TestRun>".to_owned()));
    }
    let classes: BTreeMap<&str, &str> = document
        .root
        .all("UnitTest")
        .into_iter()
        .filter_map(|test| {
            Some((
                test.attribute("id")?,
                test.child("TestMethod")?.attribute("className")?,
            ))
        })
        .collect();
    let mut report = TestReport::default();
    for result in document.root.all("UnitTestResult") {
        // The results of a data-driven test stand inside the one that sums them up.
        if result.child("InnerResults").is_some() {
            continue;
        }
        report.tests.push(case(result, &classes));
    }
    for info in document.root.all("RunInfo") {
        if let Some(text) = info.text_of("Text")
            && info.attribute("outcome") == Some("Error")
        {
            report.problems.push(text.to_owned());
        }
    }
    report.cut_by(document.cut);
    Ok(report)
}

fn case(result: &Element, classes: &BTreeMap<&str, &str>) -> TestCase {
    let status = match result.attribute("outcome") {
        Some("Passed" | "PassedButRunAborted" | "Warning" | "Completed") => Status::Passed,
        Some("NotExecuted" | "NotRunnable" | "Inconclusive" | "Pending") => Status::Skipped,
        _ => Status::Failed,
    };
    let mut case = TestCase::new(result.attribute("testName").unwrap_or_default(), status);
    let class = result.attribute("testId").and_then(|id| classes.get(id));
    case.suite = class.map(|class| (*class).to_owned());
    case.duration_ms = result.attribute("duration").and_then(duration);
    let error = result
        .child("Output")
        .and_then(|output| output.child("ErrorInfo"));
    case.message = error
        .and_then(|error| error.text_of("Message"))
        .map(str::to_owned);
    case.stack = error.and_then(|error| Some(error.child("StackTrace")?.text.clone()));
    // The last line is the test itself, the ones above it what it called.
    let at = case
        .stack
        .as_deref()
        .and_then(|stack| stack.lines().rev().find_map(place::first));
    if let Some((file, line)) = at {
        case.file = Some(file);
        case.line = Some(line);
    }
    case
}

/// `[days.]hours:minutes:seconds.fraction`
fn duration(text: &str) -> Option<f64> {
    let mut parts = text.rsplit(':');
    let seconds: f64 = parts.next()?.parse().ok()?;
    let minutes: f64 = parts.next()?.parse().ok()?;
    let (days, hours) = match parts.next()?.split_once('.') {
        Some((days, hours)) => (days.parse().ok()?, hours.parse().ok()?),
        None => (0.0, text.split(':').next()?.parse().ok()?),
    };
    let hours: f64 = hours;
    let days: f64 = days;
    Some((((days * 24.0 + hours) * 60.0 + minutes) * 60.0 + seconds) * 1000.0)
}
