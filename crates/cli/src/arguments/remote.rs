//! The grammar of the verbs that talk to a daemon.

use std::path::PathBuf;

use clap::Args;

/// Which daemon.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The daemon's address. A token comes from COFFERDAM_TOKEN.
    #[arg(
        long,
        value_name = "URL",
        env = "COFFERDAM_SERVER",
        default_value = "http://127.0.0.1:8080"
    )]
    pub(crate) server: String,
}

/// Send work to a daemon: a sealed payload, whose envelope is printed, or a run as its API takes it.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam submit payload.json --server http://127.0.0.1:8080\n  echo '{\"command\": [\"make\"]}' | cofferdam submit - --wait\n\nExit code: 0 when it was done or taken on, 1 when a payload's status is ERROR, 125 when the daemon refused or cannot be reached."
)]
pub(crate) struct SubmitArgs {
    /// The payload or the run, or `-` for standard input.
    pub(crate) work: PathBuf,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Of a run: wait for its end and print its record. A payload is always waited for.
    #[arg(long)]
    pub(crate) wait: bool,
}

/// Print what a run of a daemon writes, as it comes, until it has ended.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Example:\n  cofferdam watch 019a8c3e-7f2b-7abc-8def-0123456789ab\n\nExit code: 0 when the run succeeded, 1 when it did not."
)]
pub(crate) struct WatchArgs {
    /// The id of the run.
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}
