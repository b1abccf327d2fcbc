//! The grammar of the verbs about projects: `detect`, `restore`, `build`, `test`, `lint`, `format` and `start`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use cofferdam_contract::request::BackendName;

use super::{ContainerArgs, HistoryArgs, LimitArgs, words};
use crate::config::spelling;

/// Show what lies in a directory: projects, workspaces, package managers, test frameworks.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam detect\n  cofferdam detect ./service --json\n\nNothing is run, links are not followed, and what .gitignore names is passed by."
)]
pub(crate) struct DetectArgs {
    /// The directory to search.
    #[arg(default_value = ".", value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// How many levels to go down.
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub(crate) depth: usize,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
}

/// What every verb that does something with a project takes.
#[derive(Debug, Args)]
pub(crate) struct ActArgs {
    /// The directory of the project; it is seen inside as /work and is written to.
    #[arg(default_value = ".", value_name = "PATH")]
    pub(crate) path: PathBuf,
    #[arg(help_heading = "Project", help = words::ONLY, long = "only", alias = "project", value_name = "NAME")]
    pub(crate) project: Vec<String>,
    /// Leave the project untouched: changes are seen inside and go afterwards.
    #[arg(help_heading = "Project", long)]
    pub(crate) cow: bool,
    #[arg(help_heading = "Project", help = words::CACHE_DIR, long, value_name = "DIR")]
    pub(crate) cache_dir: Option<PathBuf>,

    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
    #[arg(help = words::QUIET, long, short, help_heading = "Output")]
    pub(crate) quiet: bool,
    #[arg(help = words::SARIF, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) sarif: Option<PathBuf>,

    #[arg(help = words::MOUNT, long, value_name = "FROM:TO[:ro|rw]", help_heading = "Toolchain")]
    pub(crate) mount: Vec<OsString>,
    #[arg(help = words::ENV, long, short, value_name = "KEY[=VALUE]", help_heading = "Toolchain")]
    pub(crate) env: Vec<OsString>,
    #[arg(help = words::BACKEND, long, value_name = "NAME", help_heading = "Enforcement", value_parser = spelling::backend)]
    pub(crate) backend: Option<BackendName>,
    /// Run even if this limit cannot be enforced here. Can be given more than once.
    #[arg(long, value_name = "LIMIT", help_heading = "Enforcement")]
    pub(crate) waive: Vec<String>,

    #[command(flatten)]
    pub(crate) container: ContainerArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) history: HistoryArgs,
}

/// Fetch what a project depends on: from its cache without network, or with `--backend host` from where it comes from.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  cofferdam restore --backend host   # fetch into the cache; nothing of the project's is executed
  cofferdam restore                  # install from the cache inside the sandbox, without network

Exit code: 0 done, 1 a tool failed, 124, 137, 152, 153 a limit, 125 cofferdam itself could not do its work")]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    pub(crate) act: ActArgs,
    /// With --backend host: let Maven, .NET and Yarn 2 or later fetch, which execute parts of the project with your rights when they do.
    #[arg(long, help_heading = "Enforcement")]
    pub(crate) trust_project: bool,
}

/// Build a project inside hard limits, without network, and say what its compilers said about the source.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  cofferdam build
  cofferdam build ./service --json
  cofferdam build --sarif out.sarif

Exit code: 0 built, 1 not built, 124, 137, 152, 153 a limit, 125 cofferdam itself could not do its work")]
pub(crate) struct BuildArgs {
    #[command(flatten)]
    pub(crate) act: ActArgs,
}

/// Look at the source of a project with its linters, inside hard limits.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Example:\n  cofferdam lint --json\n\nExit code: 0 nothing found, 1 something found"
)]
pub(crate) struct LintArgs {
    #[command(flatten)]
    pub(crate) act: ActArgs,
}

/// Format the source of a project with its own tools, inside hard limits.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  cofferdam format")]
pub(crate) struct FormatArgs {
    #[command(flatten)]
    pub(crate) act: ActArgs,
}

/// Run the tests of a project inside hard limits, without network, and tell each result.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  cofferdam test
  cofferdam test ./service --filter login --junit out.xml
  cofferdam test --retries 2        # what passes only at another attempt is told apart
  cofferdam test --repeat 10 --json
  cofferdam test --backend docker --image python:3.13

Exit code: 0 passed, 1 failed, 124, 137, 152, 153 a limit, 125 cofferdam itself could not do its work")]
pub(crate) struct TestArgs {
    #[command(flatten)]
    pub(crate) act: ActArgs,
    #[arg(help = words::FILTER, long, value_name = "TEXT", help_heading = "Tests")]
    pub(crate) filter: Option<String>,
    #[arg(help = words::FAIL_FAST, long, help_heading = "Tests")]
    pub(crate) fail_fast: bool,
    #[arg(help = words::COVERAGE, long, help_heading = "Tests")]
    pub(crate) coverage: bool,
    #[arg(help = words::JUNIT, long, value_name = "FILE", help_heading = "Tests")]
    pub(crate) junit: Option<PathBuf>,
    #[arg(help = words::RETRIES, long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=20), help_heading = "Tests", conflicts_with = "repeat")]
    pub(crate) retries: u32,
    /// Run the tests N times; what does not pass every time has failed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Tests")]
    pub(crate) repeat: u32,
}

/// Start the program of a project inside hard limits and without network: `dotnet run`, the script `start`, `cargo run`, `go run`, Python's or Java's main.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  cofferdam start
  cofferdam start ./service -- --port 8080
  cofferdam start --only web ./solution < input.txt

What changed is built first. What the program prints is printed, its input is yours, and its exit code is the exit code.
`run` in .agent/config.yml takes the place of it. Where there is more than one program, --only says which.

Exit code: the program's own; 1 not built, 124, 137, 152, 153 a limit, 125 cofferdam itself could not do its work")]
pub(crate) struct StartArgs {
    #[command(flatten)]
    pub(crate) act: ActArgs,
    /// For the program.
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) args: Vec<String>,
}

/// Run a command that the project names in its `.agent/config.yml`, inside hard limits.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  cofferdam task --list ./service
  cofferdam task deploy-check ./service

The file:
  commands:
    build: make -j2
    test: [make test, make check]
    deploy-check:
      command: ./check ${project_root}
      working_directory: ops
      timeout: 2m
      environment: {MODE: strict}
    format: null          # disabled

`build`, `test`, `restore`, `lint`, `format` and `run` (`cofferdam start`) in it take the place of what cofferdam would do itself.")]
pub(crate) struct TaskArgs {
    /// The name of the command.
    #[arg(value_name = "NAME", required_unless_present = "list")]
    pub(crate) name: Option<String>,
    /// Show the commands instead of running one.
    #[arg(help_heading = "Project", long)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) act: ActArgs,
}
