//! `cofferdam man`: the manual page, made from the same grammar as the help.

use std::process::ExitCode;

use clap::{Command, CommandFactory as _};
use cofferdam_contract::codes::ErrorCode;

use crate::arguments::{Cli, ManArgs};
use crate::failure::{self, Failure};

pub(crate) fn man(args: &ManArgs) -> Result<ExitCode, Failure> {
    let text = page(&args.command)?;
    failure::print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

fn page(asked: &[String]) -> Result<Vec<u8>, Failure> {
    let mut command = Cli::command();
    command.build();
    // Pages are named `cofferdam-runs-list`, so people ask for `runs-list` too.
    let names: Vec<&str> = asked.iter().flat_map(|name| name.split('-')).collect();
    let mut found: &Command = &command;
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
    let title = title.collect::<Vec<_>>().join("-");
    let mut text = Vec::new();
    clap_mangen::Man::new(found.clone())
        .title(title)
        .render(&mut text)
        .map_err(|error| Failure::io(ErrorCode::Internal, "cannot make the manual page", &error))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(asked: &[&str]) -> Option<String> {
        let asked: Vec<String> = asked.iter().map(ToString::to_string).collect();
        let text = page(&asked).ok()?;
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
}
