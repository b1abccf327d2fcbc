//! The command line's grammar: what can be said, with help and examples. Turning it into a request is each verb's own work.

pub(crate) mod bundle;
pub(crate) mod cache;
pub(crate) mod chain;
pub(crate) mod fleet;
pub(crate) mod golden;
pub(crate) mod history;
pub(crate) mod images;
pub(crate) mod keys;
#[cfg(test)]
mod language_tests;
mod limits;
pub(crate) mod network;
pub(crate) mod policy;
pub(crate) mod project;
mod quick;
pub(crate) mod remote;
pub(crate) mod serve;
mod variables;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use cofferdam_contract::mode::Mode;
use cofferdam_contract::request::{BackendName, Gpus};
use cofferdam_contract::units::Bytes;

use crate::config::spelling;
use bundle::{AuditArgs, ExportArgs, ImportArgs, KeyArgs};
use history::{ArtifactsArgs, RunsArgs};
pub(crate) use limits::LimitArgs;
use serve::{ServeArgs, TokenArgs};

/// Runs untrusted work inside hard limits and returns a result that can be trusted.
#[derive(Debug, Parser)]
#[command(
    name = "cofferdam",
    version = env!("COFFERDAM_VERSION"),
    about,
    max_term_width = 110,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// Read this configuration file too; it wins over the system's and the user's.
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub(crate) config: Option<PathBuf>,
    /// Where history is kept [env: COFFERDAM_DATA_DIR] [default: $XDG_DATA_HOME/cofferdam or ~/.local/share/cofferdam].
    #[arg(long, global = true, value_name = "DIR", help_heading = "Everywhere")]
    pub(crate) data_dir: Option<PathBuf>,
    /// What is allowed at all: `local-only`, `docker`, `burst` or `air-gapped`; it beats configuration and flags, docs/modes.md has the table [env: COFFERDAM_MODE].
    #[arg(long, global = true, value_name = "MODE", help_heading = "Everywhere", value_parser = spelling::mode)]
    pub(crate) mode: Option<Mode>,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Reads the command line. What is run most is read without building the whole grammar; errors and help always come from it.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match quick::run(&args) {
        Some(cli) => Ok(cli),
        None => variables::parse(),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(Box<RunArgs>),
    Seal(SealArgs),
    Execute(ExecuteArgs),
    Verify(VerifyArgs),
    Serve(Box<ServeArgs>),
    Token(TokenArgs),
    Runs(RunsArgs),
    Artifacts(ArtifactsArgs),
    Export(ExportArgs),
    Import(ImportArgs),
    Audit(AuditArgs),
    Key(KeyArgs),
    Keys(keys::KeysArgs),
    Receipt(keys::ReceiptArgs),
    Results(keys::ResultsArgs),
    Images(images::ImagesArgs),
    Cache(cache::CacheArgs),
    Policy(policy::PolicyArgs),
    Submit(Box<remote::SubmitArgs>),
    Worker(Box<fleet::WorkerArgs>),
    Fleet(Box<fleet::FleetArgs>),
    Ledger(Box<fleet::LedgerArgs>),
    Chain(Box<chain::ChainArgs>),
    Demo(Box<chain::DemoArgs>),
    Watch(remote::WatchArgs),
    Detect(project::DetectArgs),
    Restore(Box<project::RestoreArgs>),
    Build(Box<project::BuildArgs>),
    Test(Box<project::TestArgs>),
    Lint(Box<project::LintArgs>),
    Format(Box<project::FormatArgs>),
    Start(Box<project::StartArgs>),
    Task(Box<project::TaskArgs>),
    Golden(golden::GoldenArgs),
    Doctor(DoctorArgs),
    Explain(ExplainArgs),
    Config(ConfigArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    /// Compile WebAssembly from standard input to standard output; what runs inside the sandbox.
    #[command(name = "wasm-compile", hide = true)]
    WasmCompile(WasmCompileArgs),
}

/// Run a command inside hard limits, without network, without a view of your files.
#[derive(Debug, PartialEq, Args)]
#[command(after_long_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// With --language: the file that holds the code, or `-` for standard input. With --backend wasm: the module, component or .wat file.
    #[arg(value_name = "FILE", help_heading = "Source code")]
    pub(crate) file: Option<PathBuf>,
    /// The command and its arguments, after `--`; with --language or a module, its arguments; with --image, what the image starts when absent.
    #[arg(last = true, required_unless_present_any = ["language", "file", "image"], value_name = "CMD")]
    pub(crate) command: Vec<OsString>,

    /// Run source code in this language instead of a command: `python`, `javascript`, `c`, …; docs/languages.md lists them.
    #[arg(long, value_name = "NAME", help_heading = "Source code", conflicts_with_all = ["workspace", "root", "backend"])]
    pub(crate) language: Option<String>,
    /// With --language: the code itself.
    #[arg(
        long,
        value_name = "TEXT",
        help_heading = "Source code",
        requires = "language",
        conflicts_with = "file"
    )]
    pub(crate) code: Option<String>,
    /// With --language: call `handler(event)` with this JSON and print what it returns.
    #[arg(
        long,
        value_name = "JSON",
        help_heading = "Source code",
        requires = "language"
    )]
    pub(crate) event: Option<String>,
    /// With --language: compile once and run for each input: the files of a directory, each as standard input, or a JSON list of `{"stdin", "args", "event"}`.
    #[arg(
        long,
        value_name = "PATH",
        help_heading = "Source code",
        requires = "language",
        conflicts_with_all = ["event", "stdin", "json"]
    )]
    pub(crate) inputs: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    /// The directory the work is about, seen inside as /work and started in: `ro` (default), `rw`, or `cow` for changes that leave it untouched.
    #[arg(long, value_name = "DIR[:ro|rw|cow]", help_heading = "Files")]
    pub(crate) workspace: Option<OsString>,
    #[arg(help = words::MOUNT, long, value_name = "FROM:TO[:ro|rw]", help_heading = "Files")]
    pub(crate) mount: Vec<OsString>,
    /// Show what package managers keep: `auto` by the workspace's lock files, or npm, yarn, pnpm, pip, cargo, go, maven, nuget; read-only unless `:rw`. Can be given more than once.
    #[arg(long = "cache", value_name = "NAME[:ro|rw]", help_heading = "Files")]
    pub(crate) volumes: Vec<String>,
    #[arg(help = words::CACHE_DIR, long, value_name = "DIR", help_heading = "Files", requires = "volumes")]
    pub(crate) cache_dir: Option<PathBuf>,
    /// Use this directory as the root file system instead of the host's /usr; it is never written to.
    #[arg(long, value_name = "DIR", help_heading = "Files")]
    pub(crate) root: Option<PathBuf>,
    /// Where the command starts, as seen inside.
    #[arg(long, value_name = "DIR", help_heading = "Files")]
    pub(crate) cwd: Option<PathBuf>,

    #[arg(
        help = words::ENV,
        long,
        short,
        value_name = "KEY[=VALUE]",
        help_heading = "Input and output"
    )]
    pub(crate) env: Vec<OsString>,
    /// What the command reads: a file, `-` for your own standard input (default), or `none`.
    #[arg(long, value_name = "FILE", help_heading = "Input and output")]
    pub(crate) stdin: Option<PathBuf>,
    #[arg(long, help = words::JSON, help_heading = "Input and output")]
    pub(crate) json: bool,
    /// With --json: how much of each stream the record keeps.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "1m",
        help_heading = "Input and output"
    )]
    pub(crate) capture: Bytes,
    /// What to do at the output limit.
    #[arg(
        long,
        value_enum,
        default_value = "stop",
        help_heading = "Input and output"
    )]
    pub(crate) on_output_limit: OnOutputLimit,

    #[arg(help = words::BACKEND, long, value_name = "NAME", help_heading = "Enforcement", value_parser = spelling::backend)]
    pub(crate) backend: Option<BackendName>,
    #[command(flatten)]
    pub(crate) network: network::NetworkArgs,
    #[arg(help = words::GPU, long, value_name = "N|all", help_heading = "Enforcement", value_parser = Gpus::read)]
    pub(crate) gpu: Option<Gpus>,
    #[command(flatten)]
    pub(crate) container: ContainerArgs,
    #[arg(help = words::DETERMINISTIC, long, help_heading = "Enforcement")]
    pub(crate) deterministic: bool,
    #[arg(
        help = words::SEED,
        long,
        value_name = "N",
        help_heading = "Enforcement",
        requires = "deterministic"
    )]
    pub(crate) seed: Option<u64>,
    /// Run even if this limit cannot be enforced here. Can be given more than once.
    #[arg(long, value_name = "LIMIT", help_heading = "Enforcement")]
    pub(crate) waive: Vec<String>,

    /// The command gives the same each time and changes nothing: give its answer again if it is known, and keep it if it is not. Standard input is read first, a terminal not at all; output comes at the end.
    #[arg(long, help_heading = "Known answers", conflicts_with = "inputs")]
    pub(crate) pure: bool,
    #[command(flatten)]
    pub(crate) cache: keys::CacheArgs,

    #[command(flatten)]
    pub(crate) history: HistoryArgs,
}

/// What the docker backend is told besides the limits.
#[derive(Debug, Clone, PartialEq, Args, Default)]
pub(crate) struct ContainerArgs {
    /// The image that the command sees as its root: `python:3.13`, `NAME@sha256:…` or an id; in the native backend one that `cofferdam images` has unpacked.
    #[arg(long, value_name = "IMAGE", help_heading = "Containers")]
    pub(crate) image: Option<String>,
    /// With --backend docker: the OCI runtime, one that the daemon knows: `runc`, `crun`, `runsc`, `kata` [default: the daemon's].
    #[arg(long, value_name = "NAME", help_heading = "Containers")]
    pub(crate) runtime: Option<String>,
    /// With --backend docker: `missing` gets an image that is not there from its registry, `never` uses local images only [default: missing].
    #[arg(long, value_name = "WHEN", help_heading = "Containers")]
    pub(crate) pull: Option<String>,
}

/// What is kept of a run.
#[derive(Debug, Clone, PartialEq, Args, Default)]
pub(crate) struct HistoryArgs {
    /// Mark the run, to find it by and to keep it from being pruned. Can be given more than once.
    #[arg(long, value_name = "KEY[=VALUE]", help_heading = "History")]
    pub(crate) tag: Vec<String>,
    /// The run that this one belongs to.
    #[arg(long, value_name = "ID", help_heading = "History")]
    pub(crate) parent: Option<String>,
    /// Keep nothing of this run.
    #[arg(long, help_heading = "History", conflicts_with_all = ["tag", "parent"])]
    pub(crate) no_history: bool,
    #[arg(help = words::NO_ARTIFACTS, long, help_heading = "History")]
    pub(crate) no_artifacts: bool,
}

/// The places that every verb may be told.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// A configuration file besides the usual ones.
    pub(crate) config: Option<PathBuf>,
    /// Where history is kept.
    pub(crate) data_dir: Option<PathBuf>,
    /// The mode that was named on the command line.
    pub(crate) mode: Option<Mode>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOutputLimit {
    /// End the run.
    Stop,
    /// Let it run on and drop what comes.
    Discard,
}

/// Check a draft payload, fill in its defaults and seal it with a digest.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  cofferdam seal draft.json > payload.json")]
pub(crate) struct SealArgs {
    /// The draft, or `-` for standard input.
    pub(crate) draft: PathBuf,
}

/// Run a sealed payload and print its result envelope.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam execute payload.json > envelope.json\n  cofferdam execute payload.json --sign work > envelope.json\n\nA payload that says `pure`: true is answered with a known answer where there is one; docs/result-cache.md.\n\nExit code: 0 for SUCCESS, 1 for ERROR, 125 when nothing could be run."
)]
pub(crate) struct ExecuteArgs {
    /// The sealed payload, or `-` for standard input.
    pub(crate) payload: PathBuf,
    /// The name of this worker in the envelope.
    #[arg(help_heading = "Answer", long, value_name = "ID", env = "COFFERDAM_WORKER_ID", hide_env_values = true, default_value = "local", value_parser = crate::execute::worker_id)]
    pub(crate) worker: String,
    /// The directory the work is about, seen inside as /work; writable only if the payload says `filesystem_write`.
    #[arg(help_heading = "Files", long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    #[arg(help_heading = "Enforcement", help = words::BACKEND, long, value_name = "NAME", value_parser = spelling::backend)]
    pub(crate) backend: Option<BackendName>,
    /// What a payload that asks for the network gets; without it, such a payload is refused.
    #[command(flatten)]
    pub(crate) network: network::NetworkArgs,
    /// A payload that asks for more is refused.
    #[arg(help = words::GPU, long, value_name = "N|all", help_heading = "Enforcement", value_parser = Gpus::read)]
    pub(crate) gpu: Option<Gpus>,
    #[command(flatten)]
    pub(crate) container: ContainerArgs,
    #[arg(help_heading = "Answer", help = words::SIGN, long, value_name = "KEY")]
    pub(crate) sign: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cache: keys::CacheArgs,
    #[command(flatten)]
    pub(crate) fixed: FixedArgs,
    #[command(flatten)]
    pub(crate) history: HistoryArgs,
}

/// A run that must give the same each time.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct FixedArgs {
    #[arg(help_heading = "Enforcement", help = words::DETERMINISTIC, long)]
    deterministic: bool,
    #[arg(help_heading = "Enforcement", help = words::SEED, long, value_name = "N", requires = "deterministic")]
    seed: Option<u64>,
}

impl RunArgs {
    /// Where randomness begins; `None` for a run like any other.
    pub(crate) fn begins_at(&self) -> Option<u64> {
        self.deterministic.then(|| self.seed.unwrap_or(0))
    }
}

impl FixedArgs {
    /// Where randomness begins; `None` for a run like any other.
    pub(crate) fn seed(self) -> Option<u64> {
        self.deterministic.then(|| self.seed.unwrap_or(0))
    }

    /// The same for a payload that may say it itself; the seed that was asked for where it says another.
    pub(crate) fn agreed(self, sealed: Option<u64>) -> Result<Option<u64>, u64> {
        match (self.seed, sealed) {
            (Some(asked), Some(sealed)) if asked != sealed => Err(asked),
            (_, Some(sealed)) => Ok(Some(sealed)),
            (_, None) => Ok(self.seed()),
        }
    }
}

/// Check an envelope against its payload: digest, proof, schema, every limit and its signature; with --rerun, run it again and compare.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam verify payload.json envelope.json\n  cofferdam verify payload.json envelope.json --rerun\n  cofferdam verify payload.json envelope.json --key alice\n\nWhat counts as the same output is the payload's `output_class`; docs/verification.md.\n\nExit code: 0 when it holds, 1 when it does not, 2 when the rerun differs for an honest reason and says nothing, 125 when it could not be checked."
)]
pub(crate) struct VerifyArgs {
    /// The sealed payload, or `-` for standard input.
    pub(crate) payload: PathBuf,
    /// The envelope that answers it, or `-` for standard input.
    pub(crate) envelope: PathBuf,
    /// Also run the payload here, even after its deadline, and compare status, output and verdict.
    #[arg(help_heading = "Rerun", long)]
    pub(crate) rerun: bool,
    /// With --rerun: the directory the work is about, as for `execute`.
    #[arg(help_heading = "Rerun", long, value_name = "DIR", requires = "rerun")]
    pub(crate) workspace: Option<PathBuf>,
    #[arg(help_heading = "Rerun", help = words::BACKEND, long, value_name = "NAME", value_parser = spelling::backend, requires = "rerun")]
    pub(crate) backend: Option<BackendName>,
    #[command(flatten)]
    pub(crate) container: ContainerArgs,
    #[command(flatten)]
    pub(crate) trust: keys::TrustArgs,
    #[command(flatten)]
    pub(crate) fixed: FixedArgs,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Show what this host can enforce, per limit and per layer of isolation, and the command that fixes what is missing.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam doctor\n  cofferdam doctor --json\n\nExit code: 0 when `cofferdam run` works here with its defaults, 1 when it does not."
)]
pub(crate) struct DoctorArgs {
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Show the configuration in force.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) verb: ConfigVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Print every setting with its value and where it comes from.
    #[command(
        after_long_help = "Examples:\n  cofferdam config show\n  cofferdam config show --memory 1g --json"
    )]
    Show {
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
        #[command(flatten)]
        limits: Box<LimitArgs>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct WasmCompileArgs {
    /// What the code does besides its own work: `timed` or `counted`.
    pub(crate) flavour: String,
}

/// Say what a code means and what to do about it: one from an error message, or the number that a command ended with.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam explain limit.unenforceable\n  cofferdam explain 137\n  cofferdam explain          # all of them"
)]
pub(crate) struct ExplainArgs {
    /// `input.invalid`, `[queue.full]` or `137`; all codes without it.
    pub(crate) code: Option<String>,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Example:\n  cofferdam completions bash > ~/.local/share/bash-completion/completions/cofferdam"
)]
pub(crate) struct CompletionsArgs {
    /// Which one.
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam man | man -l -\n  cofferdam man run | man -l -\n  cofferdam man runs list | man -l -\n  cofferdam man --into /usr/local/share/man/man1"
)]
pub(crate) struct ManArgs {
    /// The page of one command: `run`, `runs list` or `runs-list`.
    pub(crate) command: Vec<String>,
    /// Write every page into this directory instead: `cofferdam.1`, `cofferdam-run.1`, …
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) into: Option<PathBuf>,
}

const RUN_EXAMPLES: &str = "\
Examples:
  cofferdam run -- python3 -c 'print(\"hello\")'
  cofferdam run --timeout 2s --memory 64m --workspace ./job:rw --stdin input.txt -- ./solve
  cofferdam run --json -- sh -c 'echo out; echo err >&2; exit 3'
  cofferdam run --backend gvisor --workspace ./job -- ./suspicious
  cofferdam run --backend docker --image python:3.13 -- python3 -c 'print(\"hello\")'
  cofferdam run --net allow=example.org:443,*.example.net -- curl -s https://example.org/
  cofferdam run --workspace ./app:cow --cache auto -- npm ci --offline
  cofferdam run --language python --code 'print(1)'
  cofferdam run --language javascript main.js --event '{\"n\": 1}'
  cofferdam run --language c main.c --inputs tests/
  cofferdam run --backend wasm prog.wasm --workspace ./job:rw -- input.txt
  cofferdam run --backend wasm --deterministic --seed 7 prog.wasm
  cofferdam run --deterministic -- python3 -c 'import random; print(random.random())'
  cofferdam run --pure -- python3 -c 'print(6 * 7)'

Exit code: the command's own, or
  124  wall time            137  memory, processes, or a kill signal
  152  CPU time             153  output or disk
  126  cannot be executed   127  not found inside
  130  cancelled            125  cofferdam itself could not do its work";
