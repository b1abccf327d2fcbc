//! The grammar of `cofferdam policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::words;
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
    #[command(after_long_help = "Example:\n  cofferdam --mode air-gapped policy show")]
    Show {
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// Hold a configuration or a payload against the rules, and tell everything that breaks one.
    #[command(
        after_long_help = "Example:\n  cofferdam --mode local-only policy validate config.yml"
    )]
    Validate {
        /// A configuration (YAML), or a payload or its draft (JSON).
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// Tell which runs of the history would break a rule.
    #[command(after_long_help = "Example:\n  cofferdam --mode docker policy audit --since 7d")]
    Audit(AuditArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[arg(help = words::SINCE, long, value_name = "TIME", value_parser = time::moment)]
    pub(crate) since: Option<Moment>,
    #[arg(help = words::LIMIT, long, value_name = "N", default_value_t = 100)]
    pub(crate) limit: usize,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
}
