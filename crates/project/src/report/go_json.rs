//! `go test -json`: one event on each line. Lines that are none are what a compiler said.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::Deserialize;

use super::budget::Budget;
use super::model::{Status, TestCase, TestReport};
use super::place;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    action: String,
    #[serde(default)]
    package: String,
    #[serde(default)]
    test: Option<String>,
    #[serde(default)]
    elapsed: Option<f64>,
    #[serde(default)]
    output: Option<String>,
}

/// What one test prints may be much; this is enough to see why it failed.
const MAX_OUTPUT: usize = 32 << 10;
/// More tests than these do not run at once, and no module has more packages.
const MOST_AT_ONCE: usize = 50_000;

pub(super) fn parse(bytes: &[u8], budget: &mut Budget) -> TestReport {
    let text = String::from_utf8_lossy(bytes);
    let mut report = TestReport::default();
    // By package and test: what it printed, and whether it ended.
    let mut running: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut packages: BTreeMap<String, String> = BTreeMap::new();
    let mut failed: BTreeSet<String> = BTreeSet::new();
    // Tests that have tests in them: told beside them by go, and not twice here.
    let mut outer: HashSet<(String, String)> = HashSet::new();
    for event in text
        .lines()
        .filter_map(|line| serde_json::from_str::<Event>(line).ok())
    {
        let Some(test) = event.test else {
            package(event, &mut packages, &failed, &mut report);
            continue;
        };
        let key = (event.package, test);
        if let Some((around, _)) = key.1.rsplit_once('/')
            && outer.len() < MOST_AT_ONCE
        {
            outer.insert((key.0.clone(), around.to_owned()));
        }
        let status = match event.action.as_str() {
            "pass" => Status::Passed,
            "fail" => Status::Failed,
            "skip" => Status::Skipped,
            _ => {
                if running.len() >= MOST_AT_ONCE && !running.contains_key(&key) {
                    report.cut = Some("more tests run at once than can be followed".to_owned());
                    continue;
                }
                let said = running.entry(key).or_default();
                if let Some(output) = event.output
                    && said.len() < MAX_OUTPUT
                {
                    said.push_str(&output);
                }
                continue;
            }
        };
        let said = running.remove(&key).unwrap_or_default();
        if status == Status::Failed {
            failed.insert(key.0.clone());
        }
        if !outer.contains(&key) {
            report.push(case(key, status, event.elapsed, &said), budget);
        }
    }
    // A test that never ended: its package was stopped or crashed.
    for (key, said) in running {
        let mut case = case(key, Status::Failed, None, &said);
        case.message = Some("did not end".to_owned());
        report.push(case, budget);
    }
    report
}

fn package(
    event: Event,
    packages: &mut BTreeMap<String, String>,
    failed: &BTreeSet<String>,
    report: &mut TestReport,
) {
    match event.action.as_str() {
        "output" => {
            if packages.len() >= MOST_AT_ONCE && !packages.contains_key(&event.package) {
                return;
            }
            let said = packages.entry(event.package).or_default();
            if said.len() < MAX_OUTPUT {
                said.push_str(&event.output.unwrap_or_default());
            }
        }
        "fail" => {
            let has_failed = failed.contains(&event.package);
            if !has_failed {
                let said = packages.remove(&event.package).unwrap_or_default();
                report.problem(format!("{}: {}", event.package, said.trim()));
            }
        }
        _ => {}
    }
}

fn case(
    (package, test): (String, String),
    status: Status,
    elapsed: Option<f64>,
    said: &str,
) -> TestCase {
    let mut case = TestCase::new(test, status);
    case.suite = Some(package);
    case.duration_ms = elapsed.map(|seconds| seconds * 1000.0);
    let told: Vec<&str> = said
        .lines()
        .filter(|line| {
            !line.trim_start().starts_with("=== ") && !line.trim_start().starts_with("--- ")
        })
        .collect();
    if status != Status::Passed {
        case.message = told
            .iter()
            .map(|line| line.trim())
            .find(|line| !line.is_empty())
            .map(str::to_owned);
        case.stack = Some(told.join("\n"));
        if let Some((file, line)) = place::first(&told.join("\n")) {
            case.file = Some(file);
            case.line = Some(line);
        }
    }
    case
}
