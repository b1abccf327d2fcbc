//! The grammar of the verbs that take history elsewhere and prove that nobody changed it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::words;
use crate::terminal::time::{self, Moment};

/// Write runs with their output and artifacts to one file that another machine can import.
#[derive(Debug, Args)]
#[command(after_long_help = EXPORT_EXAMPLES)]
pub(crate) struct ExportArgs {
    /// Runs by id, a unique beginning of one, `latest` or `latest~2`.
    #[arg(value_name = "ID", help_heading = "Which runs")]
    pub(crate) runs: Vec<String>,
    /// The newest N runs.
    #[arg(
        long,
        value_name = "N",
        help_heading = "Which runs",
        conflicts_with = "runs"
    )]
    pub(crate) last: Option<usize>,
    #[arg(help = words::SINCE, long, value_name = "TIME", help_heading = "Which runs", conflicts_with = "runs", value_parser = time::moment)]
    pub(crate) since: Option<Moment>,
    #[arg(help = words::UNTIL, long, value_name = "TIME", help_heading = "Which runs", conflicts_with = "runs", value_parser = time::moment)]
    pub(crate) until: Option<Moment>,
    #[arg(help = words::ALL, long, help_heading = "Which runs", conflicts_with_all = ["runs", "last", "since", "until"])]
    pub(crate) all: bool,

    /// Where it goes; nothing that is there is overwritten.
    #[arg(help_heading = "Bundle", long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,
    #[arg(help_heading = "Bundle", help = words::NO_ARTIFACTS, long)]
    pub(crate) no_artifacts: bool,
    #[arg(help_heading = "Bundle", help = words::SIGN, long, value_name = "KEY")]
    pub(crate) sign: Option<PathBuf>,
    /// Overwrite what is there all the same.
    #[arg(help_heading = "Bundle", long)]
    pub(crate) force: bool,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Take in the runs of a bundle: all of them, or none if anything is wrong with it.
#[derive(Debug, Args)]
#[command(after_long_help = IMPORT_EXAMPLES)]
pub(crate) struct ImportArgs {
    /// The bundle.
    pub(crate) bundle: PathBuf,
    #[arg(help = words::DRY_RUN, long)]
    pub(crate) dry_run: bool,
    /// Keep our own version of a run that is here already and differs; without this, that is an error.
    #[arg(long)]
    pub(crate) skip_existing: bool,
    /// Refuse a bundle that is not signed.
    #[arg(long)]
    pub(crate) require_signature: bool,
    /// Refuse a bundle that this public key did not sign. Any of several.
    #[arg(long, value_name = "PUBLIC_KEY")]
    pub(crate) trust: Vec<String>,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Look at the chain of what was recorded and removed, and check that nobody changed it.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) verb: AuditVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Check every entry and every run against its entry. Exit code 0 when all is as it was written, 1 when it is not.
    #[command(after_long_help = "Example:\n  cofferdam audit verify --json")]
    Verify {
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// List the entries, newest first.
    #[command(after_long_help = "Example:\n  cofferdam audit list --limit 20")]
    List {
        #[arg(help = words::LIMIT, long, value_name = "N", default_value_t = 50)]
        limit: usize,
        /// Only entries before this number: the next page.
        #[arg(long, value_name = "SEQ")]
        before: Option<u64>,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
}

/// Make and show keys in files of your choice; `cofferdam keys` keeps them by name.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    pub(crate) verb: KeyVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyVerb {
    /// Make a new Ed25519 key, readable by you alone, and print its public half.
    #[command(after_long_help = "Example:\n  cofferdam key new ~/.config/cofferdam/export.key")]
    New {
        /// The file to write; it must not exist.
        file: PathBuf,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// Print the public half of a key.
    #[command(after_long_help = "Example:\n  cofferdam key show ~/.config/cofferdam/export.key")]
    Show {
        /// The file that holds the key.
        file: PathBuf,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
}

const EXPORT_EXAMPLES: &str = "\
Examples:
  cofferdam export --last 5 -o bundle.cofferdam.zip
  cofferdam export --since 1d --sign export.key -o today.cofferdam.zip
  cofferdam export 019a8c3e-7f2b latest -o two.cofferdam.zip --no-artifacts

Contents of artifacts are exported as the runs left them. docs/bundle.md describes the format.";

const IMPORT_EXAMPLES: &str = "\
Examples:
  cofferdam import bundle.cofferdam.zip --dry-run
  cofferdam import bundle.cofferdam.zip --trust 'base64 of the public key'";
