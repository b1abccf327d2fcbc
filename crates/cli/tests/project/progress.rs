//! The line at the foot of a terminal that counts tests as they end. The terminal is a real one, made by Python.

use std::process::{Command, Output, Stdio};

use cofferdam_testkit::{Host, Need, Way, host};

use crate::fixture::project;

const SLOW: &[(&str, &str)] = &[
    ("setup.cfg", ""),
    (
        "test_x.py",
        "import time, unittest\n\nclass T(unittest.TestCase):\n    def test_a(self): pass\n    def test_b(self): self.fail()\n    def test_c(self): time.sleep(2)\n",
    ),
];
/// Gives the program a terminal of so many columns, and its output to us.
const TERMINAL: &str = "import fcntl, os, pty, struct, sys, termios\npid, fd = pty.fork()\nif pid == 0:\n    os.execv(sys.argv[2], sys.argv[2:])\nfcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', 24, int(sys.argv[1]), 0, 0))\nwhile True:\n    try: data = os.read(fd, 65536)\n    except OSError: break\n    if not data: break\n    os.write(1, data)\nsys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";

fn on_terminal(host: &Host, columns: &str, no_color: bool, more: &[&str]) -> (String, Option<i32>) {
    let way = Way::all()[0];
    let dir = project(host, way, SLOW);
    let data = host.workspace(way);
    let mut command = Command::new("/usr/bin/python3");
    command
        .args(["-c", TERMINAL, columns])
        .arg(host.binary())
        .arg("--data-dir")
        .arg(&data)
        .args(["test", "--cache-dir"])
        .arg(data.join("cache"))
        .arg(&dir)
        .args(more)
        .env_remove("COLUMNS")
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .stdin(Stdio::null());
    if no_color {
        command.env("NO_COLOR", "1");
    }
    let Output { status, stdout, .. } = command.output().unwrap();
    (String::from_utf8_lossy(&stdout).into_owned(), status.code())
}

#[test]
fn a_line_counts_the_tests_as_they_end_and_goes_away() {
    let host = host!(Need::Python);
    let (shown, code) = on_terminal(&host, "100", false, &[]);
    assert_eq!(code, Some(1), "{shown}");
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
    let (shown, _) = on_terminal(&host, "24", true, &[]);
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
        let (shown, code) = on_terminal(&host, "100", false, &[quiet]);
        assert_eq!(code, Some(1), "{shown}");
        assert!(
            !shown.contains("tests, 1 failed") && !shown.contains("\u{1b}[K"),
            "{shown:?}"
        );
    }
}
