//! A pager for what is longer than the terminal: `COFFERDAM_PAGER`, `PAGER`, else `less -FRX` where there is one.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::output::{self, Reader};
use super::size::Target;
use crate::failure::Failure;

/// Whether a pager may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paging {
    Allowed,
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Choice {
    /// A command line, for a shell: people write options and pipes into these variables.
    Shell(OsString),
    Less,
    None,
}

/// Shows a text, through a pager where it is longer than the terminal.
pub(crate) fn show(text: &str, target: Target, paging: Paging) -> Result<(), Failure> {
    if paging == Paging::Allowed && is_longer(text, target) {
        let choice = choose(|name| std::env::var_os(name), has_less);
        if let Some(pager) = start(&choice) {
            feed(pager, text);
            return Ok(());
        }
    }
    output::write_stdout(text.as_bytes()).map(|_| ())
}

fn is_longer(text: &str, target: Target) -> bool {
    match target {
        Target::Pipe => false,
        // The prompt takes a line.
        Target::Terminal(window) => text.lines().count() >= window.rows,
    }
}

fn choose(variable: impl Fn(&str) -> Option<OsString>, less: impl Fn() -> bool) -> Choice {
    let said = variable("COFFERDAM_PAGER").or_else(|| variable("PAGER"));
    match said {
        Some(value) if value.is_empty() || value == "cat" => Choice::None,
        Some(value) => Choice::Shell(value),
        None if less() => Choice::Less,
        None => Choice::None,
    }
}

fn has_less() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| is_executable(&dir.join("less")))
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// `None` when there is no pager or it does not start: then the text is printed as it is.
fn start(choice: &Choice) -> Option<Child> {
    let mut command = match choice {
        Choice::None => return None,
        Choice::Less => {
            let mut less = Command::new("less");
            less.arg("-FRX");
            less
        }
        Choice::Shell(line) => {
            let mut shell = Command::new("/bin/sh");
            shell.args([OsStr::new("-c"), line]);
            shell
        }
    };
    command.stdin(Stdio::piped()).spawn().ok()
}

/// Ctrl-C is for the pager as long as it is there: it would be left alone with the terminal if we went.
fn feed(mut pager: Child, text: &str) {
    let signals = cofferdam_engine::cancel_on_signals();
    if let Some(mut input) = pager.stdin.take()
        && output::write(&mut input, text.as_bytes()).is_ok_and(|reader| reader == Reader::There)
    {
        let _ = input.flush();
    }
    let _ = pager.wait();
    drop(signals);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::size::Window;

    fn chosen(variables: &[(&str, &str)]) -> Choice {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        choose(lookup, || true)
    }

    #[test]
    fn the_nearest_variable_wins_and_cat_means_none() {
        let both = [("COFFERDAM_PAGER", "most"), ("PAGER", "more")];
        assert_eq!(chosen(&both), Choice::Shell("most".into()));
        assert_eq!(
            chosen(&[("PAGER", "less -R | x")]),
            Choice::Shell("less -R | x".into())
        );
        for none in ["", "cat"] {
            let quiet = [("COFFERDAM_PAGER", none), ("PAGER", "more")];
            assert_eq!(chosen(&quiet), Choice::None);
        }
        assert_eq!(chosen(&[]), Choice::Less);
        assert_eq!(choose(|_| None, || false), Choice::None);
    }

    #[test]
    fn only_what_does_not_fit_is_paged() {
        let terminal = Target::Terminal(Window {
            columns: 80,
            rows: 3,
        });
        assert!(!is_longer("a\nb\n", terminal));
        assert!(is_longer("a\nb\nc\n", terminal));
        assert!(!is_longer("a\nb\nc\n", Target::Pipe));
    }
}
