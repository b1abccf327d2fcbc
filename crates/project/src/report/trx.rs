//! TRX, as `dotnet test` writes it. A skipped test is `NotExecuted` there, and the counters do not count it.

use std::collections::HashMap;

use super::budget::Budget;
use super::model::{BadReport, Status, TestCase, TestReport};
use super::place;
use crate::xml::{self, Element, Keep};

/// What is kept of an element that is read, by the one around it.
const KEPT: [(&str, &str); 7] = [
    ("UnitTestResult", "InnerResults"),
    ("UnitTestResult", "Output"),
    ("Output", "ErrorInfo"),
    ("ErrorInfo", "Message"),
    ("ErrorInfo", "StackTrace"),
    ("RunInfo", "Text"),
    ("UnitTest", "TestMethod"),
];
/// More classes than these are not remembered.
const MOST_CLASSES: usize = 200_000;

pub(super) fn parse(bytes: &[u8], budget: &mut Budget) -> Result<TestReport, BadReport> {
    let mut report = TestReport::default();
    // Which class a test is of stands behind the results, by an id.
    let mut ids: Vec<(usize, String)> = Vec::new();
    let mut classes: HashMap<String, String> = HashMap::new();
    let document = xml::read(bytes, &mut |element, around| {
        match element.name.as_str() {
            // The results of a data-driven test stand inside the one that sums them up.
            "UnitTestResult" if element.child("InnerResults").is_none() => {
                let at = report.push(case(element), budget);
                if let (Some(at), Some(id)) = (at, element.attribute("testId")) {
                    ids.push((at, short(id)));
                }
            }
            "UnitTest" if classes.len() < MOST_CLASSES => {
                let class = element
                    .child("TestMethod")
                    .and_then(|method| method.attribute("className"));
                if let (Some(id), Some(class)) = (element.attribute("id"), class) {
                    classes.insert(short(id), short(class));
                }
            }
            "RunInfo" => {
                if let Some(text) = element.text_of("Text")
                    && element.attribute("outcome") == Some("Error")
                {
                    report.problem(text.to_owned());
                }
            }
            name => {
                let is_kept = around.last().is_some_and(|parent| {
                    KEPT.contains(&(parent.name.as_str(), name)) && parent.child(name).is_none()
                });
                if is_kept {
                    return Keep::Yes;
                }
            }
        }
        Keep::No
    })
    .map_err(BadReport)?;
    if document.root.name != "TestRun" {
        return Err(BadReport("its root is not <TestRun>".to_owned()));
    }
    for (at, id) in ids {
        if let Some(class) = classes.get(&id) {
            report.amend(at, budget, |case| case.suite = Some(class.clone()));
        }
    }
    report.cut_by(document.cut);
    Ok(report)
}

fn case(result: &Element) -> TestCase {
    let status = match result.attribute("outcome") {
        Some("Passed" | "PassedButRunAborted" | "Warning" | "Completed") => Status::Passed,
        Some("NotExecuted" | "NotRunnable" | "Inconclusive" | "Pending") => Status::Skipped,
        _ => Status::Failed,
    };
    let mut case = TestCase::new(result.attribute("testName").unwrap_or_default(), status);
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

fn short(text: &str) -> String {
    text.chars().take(300).collect()
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
