//! `cofferdam man`: the manual page, made from the same grammar as the help.

use std::process::ExitCode;

use clap::CommandFactory as _;
use cofferdam_contract::codes::ErrorCode;

use crate::arguments::{Cli, ManArgs};
use crate::failure::{self, Failure};

pub(crate) fn man(args: &ManArgs) -> Result<ExitCode, Failure> {
    let mut command = Cli::command();
    command.build();
    let page = match &args.command {
        None => clap_mangen::Man::new(command),
        Some(name) => match command.find_subcommand(name) {
            Some(found) => clap_mangen::Man::new(found.clone()).title(format!("cofferdam-{name}")),
            None => {
                return Err(Failure::problem(
                    "command",
                    name,
                    "there is no such command; see `cofferdam --help`",
                ));
            }
        },
    };
    let mut text = Vec::new();
    page.render(&mut text)
        .map_err(|error| Failure::io(ErrorCode::Internal, "cannot make the manual page", &error))?;
    failure::print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}
