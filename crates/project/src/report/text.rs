//! What Python's test runners print while they run: less than a report, but there when a run is stopped in the middle.

use std::collections::HashMap;

use super::budget::Budget;
use super::model::{Status, TestCase, TestReport, say};
use super::place;

/// `path::Class::test PASSED  [ 33%]`
pub(super) fn pytest(bytes: &[u8], budget: &mut Budget) -> TestReport {
    let text = String::from_utf8_lossy(bytes);
    let mut report = TestReport::default();
    for line in text.lines() {
        let line = line.trim_end();
        let line = match line.rsplit_once(" [") {
            Some((before, percent)) if percent.ends_with("%]") => before.trim_end(),
            _ => line,
        };
        let line = without_reason(line);
        let Some((id, word)) = line.rsplit_once(' ').filter(|(id, _)| id.contains("::")) else {
            continue;
        };
        let status = match word {
            "PASSED" | "XPASS" => Status::Passed,
            "FAILED" | "ERROR" => Status::Failed,
            "SKIPPED" | "XFAIL" => Status::Skipped,
            _ => continue,
        };
        let id = id.trim();
        let (Some((file, rest)), false) = (id.split_once("::"), id.contains(" - ")) else {
            continue;
        };
        let (class, name) = rest
            .rsplit_once("::")
            .map_or((None, rest), |(class, name)| (Some(class), name));
        let mut case = TestCase::new(name, status);
        case.file = Some(file.to_owned());
        let module = file.trim_end_matches(".py").replace('/', ".");
        case.suite = Some(class.map_or_else(
            || module.clone(),
            |class| format!("{module}.{}", class.replace("::", ".")),
        ));
        report.push(case, budget);
    }
    // Whatever it says: it is read only where the report that stands at the end is not there.
    report.cut = Some("only its output tells of its tests".to_owned());
    report
}

/// `SKIPPED (why)`, and what else has a reason.
pub(super) fn without_reason(line: &str) -> &str {
    let words = [" SKIPPED (", " XFAIL (", " XPASS ("];
    let mut found = words.iter().filter_map(|word| {
        let at = line.find(word)?;
        line.get(..at + word.len() - " (".len())
    });
    match line.ends_with(')') {
        true => found.next().unwrap_or(line),
        false => line,
    }
}

/// `test_name (module.Class.test_name) ... ok`, and blocks after `FAIL: test_name (…)`.
pub(super) fn unittest(bytes: &[u8], budget: &mut Budget) -> TestReport {
    let text = String::from_utf8_lossy(bytes);
    let mut report = TestReport::default();
    let mut places: Places = HashMap::new();
    let mut block: Option<(String, String)> = None;
    let mut is_whole = false;
    // A test whose line was broken by what it wrote itself.
    let mut begun: Option<String> = None;
    for line in text.lines() {
        let head = line
            .strip_prefix("FAIL: ")
            .or_else(|| line.strip_prefix("ERROR: "));
        if let Some(head) = head {
            explain(&mut report, budget, &mut places, block.take());
            block = Some((head.to_owned(), String::new()));
        } else if line.starts_with("======") || line.starts_with("Ran ") {
            is_whole |= line.starts_with("Ran ");
            explain(&mut report, budget, &mut places, block.take());
        } else if let Some((_, said)) = &mut block {
            if !line.starts_with("------") {
                say(said, line);
            }
        } else if let Some((head, word)) = ended(line, &mut begun) {
            let Some(status) = status(word) else {
                continue;
            };
            let mut case = named(&head, status);
            case.message = word
                .strip_prefix("skipped ")
                .map(|why| why.trim_matches('\'').to_owned());
            let key = key(&case);
            if let Some(at) = report.push(case, budget) {
                places.insert(key, at);
            }
        }
    }
    explain(&mut report, budget, &mut places, block);
    if !is_whole {
        report.cut = Some("it does not say how many tests it ran".to_owned());
    }
    report
}

/// A line that ends a test: what it names, and the word for how it ended.
fn ended<'a>(line: &'a str, begun: &mut Option<String>) -> Option<(String, &'a str)> {
    if begun.is_some() && is_status_alone(line) {
        return begun.take().map(|head| (head, line));
    }
    let (head, word) = line.rsplit_once(" ... ")?;
    if status(word).is_some() {
        *begun = None;
        return Some((head.to_owned(), word));
    }
    if begins(line) {
        *begun = Some(head.to_owned());
    }
    None
}

/// Whether a test is named here that has not ended yet: `test_name (module.Class) ... ` and what it wrote.
pub(super) fn begins(line: &str) -> bool {
    line.split_once(" ... ")
        .is_some_and(|(head, said)| head.ends_with(')') && status(said).is_none())
}

/// Whether a line is nothing but the word for how the test before it ended.
pub(super) fn is_status_alone(line: &str) -> bool {
    let line = line.trim_end();
    matches!(
        line,
        "ok" | "FAIL" | "ERROR" | "expected failure" | "unexpected success"
    ) || line.starts_with("skipped '")
        || line.starts_with("skipped \"")
}

pub(super) fn status(word: &str) -> Option<Status> {
    match word.split([' ', ':', '\r', '\n']).next() {
        Some("ok") => Some(Status::Passed),
        Some("expected" | "skipped") => Some(Status::Skipped),
        Some("FAIL" | "ERROR" | "unexpected") => Some(Status::Failed),
        _ => None,
    }
}

fn named(head: &str, status: Status) -> TestCase {
    let (name, rest) = head.split_once(" (").unwrap_or((head, ""));
    let mut case = TestCase::new(name.trim(), status);
    let class = rest.split(')').next().unwrap_or_default();
    let class = class
        .strip_suffix(&format!(".{}", case.name))
        .unwrap_or(class);
    case.suite = Some(class.to_owned()).filter(|class| !class.is_empty());
    case
}

/// Where each test stands: a block is found at once, however many there are.
type Places = HashMap<(Option<String>, String), usize>;

fn key(case: &TestCase) -> (Option<String>, String) {
    (case.suite.clone(), case.name.clone())
}

fn explain(
    report: &mut TestReport,
    budget: &mut Budget,
    places: &mut Places,
    block: Option<(String, String)>,
) {
    let Some((head, said)) = block else {
        return;
    };
    let wanted = named(&head, Status::Failed);
    let key = key(&wanted);
    let at = match places.get(&key) {
        Some(at) => *at,
        // Such as a module that cannot be imported: it has a block and no line.
        None => {
            // One that was only counted is known by name from here on.
            if report.beyond.failed > 0 {
                report.beyond.failed -= 1;
                report.beyond.total -= 1;
            }
            let Some(at) = report.push(wanted, budget) else {
                return;
            };
            places.insert(key, at);
            at
        }
    };
    report.amend(at, budget, |test| {
        // The runner says it at the end; what stood in the line before may have been the test's own words.
        test.status = Status::Failed;
        test.message = said
            .lines()
            .rev()
            .map(str::trim)
            .find(|line| !line.is_empty())
            .map(str::to_owned);
        // The last frame that is the project's own.
        if let Some((file, line)) = said.lines().rev().find_map(place::first) {
            test.file = Some(file);
            test.line = Some(line);
        }
        test.stack = Some(said.trim().to_owned());
    });
}
