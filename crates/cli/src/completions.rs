//! `cofferdam completions`: a script that teaches a shell our command line.

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::arguments::{Cli, CompletionsArgs};
use crate::failure::{self, Failure};

pub(crate) fn completions(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "cofferdam", &mut script);
    failure::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
