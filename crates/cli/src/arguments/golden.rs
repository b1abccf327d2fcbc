//! The grammar of `cofferdam golden`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{LimitArgs, words};

/// Compare what commands do with what they are expected to do, case by case, each in a sandbox of its own.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  cofferdam golden run tests/golden
  cofferdam golden bless tests/golden --case greets

A case is a directory:
  command           a line for a shell
  input/            files that lie in its directory when it starts; may be absent
  expected/         written by `bless`: stdout, stderr, exit_code, and below files/ what was added or changed

Exit code: 0 all as expected, 1 not, 125 cofferdam itself could not do its work")]
pub(crate) struct GoldenArgs {
    #[command(subcommand)]
    pub(crate) verb: GoldenVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GoldenVerb {
    /// Run the cases and show what differs.
    #[command(
        after_long_help = "Examples:\n  cofferdam golden run tests/golden\n  cofferdam golden run tests/golden --case greets --json"
    )]
    Run(GoldenCases),
    /// Run the cases and write down what they do as what is expected.
    #[command(after_long_help = "Example:\n  cofferdam golden bless tests/golden --case greets")]
    Bless(GoldenCases),
}

#[derive(Debug, Args)]
pub(crate) struct GoldenCases {
    /// The directory that holds the cases.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Only this case. Can be given more than once.
    #[arg(long, value_name = "NAME", help_heading = "Cases")]
    pub(crate) case: Vec<String>,
    #[arg(help = words::MOUNT, long, value_name = "FROM:TO[:ro|rw]", help_heading = "Cases")]
    pub(crate) mount: Vec<OsString>,
    #[arg(help = words::ENV, long, short, value_name = "KEY[=VALUE]", help_heading = "Cases")]
    pub(crate) env: Vec<OsString>,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}
