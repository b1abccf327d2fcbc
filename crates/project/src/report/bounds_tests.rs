//! What hostile and enormous reports may take.

use super::*;

#[test]
fn hostile_reports_are_bounded_and_refused() {
    let laughs =
        b"<?xml version='1.0'?><!DOCTYPE x [<!ENTITY a 'ha'>]><testsuites>&a;</testsuites>";
    assert!(parse(Format::Junit, laughs).is_err());
    assert!(parse(Format::Junit, b"<html/>").is_err());
    let deep = format!("<testsuites>{}", "<testsuite>".repeat(100_000));
    let report = parse(Format::Junit, deep.as_bytes()).unwrap();
    assert!(
        report.problems[0].contains("nested"),
        "{:?}",
        report.problems
    );
    let deep = format!("{{\"testResults\":{}", "[".repeat(1_000_000));
    assert!(parse(Format::Jest, deep.as_bytes()).is_err());
    let long = format!(
        "<testsuite><testcase name='{}' time='NaN'/><testcase name='b' time='-1'/></testsuite>",
        "x".repeat(1 << 20)
    );
    let report = parse(Format::Junit, long.as_bytes()).unwrap();
    assert!(report.tests[0].name.len() < 4096);
    assert_eq!(
        (report.tests[0].duration_ms, report.tests[1].duration_ms),
        (None, None)
    );
    assert_eq!(
        parse(
            Format::Junit,
            b"<testsuite><testcase name='\xff\xfe'/></testsuite>"
        )
        .unwrap()
        .tests
        .len(),
        1
    );
}

#[test]
fn a_flood_of_failures_is_read_in_a_time_that_grows_with_it_alone() {
    use std::fmt::Write as _;
    let mut rust = String::from("running 300000 tests\n");
    let mut python = String::new();
    let mut go = String::new();
    for n in 0..100_000 {
        let _ = writeln!(rust, "test t{n} ... FAILED");
        let _ = writeln!(python, "t{n} (m.A.t{n}) ... FAIL");
        let _ = writeln!(
            go,
            "{{\"Action\":\"fail\",\"Package\":\"p{n}\",\"Test\":\"T\"}}\n{{\"Action\":\"fail\",\"Package\":\"p{n}\"}}"
        );
    }
    for n in (0..100_000).rev() {
        let _ = writeln!(rust, "---- t{n} stdout ----\nno\n");
        let _ = writeln!(python, "FAIL: t{n} (m.A.t{n})\nAssertionError: no\n======");
    }
    let begin = std::time::Instant::now();
    for (format, text) in [
        (Format::LibtestText, rust),
        (Format::UnittestText, python),
        (Format::GoJson, go),
    ] {
        let report = parse(format, text.as_bytes()).unwrap();
        assert_eq!(
            (report.tests.len(), report.problems.len()),
            (100_000, 0),
            "{format:?}"
        );
    }
    assert!(begin.elapsed().as_secs() < 30, "{:?}", begin.elapsed());
}

proptest::proptest! {
    #[test]
    fn a_damaged_report_never_makes_a_reader_fail_badly(which in 0_usize..12, at in 0_usize..5000, byte: u8, cut in 0_usize..6000) {
        let dir = format!("{}/samples", env!("CARGO_MANIFEST_DIR"));
        let mut names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        let mut bytes = std::fs::read(&names[which % names.len()]).unwrap();
        let length = bytes.len();
        bytes[at % length] = byte;
        bytes.truncate(cut);
        for format in [Format::Trx, Format::Junit, Format::Jest, Format::Mocha, Format::Tap] {
            let _ = parse(format, &bytes);
        }
    }

    #[test]
    fn no_bytes_make_a_reader_fail_badly(bytes: Vec<u8>) {
        for format in [Format::Trx, Format::Junit, Format::Jest, Format::Mocha, Format::Tap, Format::GoJson, Format::LibtestText, Format::LibtestJson, Format::PytestText, Format::UnittestText] {
            let _ = parse(format, &bytes);
        }
    }

    #[test]
    fn no_text_makes_a_reader_of_lines_fail_badly(text in "(ok|not ok|test |---|\\.\\.\\.|# | |\n|::|PASSED|[0-9]|é){0,40}") {
        for format in [Format::Tap, Format::LibtestText, Format::PytestText, Format::UnittestText] {
            let _ = parse(format, text.as_bytes());
        }
    }
}

/// A report of one format that repeats something as often as it fits into so many bytes.
fn full_of(format: Format, bytes: usize) -> Vec<u8> {
    let (head, one, tail) = match format {
        Format::Junit => ("<testsuite>", "<testcase/>", "</testsuite>"),
        Format::Trx => (
            "<TestRun><Results>",
            "<UnitTestResult outcome='Passed'/>",
            "</Results></TestRun>",
        ),
        Format::Jest => (
            "{\"testResults\":[{\"assertionResults\":[{\"status\":\"passed\"}",
            ",{\"status\":\"passed\"}",
            "]}]}",
        ),
        Format::Mocha => ("{\"tests\":[{}", ",{}", "],\"failures\":[]}"),
        Format::Tap => ("", "ok\n", ""),
        Format::GoJson => (
            "",
            "{\"Action\":\"pass\",\"Package\":\"p\",\"Test\":\"T\"}\n",
            "",
        ),
        Format::LibtestText => ("running 9 tests\n", "test a ... ok\n", "test result: ok\n"),
        Format::LibtestJson => (
            "",
            "{\"type\":\"test\",\"event\":\"ok\",\"name\":\"a\"}\n",
            "",
        ),
        Format::PytestText => ("", "a.py::t PASSED\n", ""),
        Format::UnittestText => ("", "t (m.T) ... ok\n", "Ran 9 tests\n"),
        Format::Events => ("", "{\"status\":\"passed\"}\n", "{\"end\":true}\n"),
        Format::VstestText => ("", "  Passed T\n", ""),
    };
    let times = bytes / one.len();
    [head, &one.repeat(times), tail].concat().into_bytes()
}

#[test]
fn of_a_report_of_any_format_that_is_full_of_tests_all_are_counted_and_few_are_kept() {
    for format in [
        Format::Junit,
        Format::Trx,
        Format::Jest,
        Format::Mocha,
        Format::Tap,
        Format::GoJson,
        Format::LibtestText,
        Format::LibtestJson,
        Format::PytestText,
        Format::UnittestText,
        Format::Events,
        Format::VstestText,
    ] {
        let bytes = full_of(format, 100 << 10);
        let mut budget = Budget::new(1_000, 24 << 20, 0);
        let mut read = parse_within(format, &bytes, &mut budget).unwrap();
        read.tell_bounds(&budget);
        let counts = read.counts();
        assert_eq!(counts.total, counts.passed, "{format:?}");
        assert!(counts.total > 1_500, "{format:?}: {}", counts.total);
        assert_eq!(read.tests.len(), 1_000, "{format:?}");
        assert!(read.problems[0].contains("kept one by one"), "{format:?}");
    }
}

#[test]
fn failures_are_kept_where_there_is_no_room_for_more() {
    let many = "<testcase name='a'/>".repeat(5_000);
    let text = format!(
        "<testsuite>{many}<testcase name='late'><failure message='no'>at a.py:3</failure></testcase></testsuite>"
    );
    let read = parse_within(
        Format::Junit,
        text.as_bytes(),
        &mut Budget::new(100, 24 << 20, 0),
    )
    .unwrap();
    assert_eq!((read.counts().total, read.counts().failed), (5_001, 1));
    let late = read.tests.last().unwrap();
    assert_eq!((late.name.as_str(), late.line), ("late", Some(3)));
    // Texts are bounded together too, and names stay.
    let long = format!(
        "<testcase name='x'><failure>{}</failure></testcase>",
        "y".repeat(30_000)
    );
    let text = format!("<testsuite>{}</testsuite>", long.repeat(1_000));
    let read = parse(Format::Junit, text.as_bytes()).unwrap();
    assert_eq!((read.tests.len(), read.counts().failed), (1_000, 1_000));
    let said: usize = read
        .tests
        .iter()
        .filter_map(|test| test.stack.as_ref())
        .map(String::len)
        .sum();
    assert!(said < 32 << 20, "{said}");
    assert!(
        read.problems[0].contains("is left out"),
        "{:?}",
        read.problems
    );
}
