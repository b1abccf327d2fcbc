//! The line at the foot of a terminal that counts tests as they end. The terminal is a real one, made by Python.

use cofferdam_testkit::{Host, Need, Way, host};

use crate::fixture::project;

const SLOW: &[(&str, &str)] = &[
    ("setup.cfg", ""),
    (
        "test_x.py",
        "import time, unittest\n\nclass T(unittest.TestCase):\n    def test_a(self): pass\n    def test_b(self): self.fail()\n    def test_c(self): time.sleep(2)\n",
    ),
];
fn on_terminal(host: &Host, columns: u16, no_color: bool, more: &[&str]) -> (String, i32) {
    let way = Way::all()[0];
    let dir = project(host, way, SLOW);
    let cache = host.workspace(way);
    let (dir, cache) = (dir.to_str().unwrap(), cache.to_str().unwrap());
    let args = [&["test", "--cache-dir", cache, dir], more].concat();
    let mut terminal = host.terminal(args).columns(columns);
    if no_color {
        terminal = terminal.env("NO_COLOR", "1");
    }
    let shown = terminal.show();
    (shown.text, shown.code)
}

#[test]
fn a_line_counts_the_tests_as_they_end_and_goes_away() {
    let host = host!(Need::Python);
    let (shown, code) = on_terminal(&host, 100, false, &[]);
    assert_eq!(code, 1, "{shown}");
    assert!(shown.contains("2 tests, 1 failed, 1"), "{shown:?}");
    assert!(
        shown.contains("\u{1b}[31m2 tests"),
        "a failure is red: {shown:?}"
    );
    // The last that was drawn is taken away before the result is told.
    let (_, after) = shown.rsplit_once("\r\u{1b}[K").unwrap();
    assert!(!after.contains("tests, 1 failed"), "{after:?}");
    assert!(
        after.contains("3 tests: 2 passed, 1 failed, 0 skipped"),
        "{after:?}"
    );
}

#[test]
fn the_line_knows_narrow_terminals_and_people_who_want_no_colour_or_no_line() {
    let host = host!(Need::Python);
    let (shown, _) = on_terminal(&host, 24, true, &[]);
    let drawn: Vec<&str> = shown
        .split('\r')
        .filter(|part| part.starts_with("2 tests"))
        .collect();
    assert!(!drawn.is_empty(), "{shown:?}");
    for line in drawn {
        let text = line.split("\u{1b}[K").next().unwrap();
        assert!(text.chars().count() < 24, "{text:?}");
    }
    assert!(!shown.contains("\u{1b}[31m"), "{shown:?}");
    for quiet in ["--json", "--quiet"] {
        let (shown, code) = on_terminal(&host, 100, false, &[quiet]);
        assert_eq!(code, 1, "{shown}");
        assert!(
            !shown.contains("tests, 1 failed") && !shown.contains("\u{1b}[K"),
            "{shown:?}"
        );
    }
}
