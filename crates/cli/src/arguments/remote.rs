//! The grammar of the verbs that talk to a daemon.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::fleet::ToFleetArgs;
use super::{LimitArgs, words};

/// Which daemon.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The daemon's address. A token comes from COFFERDAM_TOKEN.
    #[arg(
        help_heading = "Daemon",
        long,
        value_name = "URL",
        env = "COFFERDAM_SERVER",
        hide_env_values = true,
        default_value = "http://127.0.0.1:8080"
    )]
    pub(crate) server: String,
}

/// Send work to a daemon or a fleet: a sealed payload, whose envelope is printed, a run as the daemon's API takes it, or a project to be built or tested there.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam submit payload.json --server http://127.0.0.1:8080\n  echo '{\"command\": [\"make\"]}' | cofferdam submit - --wait\n  cofferdam submit --project . --action test --filter login --junit out.xml\n  cofferdam submit --project ./web --action build --restore --keep dist\n  cofferdam submit payload.json --fleet nats://127.0.0.1:4222 --replicas 3 --wait\n\nWithout --trusted, a worker of a fleet is known by the key under which it was first seen.\nOf a project, what .gitignore names stays here, and Ctrl-C cancels the run. What is kept lies at the daemon: /v1/runs/ID/artifacts.\n\nExit code: 0 when it was done or taken on, 1 when a payload's status is ERROR or a fleet's answers are not verified, 125 when the daemon refused or cannot be reached; of a project that of the same verb here."
)]
pub(crate) struct SubmitArgs {
    /// The payload or the run, or `-` for standard input.
    #[arg(required_unless_present = "project")]
    pub(crate) work: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Of a run: wait for its end and print its record. With --fleet: check, compare and print the answer. A daemon's payload is always waited for.
    #[arg(help_heading = "Daemon", long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) to_fleet: ToFleetArgs,
    #[command(flatten)]
    pub(crate) project: ProjectArgs,
}

/// A project for a daemon.
#[derive(Debug, Args)]
pub(crate) struct ProjectArgs {
    /// Send this directory and do something with it there.
    #[arg(
        long,
        value_name = "DIR",
        help_heading = "Project",
        conflicts_with = "work"
    )]
    pub(crate) project: Option<PathBuf>,
    /// What to do.
    #[arg(
        long,
        value_enum,
        default_value = "test",
        help_heading = "Project",
        requires = "project"
    )]
    pub(crate) action: RemoteAction,
    /// The command of `.agent/config.yml`, for `--action task`.
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "Project",
        requires = "project"
    )]
    pub(crate) task: Option<String>,
    #[arg(
        help = words::ONLY,
        long,
        value_name = "NAME",
        help_heading = "Project",
        requires = "project"
    )]
    pub(crate) only: Vec<String>,
    /// Install what it depends on first, from the daemon's caches.
    #[arg(long, help_heading = "Project", requires = "project")]
    pub(crate) restore: bool,
    /// Send also what .gitignore names, such as node_modules.
    #[arg(long, help_heading = "Project", requires = "project")]
    pub(crate) all_files: bool,
    /// Keep the files of this directory as artifacts. Can be given more than once.
    #[arg(
        long,
        value_name = "DIR",
        help_heading = "Project",
        requires = "project"
    )]
    pub(crate) keep: Vec<String>,
    #[arg(
        help = words::ENV,
        long,
        short,
        value_name = "KEY[=VALUE]",
        help_heading = "Project",
        requires = "project"
    )]
    pub(crate) env: Vec<OsString>,
    #[arg(
        help = words::FILTER,
        long,
        value_name = "TEXT",
        help_heading = "Project",
        requires = "project"
    )]
    pub(crate) filter: Option<String>,
    /// An argument for the program, with --action run. Can be given more than once.
    #[arg(
        long = "arg",
        value_name = "ARG",
        allow_hyphen_values = true,
        help_heading = "Project",
        requires = "project"
    )]
    pub(crate) args: Vec<String>,
    #[arg(help = words::FAIL_FAST, long, help_heading = "Project", requires = "project")]
    pub(crate) fail_fast: bool,
    #[arg(help = words::COVERAGE, long, help_heading = "Project", requires = "project")]
    pub(crate) coverage: bool,
    #[arg(
        help = words::RETRIES,
        long,
        value_name = "N",
        default_value_t = 0,
        help_heading = "Project",
        requires = "project"
    )]
    pub(crate) retries: u32,
    #[arg(
        help = words::JUNIT,
        long,
        value_name = "FILE",
        help_heading = "Project",
        requires = "project"
    )]
    pub(crate) junit: Option<PathBuf>,
    #[arg(
        help = words::SARIF,
        long,
        value_name = "FILE",
        help_heading = "Project",
        requires = "project"
    )]
    pub(crate) sarif: Option<PathBuf>,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
    #[arg(help = words::QUIET, long, short, help_heading = "Project", requires = "project")]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RemoteAction {
    Restore,
    Build,
    Test,
    Lint,
    Format,
    /// Start its program.
    Run,
    /// A command that the project names itself.
    Task,
}

/// Print what a run of a daemon writes, as it comes, until it has ended.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam watch 019a8c3e-7f2b-7abc-8def-0123456789ab\n  cofferdam watch 019a8c3e-7f2b-7abc-8def-0123456789ab --json | jq -r .event\n\nExit code: 0 when the run succeeded, 1 when it did not."
)]
pub(crate) struct WatchArgs {
    /// The id of the run.
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
}
