//! The grammar of `cofferdam cache`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use cofferdam_contract::units::parse_duration;
use cofferdam_project::Cache;

use super::words;

/// What package managers keep between runs.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  cofferdam cache list
  cofferdam cache stats --json
  cofferdam cache clear npm pip --dry-run
  cofferdam cache clear --project ./service
  cofferdam cache clear --all --older-than 30d

A cache that a run uses is not removed. Exit code: 0, or 1 when something that was chosen is in use or could not be removed.")]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    pub(crate) verb: CacheVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CacheVerb {
    /// List them with size, last use, and whether a run uses them now.
    #[command(
        after_long_help = "Examples:\n  cofferdam cache list\n  cofferdam cache list npm --json"
    )]
    List(WhichCaches),
    /// Sum them up by tool.
    #[command(after_long_help = "Example:\n  cofferdam cache stats")]
    Stats(WhichCaches),
    /// Remove them, and say how much that freed.
    #[command(
        after_long_help = "Examples:\n  cofferdam cache clear npm pip --dry-run\n  cofferdam cache clear --all --older-than 30d"
    )]
    Clear {
        #[command(flatten)]
        which: WhichCaches,
        #[arg(help_heading = "Which caches", help = words::ALL, long, conflicts_with = "tools")]
        all: bool,
        /// Only what no run has used for so long: `12h`, `30d`.
        #[arg(help_heading = "Which caches", long, value_name = "TIME", value_parser = age)]
        older_than: Option<Duration>,
        #[arg(help_heading = "Which caches", help = words::DRY_RUN, long)]
        dry_run: bool,
    },
}

/// Which of them.
#[derive(Debug, Args)]
pub(crate) struct WhichCaches {
    /// Of these tools: npm, yarn, pnpm, pip, cargo, go, maven, nuget.
    #[arg(value_name = "TOOL", value_parser = tool)]
    pub(crate) tools: Vec<Cache>,
    /// Only those of this project.
    #[arg(help_heading = "Which caches", long, value_name = "PATH")]
    pub(crate) project: Option<PathBuf>,
    #[arg(help_heading = "Which caches", help = words::CACHE_DIR, long, value_name = "DIR", conflicts_with = "project")]
    pub(crate) cache_dir: Option<PathBuf>,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
}

fn tool(text: &str) -> Result<Cache, String> {
    let known = || Cache::ALL.map(Cache::as_str).join(", ");
    let found = Cache::ALL.into_iter().find(|cache| cache.as_str() == text);
    found.ok_or_else(|| format!("there is no such cache; there are {}", known()))
}

fn age(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|bad| bad.to_string())
}
