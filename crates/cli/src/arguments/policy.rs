//! The grammar of `cofferdam policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::terminal::time::{self, Moment};

/// What the mode in force allows, and what would break it.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  cofferdam policy show
  cofferdam --mode air-gapped policy show --json
  cofferdam --mode local-only policy validate config.yml
  cofferdam --mode air-gapped policy validate payload.json
  cofferdam --mode docker policy audit --since 7d

Exit code: 0 when nothing breaks a rule, 1 when something does, 125 when it could not be found out.")]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) verb: PolicyVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Print each rule: what it allows, what is set, and where that comes from.
    Show {
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Hold a configuration or a payload against the rules, and tell everything that breaks one.
    Validate {
        /// A configuration (YAML), or a payload or its draft (JSON).
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Tell which runs of the history would break a rule.
    Audit(AuditArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// Only runs that began after this: `2h`, `7d` ago, or a date or time.
    #[arg(long, value_name = "TIME", value_parser = time::moment)]
    pub(crate) since: Option<Moment>,
    /// List at most so many; all are counted.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) limit: usize,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
