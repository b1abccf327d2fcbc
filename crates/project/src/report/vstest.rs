//! What `dotnet test` prints with `console;verbosity=normal`, test by test: less than TRX, but there when a run is stopped in the middle.

use super::budget::Budget;
use super::model::{Status, TestCase, TestReport};

/// The words of today, and the marks that stood in their place before.
const MARKS: [(&str, Status); 8] = [
    ("Passed ", Status::Passed),
    ("Failed ", Status::Failed),
    ("Skipped ", Status::Skipped),
    ("\u{221a} ", Status::Passed),
    ("\u{2713} ", Status::Passed),
    ("V ", Status::Passed),
    ("X ", Status::Failed),
    ("! ", Status::Skipped),
];

pub(super) fn parse(bytes: &[u8], budget: &mut Budget) -> TestReport {
    let text = String::from_utf8_lossy(bytes);
    let mut report = TestReport::default();
    for case in text.lines().filter_map(test) {
        report.push(case, budget);
    }
    // Whatever it says: it is read only where the report that stands at the end is not there.
    report.cut = Some("only its output tells of its tests".to_owned());
    report
}

/// `  Passed Name.Space.Test(x: 1) [12 ms]`
fn test(line: &str) -> Option<TestCase> {
    let rest = line.strip_prefix("  ")?;
    let (status, rest) = MARKS
        .iter()
        .find_map(|(mark, status)| Some((*status, rest.strip_prefix(mark)?)))?;
    let rest = rest.trim_end();
    let (name, took) = match rest.rsplit_once(" [") {
        Some((name, took)) => (name, took.strip_suffix(']')),
        None => (rest, None),
    };
    if name.is_empty() || name.starts_with(' ') {
        return None;
    }
    let mut case = TestCase::new(name, status);
    case.duration_ms = took.and_then(duration);
    Some(case)
}

/// `12 ms`, `12ms`, `< 1 ms`, `1 s`, `1 m 2 s`
fn duration(text: &str) -> Option<f64> {
    let text = text.trim_start_matches("< ").replace(' ', "");
    let mut sum = 0.0;
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at_checked(digits)?;
        let number: f64 = number.parse().ok()?;
        let (ms, after) = [
            ("ms", 1.0),
            ("s", 1000.0),
            ("m", 60_000.0),
            ("h", 3_600_000.0),
        ]
        .iter()
        .find_map(|(unit, ms)| Some((ms, after.strip_prefix(unit)?)))?;
        sum += number * ms;
        rest = after;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_told_one_by_one_with_words_or_marks() {
        let text = "Test run for x.dll\n  Passed A.B.Ok [12 ms]\n  Failed A.B.Bad(n: \"a [b\") [1 m 2 s]\n  Error Message:\n   no\n  Skipped A.B.Later\n  \u{221a} C.D [5ms]\n  X C.E [< 1 ms]\n  ! C.F\nPassed!  - Failed: 0\n";
        let report = parse(text.as_bytes(), &mut Budget::default());
        let told: Vec<(&str, Status, Option<f64>)> = report
            .tests
            .iter()
            .map(|test| (test.name.as_str(), test.status, test.duration_ms))
            .collect();
        assert_eq!(
            told,
            [
                ("A.B.Ok", Status::Passed, Some(12.0)),
                ("A.B.Bad(n: \"a [b\")", Status::Failed, Some(62_000.0)),
                ("A.B.Later", Status::Skipped, None),
                ("C.D", Status::Passed, Some(5.0)),
                ("C.E", Status::Failed, Some(1.0)),
                ("C.F", Status::Skipped, None),
            ]
        );
        assert!(report.cut.is_some());
    }
}
