//! Reports that real tools wrote.

use super::*;

fn sample(name: &str) -> Vec<u8> {
    let path = format!("{}/samples/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}

fn counts(format: Format, name: &str) -> (usize, usize, usize, usize) {
    let counts = parse(format, &sample(name)).unwrap().counts();
    (counts.total, counts.passed, counts.failed, counts.skipped)
}

/// The one failing test of a report.
fn failing(format: Format, name: &str) -> TestCase {
    let report = parse(format, &sample(name)).unwrap();
    let mut failed = report
        .tests
        .into_iter()
        .filter(|test| test.status == Status::Failed);
    let first = failed.next().unwrap();
    assert_eq!(failed.next(), None);
    first
}

#[test]
fn every_dialect_of_junit_is_counted_by_its_cases() {
    for name in [
        "jest-junit.xml",
        "mocha-xunit.xml",
        "node-junit.xml",
        "pytest.xml",
        "vitest-junit.xml",
    ] {
        assert_eq!(counts(Format::Junit, name), (3, 1, 1, 1), "{name}");
    }
    assert_eq!(counts(Format::Junit, "nextest.xml"), (2, 1, 1, 0));
}

#[test]
fn every_other_format_gives_the_same_model() {
    assert_eq!(counts(Format::Trx, "dotnet.trx"), (3, 1, 1, 1));
    assert_eq!(counts(Format::Jest, "jest.json"), (3, 1, 1, 1));
    assert_eq!(counts(Format::Jest, "vitest.json"), (3, 1, 1, 1));
    assert_eq!(counts(Format::Mocha, "mocha.json"), (3, 1, 1, 1));
    assert_eq!(counts(Format::Tap, "mocha.tap"), (3, 1, 1, 1));
    assert_eq!(counts(Format::Tap, "node.tap"), (1, 0, 1, 0));
}

#[test]
fn a_failure_has_its_message_and_its_place() {
    let place = |format, name| {
        let test = failing(format, name);
        (test.file.unwrap_or_default(), test.line)
    };
    assert_eq!(
        place(Format::Junit, "pytest.xml"),
        ("test_a.py".to_owned(), Some(3))
    );
    assert_eq!(
        place(Format::Junit, "node-junit.xml"),
        ("/workspace/test/a.test.js".to_owned(), Some(3))
    );
    assert_eq!(
        place(Format::Junit, "nextest.xml"),
        ("src/lib.rs".to_owned(), Some(1))
    );
    assert_eq!(
        place(Format::Trx, "dotnet.trx"),
        ("/proj/tests/T.cs".to_owned(), Some(4))
    );
    assert_eq!(
        place(Format::Jest, "jest.json"),
        ("/proj/j/a.test.js".to_owned(), Some(1))
    );
    assert_eq!(
        place(Format::Mocha, "mocha.json"),
        ("/proj/m/a.js".to_owned(), Some(1))
    );
    assert_eq!(
        place(Format::Tap, "mocha.tap"),
        ("m/a.js".to_owned(), Some(1))
    );
    let jest = failing(Format::Jest, "jest.json");
    assert_eq!(
        (jest.expected.as_deref(), jest.actual.as_deref()),
        (Some("2"), Some("1"))
    );
    assert_eq!(jest.suite.as_deref(), Some("grp"));
    let trx = failing(Format::Trx, "dotnet.trx");
    assert_eq!(
        (trx.message.as_deref(), trx.suite.as_deref()),
        (Some("expected 4, got 3"), Some("T"))
    );
    assert_eq!(trx.duration_ms, Some(17.397));
}

#[test]
fn a_file_that_cannot_be_loaded_is_a_problem_and_not_zero_failures() {
    let report = parse(Format::Jest, &sample("jest.json")).unwrap();
    assert_eq!(report.problems.len(), 1);
    assert!(
        report.problems[0].contains("Must use import"),
        "{:?}",
        report.problems
    );
}

#[test]
fn subtests_are_counted_and_what_sums_them_up_is_not() {
    let tap = b"TAP version 13\n# Subtest: grp\n    # Subtest: ok\n    ok 1 - ok\n      ---\n      duration_ms: 1.5\n      ...\n    # Subtest: bad\n    not ok 2 - bad\n      ---\n      error: |-\n        two\n        lines\n      stack: |-\n        T (/w/a.js:3:1)\n      ...\n    1..2\nnot ok 1 - grp\n  ---\n  error: '1 subtest failed'\n  ...\n# Subtest: later\nok 2 - later # SKIP not yet\n1..2\n";
    let report = parse(Format::Tap, tap).unwrap();
    let told: Vec<(String, Status)> = report
        .tests
        .iter()
        .map(|test| (test.full_name(), test.status))
        .collect();
    let expected = [
        ("grp › ok", Status::Passed),
        ("grp › bad", Status::Failed),
        ("later", Status::Skipped),
    ];
    assert_eq!(
        told,
        expected.map(|(name, status)| (name.to_owned(), status))
    );
    assert_eq!(report.tests[1].message.as_deref(), Some("two\nlines"));
    assert_eq!(report.tests[1].line, Some(3));
    assert_eq!(report.problems, Vec::<String>::new());
    let cut = parse(Format::Tap, b"ok 1 - a\nok 2 - b\n").unwrap();
    assert_eq!((cut.tests.len(), cut.problems.len()), (2, 1));
}

#[test]
fn go_tests_are_told_by_their_leaves_and_one_that_never_ended_has_failed() {
    let events = r#"{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"run","Package":"p","Test":"TestA/one"}
{"Action":"output","Package":"p","Test":"TestA/one","Output":"    a_test.go:7: want 2\n"}
{"Action":"fail","Package":"p","Test":"TestA/one","Elapsed":0.25}
{"Action":"fail","Package":"p","Test":"TestA","Elapsed":0.25}
{"Action":"pass","Package":"p","Test":"TestB","Elapsed":0}
{"Action":"skip","Package":"p","Test":"TestC","Elapsed":0}
not json
{"Action":"run","Package":"p","Test":"TestHangs"}
{"Action":"output","Package":"q","Output":"q/x.go:1:1: syntax error\n"}
{"Action":"fail","Package":"q","Elapsed":0}
"#;
    let report = parse(Format::GoJson, events.as_bytes()).unwrap();
    let counts = report.counts();
    assert_eq!(
        (counts.total, counts.passed, counts.failed, counts.skipped),
        (4, 1, 2, 1),
        "{report:#?}"
    );
    let one = report
        .tests
        .iter()
        .find(|test| test.name == "TestA/one")
        .unwrap();
    assert_eq!(
        (one.file.as_deref(), one.line),
        (Some("a_test.go"), Some(7))
    );
    assert_eq!(report.problems, ["q: q/x.go:1:1: syntax error"]);
}

#[test]
fn what_rusts_harness_prints_is_read() {
    let text = "\nrunning 3 tests\ntest t::ok ... ok\ntest t::bad ... FAILED\ntest t::sk ... ignored, later\n\nfailures:\n\n---- t::bad stdout ----\nthread 't::bad' panicked at src/lib.rs:1:58:\nassertion `left == right` failed\n  left: 1\n\n\nfailures:\n    t::bad\n\ntest result: FAILED. 1 passed; 1 failed; 1 ignored\n";
    let report = parse(Format::LibtestText, text.as_bytes()).unwrap();
    assert_eq!(report.counts().total, 3);
    let bad = &report.tests[1];
    assert_eq!(
        (bad.suite.as_deref(), bad.name.as_str(), bad.line),
        (Some("t"), "bad", Some(1))
    );
    assert_eq!(
        bad.message.as_deref(),
        Some("assertion `left == right` failed")
    );
    let json = "{\"type\":\"test\",\"event\":\"started\",\"name\":\"n::n$t::bad\"}\n{\"type\":\"test\",\"name\":\"n::n$t::bad\",\"event\":\"failed\",\"exec_time\":0.5,\"stdout\":\"thread panicked at src/a.rs:2:3:\\nno\"}\n";
    let report = parse(Format::LibtestJson, json.as_bytes()).unwrap();
    assert_eq!(report.tests.len(), 1);
    assert_eq!(
        (report.tests[0].duration_ms, report.tests[0].line),
        (Some(500.0), Some(2))
    );
}

#[test]
fn a_test_of_unittest_that_writes_to_stderr_is_counted() {
    let text = "a (t.A.a) ... noise\nok\nb (t.A.b) ... loading ... done\nmore\nFAIL\nc (t.A.c) ... \nskipped 'later'\nd (t.A.d) ... ok\nok\ne (t.A.e) ... says\nok\nERROR\n\n======\nFAIL: b (t.A.b)\n------\nAssertionError: no\n\n======\nERROR: e (t.A.e)\n------\nOSError: no\n\n------\nRan 5 tests in 0.001s\n";
    let report = parse(Format::UnittestText, text.as_bytes()).unwrap();
    let told: Vec<(&str, Status)> = report
        .tests
        .iter()
        .map(|test| (test.name.as_str(), test.status))
        .collect();
    assert_eq!(
        told,
        [
            ("a", Status::Passed),
            ("b", Status::Failed),
            ("c", Status::Skipped),
            ("d", Status::Passed),
            ("e", Status::Failed),
        ],
        "{report:#?}"
    );
    let mut tally = Tally::of(Format::UnittestText).unwrap();
    tally.push(text.as_bytes());
    assert_eq!(tally.counts().total, 5);
}

#[test]
fn a_report_that_ends_in_the_middle_says_so() {
    for (format, whole, cut) in [
        (
            Format::Junit,
            "<testsuite><testcase name='a'/></testsuite>",
            "<testsuite><testcase name='a'/>",
        ),
        (Format::Tap, "ok 1 - a\n1..1\n", "ok 1 - a\n"),
        (
            Format::UnittestText,
            "a (t.A.a) ... ok\n\n---\nRan 1 test in 0.001s\n\nOK\n",
            "a (t.A.a) ... ok\n",
        ),
        (
            Format::LibtestText,
            "running 1 test\ntest a ... ok\n\ntest result: ok. 1 passed\n",
            "running 2 tests\ntest a ... ok\n",
        ),
    ] {
        let read = |text: &str| parse(format, text.as_bytes()).unwrap();
        assert_eq!(
            (read(whole).tests.len(), read(whole).cut),
            (1, None),
            "{format:?}"
        );
        assert_eq!(
            (read(cut).tests.len(), read(cut).cut.is_some()),
            (1, true),
            "{format:?}"
        );
    }
}

#[test]
fn what_pythons_runners_print_is_read() {
    let text = "test_a.py::test_ok PASSED                 [ 25%]\nsub/test_b.py::T::test_bad FAILED  [ 50%]\ntest_a.py::test_sk SKIPPED (later) [ 75%]\ntest_a.py::test_x XFAIL [ 80%]\ntest_a.py::test_y[a (b)] SKIPPED (a (b)) [100%]\nFAILED sub/test_b.py::T::test_bad - assert 1 == 2\n";
    let report = parse(Format::PytestText, text.as_bytes()).unwrap();
    let counts = report.counts();
    assert_eq!(
        (counts.total, counts.passed, counts.failed, counts.skipped),
        (5, 1, 1, 3),
        "{report:#?}"
    );
    assert_eq!(report.tests[4].name, "test_y[a (b)]");
    assert_eq!(report.tests[1].suite.as_deref(), Some("sub.test_b.T"));
    let text = "test_ok (t.A.test_ok) ... ok\ntest_bad (t.A.test_bad) ... FAIL\ntest_sk (t.A.test_sk) ... skipped 'later'\n\n======================================================================\nFAIL: test_bad (t.A.test_bad)\n----------------------------------------------------------------------\nTraceback (most recent call last):\n  File \"/work/t.py\", line 5, in test_bad\n    self.assertEqual(1, 2)\nAssertionError: 1 != 2\n\n----------------------------------------------------------------------\nRan 3 tests in 0.001s\n\nFAILED (failures=1, skipped=1)\n";
    let report = parse(Format::UnittestText, text.as_bytes()).unwrap();
    let counts = report.counts();
    assert_eq!(
        (counts.total, counts.failed, counts.skipped),
        (3, 1, 1),
        "{report:#?}"
    );
    let bad = &report.tests[1];
    assert_eq!(
        (bad.message.as_deref(), bad.line, bad.suite.as_deref()),
        (Some("AssertionError: 1 != 2"), Some(5), Some("t.A"))
    );
}

#[test]
fn what_is_written_as_junit_is_read_back_as_the_same_tests() {
    for (format, name) in [
        (Format::Trx, "dotnet.trx"),
        (Format::Jest, "jest.json"),
        (Format::Junit, "nextest.xml"),
        (Format::Mocha, "mocha.json"),
    ] {
        let first = parse(format, &sample(name)).unwrap();
        let written = junit(&first);
        let second = parse(Format::Junit, written.as_bytes()).unwrap();
        let told = |report: &TestReport| {
            let mut told: Vec<_> = report
                .tests
                .iter()
                .map(|test| (test.name.clone(), test.status, test.line))
                .collect();
            told.sort_by(|a, b| a.0.cmp(&b.0));
            told
        };
        assert_eq!(told(&first), told(&second), "{name}:\n{written}");
    }
    let mut hostile = parse(
        Format::Junit,
        b"<testcase name='a'><failure>x</failure></testcase>",
    )
    .unwrap();
    hostile.tests[0].name = "a\"<&\u{0}\u{1b}]]>".to_owned();
    let back = parse(Format::Junit, junit(&hostile).as_bytes()).unwrap();
    assert_eq!(back.tests[0].name, "a\"<&\u{fffd}\u{fffd}]]>");
}

#[test]
fn what_our_own_reporters_write_is_read_as_far_as_it_goes() {
    let lines = concat!(
        r#"{"name":"ok","suite":["a","b"],"status":"passed","duration_ms":1.5,"file":"/work/a.js"}"#,
        "\n",
        r#"{"name":"bad","suite":[],"status":"failed","message":"no","stack":"no\n at /work/a.js:3:1","expected":{"x":[1]},"actual":2}"#,
        "\nnonsense\n",
        r#"{"problem":"b.js cannot be loaded"}"#,
        "\n",
    );
    let read = parse(Format::Events, lines.as_bytes()).unwrap();
    assert_eq!(read.tests.len(), 2);
    assert_eq!(read.tests[0].suite.as_deref(), Some("a › b"));
    let bad = &read.tests[1];
    assert_eq!((bad.status, bad.line), (Status::Failed, Some(3)));
    assert_eq!(bad.expected.as_deref(), Some(r#"{"x":[1]}"#));
    assert_eq!(bad.actual.as_deref(), Some("2"));
    assert!(read.cut.is_some() && read.problems[0].contains("b.js"));
    let whole = parse(
        Format::Events,
        format!("{lines}{{\"end\":true}}\n").as_bytes(),
    )
    .unwrap();
    assert_eq!(whole.cut, None);
}

#[test]
fn a_test_that_is_cut_in_the_middle_has_not_passed() {
    let read = parse(
        Format::Junit,
        b"<testsuite><testcase name='a'/><testcase name='b'><fail",
    )
    .unwrap();
    assert_eq!(read.tests.len(), 1);
    assert!(read.cut.is_some());
}
