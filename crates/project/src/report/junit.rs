//! JUnit XML as it is really written: test cases at any depth, failures as elements, as text or as attributes, and counts that are wrong.

use super::budget::Budget;
use super::model::{BadReport, Status, TestCase, TestReport};
use super::place;
use crate::xml::{self, Element, Keep};

pub(super) fn parse(bytes: &[u8], budget: &mut Budget) -> Result<TestReport, BadReport> {
    let mut report = TestReport::default();
    let document = xml::read(bytes, &mut |element, around| {
        let parent = around.last();
        match element.name.as_str() {
            "testcase" => {
                report.push(case(element, around), budget);
                Keep::No
            }
            // The first of each kind says enough of a test.
            "failure" | "error" | "skipped" | "ignored"
                if parent.is_some_and(|parent| {
                    parent.name == "testcase" && parent.child(&element.name).is_none()
                }) =>
            {
                Keep::Yes
            }
            // A suite that failed outside of its tests.
            "failure" | "error"
                if parent.is_some_and(|parent| parent.name.starts_with("testsuite")) =>
            {
                let message = element.attribute("message").unwrap_or(element.text.trim());
                report.problem(message.to_owned());
                Keep::No
            }
            _ => Keep::No,
        }
    })
    .map_err(BadReport)?;
    let root = &document.root.name;
    if !["testsuites", "testsuite", "testcase"].contains(&root.as_str()) {
        return Err(BadReport(format!(
            "its root is <{}> and not <testsuites>",
            shorten(root)
        )));
    }
    report.cut_by(document.cut);
    Ok(report)
}

fn case(element: &Element, around: &[Element]) -> TestCase {
    let bad = element
        .children
        .iter()
        .find(|child| matches!(child.name.as_str(), "failure" | "error"));
    let skipped = element
        .children
        .iter()
        .find(|child| matches!(child.name.as_str(), "skipped" | "ignored"));
    let said = |name: &str| element.attribute(name);
    let status = match (bad, skipped) {
        (Some(_), _) => Status::Failed,
        (None, Some(_)) => Status::Skipped,
        (None, None) if said("failure").is_some() => Status::Failed,
        (None, None) => match said("status").or(said("result")) {
            Some("skipped" | "disabled" | "notrun" | "suppressed") => Status::Skipped,
            Some("failed" | "error") => Status::Failed,
            _ => Status::Passed,
        },
    };
    let mut case = TestCase::new(said("name").unwrap_or_default(), status);
    let suite = around
        .iter()
        .rev()
        .find(|parent| parent.name == "testsuite");
    let suite = suite.and_then(|suite| suite.attribute("name"));
    // Jest writes the whole name as the class, node:test the word `test`.
    let class =
        said("classname").filter(|class| !matches!(*class, "" | "test") && *class != case.name);
    case.suite = class.or(suite).map(str::to_owned);
    case.duration_ms = said("time").and_then(seconds);
    let told = bad.or(skipped);
    case.message = told.and_then(|told| {
        let attribute = told.attribute("message").filter(|text| !text.is_empty());
        attribute
            .map(str::to_owned)
            .or_else(|| first_line(&told.text))
    });
    if status == Status::Failed {
        case.stack = bad
            .map(|bad| bad.text.trim().to_owned())
            .filter(|text| !text.is_empty());
        let at = case.stack.as_deref().and_then(place::first);
        case.line = said("line")
            .and_then(|line| line.parse().ok())
            .or(at.as_ref().map(|at| at.1));
        case.file = said("file").map(str::to_owned).or(at.map(|at| at.0));
    } else {
        case.file = said("file").map(str::to_owned);
        case.line = said("line").and_then(|line| line.parse().ok());
    }
    case
}

/// Seconds with a point, or with commas between thousands as surefire writes them.
fn seconds(text: &str) -> Option<f64> {
    let plain = text.replace(',', "");
    plain
        .trim()
        .parse::<f64>()
        .ok()
        .map(|seconds| seconds * 1000.0)
}

fn first_line(text: &str) -> Option<String> {
    text.lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .map(str::to_owned)
}

fn shorten(name: &str) -> String {
    name.chars().take(40).collect()
}
