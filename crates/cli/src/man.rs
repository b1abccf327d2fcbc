//! `cofferdam man`: the manual pages, made from the same grammar as the help.

use std::path::Path;
use std::process::ExitCode;

use clap::{Command, CommandFactory as _};
use cofferdam_contract::codes::ErrorCode;

use crate::arguments::{Cli, ManArgs};
use crate::failure::{self, Failure};

pub(crate) fn man(args: &ManArgs) -> Result<ExitCode, Failure> {
    let mut command = Cli::command();
    command.build();
    match &args.into {
        Some(dir) => write_all(&command, "cofferdam", dir)?,
        None => {
            let text = page(&command, &args.command)?;
            failure::print(&String::from_utf8_lossy(&text))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn page(command: &Command, asked: &[String]) -> Result<Vec<u8>, Failure> {
    // Pages are named `cofferdam-runs-list`, so people ask for `runs-list` too.
    let names: Vec<&str> = asked.iter().flat_map(|name| name.split('-')).collect();
    let mut found: &Command = command;
    for name in &names {
        found = found.find_subcommand(name).ok_or_else(|| {
            Failure::problem(
                "command",
                &asked.join(" "),
                "there is no such command; see `cofferdam --help`",
            )
        })?;
    }
    let title = ["cofferdam"].iter().chain(&names).copied();
    render(found, &title.collect::<Vec<_>>().join("-"))
}

/// A page for the command and for each below it that is not hidden.
fn write_all(command: &Command, title: &str, dir: &Path) -> Result<(), Failure> {
    let path = dir.join(format!("{title}.1"));
    std::fs::write(&path, render(command, title)?).map_err(|error| {
        let what = format!("cannot write {}", path.display());
        Failure::io(ErrorCode::OutputWriteFailed, &what, &error)
    })?;
    let below = command.get_subcommands().filter(|one| !one.is_hide_set());
    // `help` is the same text again, for each of them.
    for one in below.filter(|one| one.get_name() != "help") {
        write_all(one, &format!("{title}-{}", one.get_name()), dir)?;
    }
    Ok(())
}

fn render(command: &Command, title: &str) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone())
        .title(title)
        .render(&mut text)
        .map_err(|error| Failure::io(ErrorCode::Internal, "cannot make the manual page", &error))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(asked: &[&str]) -> Option<String> {
        let mut command = Cli::command();
        command.build();
        let asked: Vec<String> = asked.iter().map(ToString::to_string).collect();
        let text = page(&command, &asked).ok()?;
        String::from_utf8(text).ok()
    }

    #[test]
    fn commands_within_commands_have_pages() {
        let list = shown(&["runs", "list"]).unwrap();
        assert!(list.contains(".TH cofferdam-runs-list"), "{list}");
        assert!(list.contains("longer"), "{list}");
        assert_eq!(shown(&["runs-list"]), Some(list));
        assert!(shown(&[]).is_some_and(|page| page.contains(".TH cofferdam ")));
        assert_eq!(shown(&["runs", "lst"]), None);
        assert_eq!(shown(&["run-"]), None);
    }

    #[test]
    fn all_pages_are_written_and_the_hidden_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Cli::command();
        command.build();
        write_all(&command, "cofferdam", dir.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).ok();
        assert_eq!(read("cofferdam-runs-list.1"), shown(&["runs", "list"]));
        assert_eq!(read("cofferdam.1"), shown(&[]));
        assert_eq!(read("cofferdam-wasm-compile.1"), None);
        assert_eq!(read("cofferdam-help.1"), None);
        assert!(write_all(&command, "cofferdam", &dir.path().join("absent")).is_err());
    }
}
