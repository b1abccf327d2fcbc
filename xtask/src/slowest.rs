//! The tests that took longest, from the report of the test runner: what is worth looking at when the tests take long.

use std::path::Path;

/// Where `.config/nextest.toml` has it written.
const REPORT: &str = "target/nextest/default/junit.xml";
const SHOWN: usize = 10;

/// Prints them, where there is a report.
pub(crate) fn show_best_effort(root: &Path) {
    let Ok(report) = std::fs::read_to_string(root.join(REPORT)) else {
        return;
    };
    let tests = tests(&report);
    let all: f64 = tests.iter().map(|test| test.seconds).sum();
    println!("\n{all:.0} s in {} tests; the slowest:", tests.len());
    for test in tests.iter().take(SHOWN) {
        println!("{:8.1} s  {} {}", test.seconds, test.binary, test.name);
    }
}

#[derive(Debug, PartialEq)]
struct Test<'a> {
    binary: &'a str,
    name: &'a str,
    seconds: f64,
}

/// The slowest first.
fn tests(report: &str) -> Vec<Test<'_>> {
    let elements = report.split("<testcase ").skip(1);
    let mut tests: Vec<Test<'_>> = elements
        .filter_map(|element| {
            let (attributes, _) = element.split_once('>')?;
            Some(Test {
                binary: value(attributes, "classname")?,
                name: value(attributes, "name")?,
                seconds: value(attributes, "time")?.parse().ok()?,
            })
        })
        .collect();
    tests.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    tests
}

fn value<'a>(attributes: &'a str, name: &str) -> Option<&'a str> {
    let mut all = attributes.split_inclusive("\" ");
    let own = all.find_map(|one| one.strip_prefix(name)?.strip_prefix("=\""))?;
    own.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_come_first_with_the_name_of_the_test_and_not_of_its_class() {
        let report = r#"<testsuites><testsuite name="cofferdam">
            <testcase name="quick" classname="cofferdam::limits" timestamp="2026-01-01T00:00:00" time="0.5"></testcase>
            <testcase name="a::slow" classname="cofferdam::kill" timestamp="2026-01-01T00:00:00" time="61.25"><failure/></testcase>
        </testsuite></testsuites>"#;
        let slow = Test {
            binary: "cofferdam::kill",
            name: "a::slow",
            seconds: 61.25,
        };
        let quick = Test {
            binary: "cofferdam::limits",
            name: "quick",
            seconds: 0.5,
        };
        assert_eq!(tests(report), [slow, quick]);
        assert_eq!(tests("no report"), []);
    }
}
