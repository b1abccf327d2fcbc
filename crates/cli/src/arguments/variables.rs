//! Variables that stand for flags. It decides which of them count, not what they say.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command, CommandFactory as _, FromArgMatches as _, Parser as _};

use super::Cli;

/// Reads the command line by the whole grammar.
pub(super) fn parse() -> Result<Cli, clap::Error> {
    let is_empty = |(name, value): &(OsString, OsString)| {
        value.is_empty() && name.as_encoded_bytes().starts_with(b"COFFERDAM_")
    };
    if !std::env::vars_os().any(|variable| is_empty(&variable)) {
        return Cli::try_parse();
    }
    let mut command = without_empty(Cli::command());
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// An empty variable counts as unset, as everywhere else on Unix.
fn without_empty(command: Command) -> Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let forgotten = |arg: Arg| match arg.get_env() {
        Some(name) if is_empty(name) => arg.env(None::<&'static str>),
        _ => arg,
    };
    command.mut_args(forgotten).mut_subcommands(without_empty)
}
