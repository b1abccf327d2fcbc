//! Writing JUnit XML, in the form that most readers understand: one suite for each group of tests, durations in seconds, times left out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use quick_xml::escape::escape;

use super::model::{Status, TestCase, TestReport};

/// The report as a document. The same tests give the same bytes.
pub fn junit(report: &TestReport) -> String {
    let mut suites: BTreeMap<&str, Vec<&TestCase>> = BTreeMap::new();
    for test in &report.tests {
        suites
            .entry(test.suite.as_deref().unwrap_or("tests"))
            .or_default()
            .push(test);
    }
    let counts = report.counts();
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        out,
        "<testsuites tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{}\">",
        counts.total,
        counts.failed,
        counts.skipped,
        time(&report.tests.iter().collect::<Vec<_>>())
    );
    for (name, tests) in &suites {
        let of = |status| tests.iter().filter(|test| test.status == status).count();
        let _ = writeln!(
            out,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{}\">",
            clean(name),
            tests.len(),
            of(Status::Failed),
            of(Status::Skipped),
            time(tests)
        );
        for test in tests {
            case(&mut out, name, test);
        }
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

fn case(out: &mut String, suite: &str, test: &TestCase) {
    let _ = write!(
        out,
        "    <testcase classname=\"{}\" name=\"{}\" time=\"{}\"",
        clean(suite),
        clean(&test.name),
        time(&[test])
    );
    if let Some(file) = &test.file {
        let _ = write!(out, " file=\"{}\"", clean(file));
    }
    if let Some(line) = test.line {
        let _ = write!(out, " line=\"{line}\"");
    }
    let message = clean(test.message.as_deref().unwrap_or_default());
    match test.status {
        Status::Passed => out.push_str("/>\n"),
        Status::Skipped => {
            let _ = writeln!(out, "><skipped message=\"{message}\"/></testcase>");
        }
        Status::Failed => {
            let stack = clean(test.stack.as_deref().unwrap_or_default());
            let _ = writeln!(
                out,
                "><failure message=\"{message}\">{stack}</failure></testcase>"
            );
        }
    }
}

fn time(tests: &[&TestCase]) -> String {
    let ms: f64 = tests.iter().filter_map(|test| test.duration_ms).sum();
    format!("{:.3}", ms / 1000.0)
}

/// Escaped, and without the characters that XML cannot hold at all.
fn clean(text: &str) -> String {
    let fits = |c: char| matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    let text: String = text
        .chars()
        .map(|c| if fits(c) { c } else { '\u{fffd}' })
        .collect();
    escape(text.as_str()).into_owned()
}
