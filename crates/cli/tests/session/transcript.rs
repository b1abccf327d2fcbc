//! Sessions to the letter. A file of `sessions/` holds commands behind `$ `, and below each what it printed behind `| `, what it said on standard error behind `! `, and `= N` for an exit code other than 0. Lines that
//! begin with `#` say what it is about. `COFFERDAM_BLESS=1` writes down what happens now.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_testkit::{Host, Need, Way, host};

use crate::mask::mask;

const SESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/session/sessions");
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a session again and compares.
#[track_caller]
fn holds(host: &Host, way: Way, name: &str) {
    let file = Path::new(SESSIONS).join(name).with_extension("session");
    let expected = std::fs::read_to_string(&file).unwrap();
    let dir = host.workspace(way);
    let mut now = String::new();
    for line in expected.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            now.push_str(&format!("$ {command}\n{}", said(host, way, &dir, command)));
        } else if line.starts_with('#') || line.is_empty() {
            now.push_str(&format!("{line}\n"));
        }
    }
    if std::env::var_os("COFFERDAM_BLESS").is_some() {
        std::fs::write(&file, &now).unwrap();
        return;
    }
    let differs = expected
        .lines()
        .zip(now.lines())
        .find(|(was, is)| was != is);
    assert!(
        expected == now,
        "{name} is not as it was ({differs:?}); COFFERDAM_BLESS=1 writes it down if that is meant:\n{now}"
    );
}

/// What a command of a session prints. A shell reads it, in a directory of the session.
fn said(host: &Host, way: Way, dir: &PathBuf, command: &str) -> String {
    let script = format!(
        "bin=$1; shift; cofferdam() {{ \"$bin\" \"$@\"; }}; cd '{}' || exit 1\n{command}",
        dir.display()
    );
    let launch = host.launch::<&str>([]).from_shell(&script).way(way);
    let launch = launch.env("HOME", dir).env("COLUMNS", "80");
    let done = launch
        .env("COFFERDAM_WORKER_ID", "local")
        .start()
        .finish_within(PATIENCE);
    let data = host.history(way);
    let own = [
        (data.to_str().unwrap(), "DATA"),
        (dir.to_str().unwrap(), "DIR"),
        (host.mark(), "MARK"),
    ];
    let mut text = String::new();
    for (mark, bytes) in [('|', &done.stdout), ('!', &done.stderr)] {
        for line in mask(&String::from_utf8_lossy(bytes), &own).lines() {
            let line = format!("{mark} {line}");
            text.push_str(&format!("{}\n", line.trim_end()));
        }
    }
    if done.code() != 0 {
        text.push_str(&format!("= {}\n", done.code()));
    }
    text
}

#[test]
fn a_session_of_runs_and_every_limit_is_as_it_is_written() {
    let host = host!(Need::Cgroup);
    holds(&host, Way::Root, "runs");
}

#[test]
fn a_session_of_mistakes_on_the_command_line_is_as_it_is_written() {
    let host = host!();
    holds(&host, Way::all()[0], "mistakes");
}

#[test]
fn a_session_with_history_is_as_it_is_written() {
    let host = host!();
    holds(&host, Way::all()[0], "history");
}

#[test]
fn a_session_with_payloads_and_keys_is_as_it_is_written() {
    let host = host!();
    holds(&host, Way::all()[0], "payloads");
}

#[test]
fn a_session_with_nobody_at_the_other_end_is_as_it_is_written() {
    let host = host!();
    holds(&host, Way::all()[0], "alone");
}

#[test]
fn a_session_with_projects_is_as_it_is_written() {
    let host = host!(Need::Python);
    holds(&host, Way::all()[0], "projects");
}

#[test]
fn a_session_of_somebody_who_may_not_is_as_it_is_written() {
    let host = host!();
    holds(&host, Way::User, "denied");
}

#[test]
fn every_session_that_is_written_is_held() {
    let own = include_str!("transcript.rs");
    for entry in std::fs::read_dir(SESSIONS).unwrap() {
        let name = entry.unwrap().path();
        let name = name.file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(own.contains(&format!("\"{name}\")")), "{name} is never run");
    }
}
