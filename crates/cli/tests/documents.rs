//! Sessions in the documents are what happens: every line after `$ ` is typed as it stands, and what follows it must be what comes. `…` stands for what differs
//! from machine to machine; alone on a line, for all that follows.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "the functions beside a test are as much test as it is"
)]

use std::path::{Path, PathBuf};

use cofferdam_testkit::docker::{skip, which};
use cofferdam_testkit::{Desk, desk};

const TOOLS: [&str; 3] = ["jq", "python3", "node"];

#[test]
fn the_session_of_the_readme_is_what_happens() {
    play("README.md", &desk!());
}

#[test]
fn the_sessions_about_limits_and_the_sandbox_are_what_happens() {
    play("docs/limits.md", &desk!());
    play("docs/sandbox.md", &desk!());
}

#[test]
fn the_session_about_languages_is_what_happens() {
    play("docs/languages.md", &desk!());
}

#[test]
fn the_session_about_payloads_is_what_happens() {
    let desk = desk!();
    let page = read("docs/payloads.md");
    let draft = blocks(&page, "json");
    desk.write("draft.json", draft.first().unwrap());
    play("docs/payloads.md", &desk);
}

/// All sessions of a page, one after the other, in one directory.
fn play(page: &str, desk: &Desk) {
    if let Some(missing) = TOOLS.into_iter().find(|tool| which(tool).is_none()) {
        let _: Option<()> = skip(missing);
        return;
    }
    let text = read(page);
    let sessions = blocks(&text, "console");
    assert!(!sessions.is_empty(), "{page} has no session");
    for (command, expected) in sessions.iter().flat_map(|session| steps(session)) {
        let said = shell(desk, &command);
        assert!(
            is_like(&said, &expected),
            "{page}: $ {command}\nis said to give:\n{expected}\nand gave:\n{said}"
        );
    }
}

fn read(page: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(page);
    std::fs::read_to_string(path).unwrap()
}

/// What stands in the fences of this kind.
fn blocks(page: &str, kind: &str) -> Vec<String> {
    let begin = format!("```{kind}");
    let mut found = Vec::new();
    let mut lines = page.lines();
    while lines.any(|line| line == begin) {
        let inside = lines.by_ref().take_while(|line| *line != "```");
        found.push(inside.map(|line| format!("{line}\n")).collect());
    }
    found
}

/// Each command with what it is said to give.
fn steps(session: &str) -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    for line in session.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command.to_owned(), String::new())),
            (None, Some((_, expected))) => {
                expected.push_str(line);
                expected.push('\n');
            }
            (None, None) => panic!("a session begins with a command: {line}"),
        }
    }
    steps
}

/// In a shell that finds our binary; both streams, as a terminal would show them.
fn shell(desk: &Desk, command: &str) -> String {
    let own = Path::new(env!("CARGO_BIN_EXE_cofferdam")).parent().unwrap();
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", &format!("{{ {command}\n}} 2>&1")])
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", own.display()))
        .env("HOME", desk.root())
        .env("COFFERDAM_DATA_DIR", desk.path("data"))
        .current_dir(desk.root());
    let done = shell.output().unwrap();
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn is_like(said: &str, expected: &str) -> bool {
    let mut said = said.lines();
    for line in expected.lines() {
        if line.trim() == "…" {
            return true;
        }
        if !said.next().is_some_and(|said| line_is_like(said, line)) {
            return false;
        }
    }
    said.next().is_none()
}

fn line_is_like(said: &str, expected: &str) -> bool {
    let mut rest = said;
    let mut pieces = expected.split('…').peekable();
    let first = pieces.next().unwrap_or_default();
    let Some(after) = rest.strip_prefix(first) else {
        return false;
    };
    rest = after;
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        match rest.split_once(piece) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.is_empty()
}

#[test]
fn what_differs_from_machine_to_machine_is_passed_over_and_nothing_else() {
    assert!(is_like("a 12 ms b\nc\n", "a … ms b\nc\n"));
    assert!(is_like("a\nb\nc\n", "a\n  …\n"));
    assert!(is_like("uid 0 (root)\n", "uid …\n"));
    for (said, expected) in [
        ("a\nb\n", "a\n"),
        ("a\n", "a\nb\n"),
        ("ab\n", "a\n"),
        ("a 12 s b\n", "a … ms b\n"),
        ("a ms c\n", "a … ms b\n"),
    ] {
        assert!(!is_like(said, expected), "{said} {expected}");
    }
    let steps = steps("$ one\nx\ny\n$ two\n");
    let step = |command: &str, expected: &str| (command.to_owned(), expected.to_owned());
    assert_eq!(steps, [step("one", "x\ny\n"), step("two", "")]);
}
