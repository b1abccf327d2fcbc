//! What Rust's test harness says: the text of `cargo test`, and the JSON lines of nextest.

use std::collections::HashMap;

use serde::Deserialize;

use super::budget::Budget;
use super::model::{Status, TestCase, TestReport, say};
use super::place;

/// The lines `test NAME ... ok` of every binary, and the blocks `---- NAME stdout ----` that explain failures.
pub(super) fn text(bytes: &[u8], budget: &mut Budget) -> TestReport {
    let text = String::from_utf8_lossy(bytes);
    let mut report = TestReport::default();
    // The tests of the binary that is being told of, by name: each block is found at once, however many there are.
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut open: Option<(String, String)> = None;
    // A binary that a test ended tells of no result.
    let mut unfinished = 0_usize;
    for line in text.lines() {
        if let Some(name) = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            explain(&mut report, budget, &places, open.take());
            open = Some((name.to_owned(), String::new()));
        } else if line == "failures:" || line.starts_with("test result: ") {
            if line != "failures:" {
                unfinished = unfinished.saturating_sub(1);
            }
            explain(&mut report, budget, &places, open.take());
        } else if let Some((_, said)) = &mut open {
            say(said, line);
        } else if line.starts_with("running ") && line.contains(" test") {
            places.clear();
            unfinished += 1;
        } else if let Some((name, status)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.rsplit_once(" ... "))
        {
            let status = match status.split([' ', ',']).next() {
                Some("ok") => Status::Passed,
                Some("FAILED") => Status::Failed,
                Some("ignored") => Status::Skipped,
                _ => continue,
            };
            let name = name.strip_suffix(" - should panic").unwrap_or(name);
            if let Some(at) = report.push(case(name, status), budget) {
                places.insert(name.to_owned(), at);
            }
        }
    }
    explain(&mut report, budget, &places, open);
    if unfinished > 0 {
        report.cut = Some("a test binary has told of no result".to_owned());
    }
    report
}

fn case(name: &str, status: Status) -> TestCase {
    let (suite, short) = match name.rsplit_once("::") {
        Some((suite, short)) => (Some(suite), short),
        None => (None, name),
    };
    let mut case = TestCase::new(short, status);
    case.suite = suite.map(str::to_owned);
    case
}

fn explain(
    report: &mut TestReport,
    budget: &mut Budget,
    places: &HashMap<String, usize>,
    open: Option<(String, String)>,
) {
    let Some((name, said)) = open else {
        return;
    };
    if let Some(at) = places.get(&name) {
        report.amend(*at, budget, |test| fail(test, &said));
    }
}

fn fail(test: &mut TestCase, said: &str) {
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let panic = lines.find(|line| line.contains("panicked at"));
    // The message stands on the line after the place.
    test.message = lines
        .next()
        .or(panic)
        .map(str::to_owned)
        .or_else(|| said.lines().next().map(str::to_owned));
    if let Some((file, line)) = panic.and_then(place::first) {
        test.file = Some(file);
        test.line = Some(line);
    }
    test.stack = Some(said.trim().to_owned());
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    event: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    exec_time: Option<f64>,
    #[serde(default)]
    stdout: Option<String>,
}

/// `crate::binary$module::test`, one event on each line.
pub(super) fn json(bytes: &[u8], budget: &mut Budget) -> TestReport {
    let text = String::from_utf8_lossy(bytes);
    let mut report = TestReport::default();
    for event in text
        .lines()
        .filter_map(|line| serde_json::from_str::<Event>(line).ok())
    {
        let status = match (event.kind.as_str(), event.event.as_str()) {
            ("test", "ok") => Status::Passed,
            ("test", "failed" | "timeout") => Status::Failed,
            ("test", "ignored") => Status::Skipped,
            _ => continue,
        };
        let (binary, name) = event.name.rsplit_once('$').unwrap_or(("", &event.name));
        let mut test = case(name, status);
        if !binary.is_empty() {
            let inner = test.suite.take();
            test.suite =
                Some(inner.map_or_else(|| binary.to_owned(), |inner| format!("{binary}${inner}")));
        }
        test.duration_ms = event.exec_time.map(|seconds| seconds * 1000.0);
        if status == Status::Failed {
            fail(&mut test, event.stdout.as_deref().unwrap_or_default());
        }
        report.push(test, budget);
    }
    report
}
