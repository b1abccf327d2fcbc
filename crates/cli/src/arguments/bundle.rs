//! The grammar of the verbs that take history elsewhere and prove that nobody changed it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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
    /// Runs that began after this: `1h`, `2d` ago, or a date or time.
    #[arg(long, value_name = "TIME", help_heading = "Which runs", conflicts_with = "runs", value_parser = time::moment)]
    pub(crate) since: Option<Moment>,
    /// Runs that began before this.
    #[arg(long, value_name = "TIME", help_heading = "Which runs", conflicts_with = "runs", value_parser = time::moment)]
    pub(crate) until: Option<Moment>,
    /// Every run.
    #[arg(long, help_heading = "Which runs", conflicts_with_all = ["runs", "last", "since", "until"])]
    pub(crate) all: bool,

    /// The file to write, by custom `*.cofferdam.zip`.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Leave the contents of artifacts out.
    #[arg(long)]
    pub(crate) no_artifacts: bool,
    /// Sign with this Ed25519 key: a name that `cofferdam keys list` shows, or a key file.
    #[arg(long, value_name = "KEY")]
    pub(crate) sign: Option<PathBuf>,
    /// Replace the file if it exists.
    #[arg(long)]
    pub(crate) force: bool,
    /// Print what was written as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Take in the runs of a bundle: all of them, or none if anything is wrong with it.
#[derive(Debug, Args)]
#[command(after_long_help = IMPORT_EXAMPLES)]
pub(crate) struct ImportArgs {
    /// The bundle.
    pub(crate) bundle: PathBuf,
    /// Check everything and say what would come in, without writing.
    #[arg(long)]
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
    /// Print what came in as JSON.
    #[arg(long)]
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
        /// Print the findings as JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the entries, newest first.
    #[command(after_long_help = "Example:\n  cofferdam audit list --limit 20")]
    List {
        /// At most this many.
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
        /// Only entries before this number: the next page.
        #[arg(long, value_name = "SEQ")]
        before: Option<u64>,
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Make and show the keys that bundles are signed with.
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
    },
    /// Print the public half of a key.
    Show { file: PathBuf },
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
