//! The grammar of the verbs that look at what is kept of runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_store::database::StatusFilter;
use cofferdam_store::model::RunKind;

use super::words;
use crate::config::spelling;
use crate::runs::filters;
use crate::terminal::colour::When;
use crate::terminal::time::{self, Moment};

/// Look at the runs that were recorded: list, show, compare, remove.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    pub(crate) verb: RunsVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsVerb {
    List(Box<ListArgs>),
    Show(ShowArgs),
    Logs(LogsArgs),
    Diff(DiffArgs),
    Prune(PruneArgs),
    Stats(StatsArgs),
    Save(SaveArgs),
}

/// List runs, newest first.
#[derive(Debug, Args, Default)]
#[command(after_long_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    #[arg(help = words::SINCE, long, value_name = "TIME", help_heading = "Which runs", value_parser = time::moment)]
    pub(crate) since: Option<Moment>,
    #[arg(help = words::UNTIL, long, value_name = "TIME", help_heading = "Which runs", value_parser = time::moment)]
    pub(crate) until: Option<Moment>,
    /// A status (running, success, failure, timeout, limit, canceled, never_started, interrupted) or the limit that stopped it, such as `memory`. Any of several.
    #[arg(long, value_name = "STATUS", value_delimiter = ',', help_heading = "Which runs", value_parser = filters::status)]
    pub(crate) status: Vec<StatusFilter>,
    /// Only runs whose program returned this.
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        help_heading = "Which runs"
    )]
    pub(crate) exit_code: Option<i32>,
    /// A pattern for the whole command line with `*`, `?` and `[…]`; without any of these, how it begins.
    #[arg(long, value_name = "PATTERN", help_heading = "Which runs")]
    pub(crate) command: Option<String>,
    /// Only runs with this tag, with this value or with any. Can be given more than once.
    #[arg(long, value_name = "KEY[=VALUE]", help_heading = "Which runs", value_parser = filters::tag)]
    pub(crate) tag: Vec<(String, Option<String>)>,
    /// What asked for the run: command, payload, build or test.
    #[arg(long, value_name = "KIND", help_heading = "Which runs", value_parser = filters::kind)]
    pub(crate) kind: Option<RunKind>,
    /// Only runs of this backend.
    #[arg(long, value_name = "NAME", help_heading = "Which runs")]
    pub(crate) backend: Option<String>,
    /// Only runs that this run started.
    #[arg(long, value_name = "ID", help_heading = "Which runs")]
    pub(crate) parent: Option<String>,
    /// Only runs that took longer.
    #[arg(long, value_name = "TIME", help_heading = "Which runs", value_parser = time::age)]
    pub(crate) longer_than: Option<Duration>,
    /// Only runs that took less time.
    #[arg(long, value_name = "TIME", help_heading = "Which runs", value_parser = time::age)]
    pub(crate) shorter_than: Option<Duration>,
    /// Only runs that left files.
    #[arg(long, help_heading = "Which runs")]
    pub(crate) with_artifacts: bool,
    /// Only runs that left none.
    #[arg(long, help_heading = "Which runs", conflicts_with = "with_artifacts")]
    pub(crate) without_artifacts: bool,

    #[arg(help = words::LIMIT, long, value_name = "N", help_heading = "How they are shown", value_parser = filters::at_least_one)]
    pub(crate) limit: Option<usize>,
    /// Go on where a list ended: only runs older than this one.
    #[arg(long, value_name = "ID", help_heading = "How they are shown")]
    pub(crate) before: Option<String>,
    /// Cut nothing, even where lines get longer than the terminal.
    #[arg(long, help_heading = "How they are shown")]
    pub(crate) no_truncate: bool,
    /// Print only how many there are.
    #[arg(long, help_heading = "How they are shown")]
    pub(crate) count: bool,
    #[arg(long, help = words::JSON, help_heading = "How they are shown")]
    pub(crate) json: bool,
    #[arg(
        help = words::COLOR,
        long,
        value_name = "WHEN",
        value_enum,
        default_value = "auto",
        help_heading = "How they are shown"
    )]
    pub(crate) color: When,
}

/// Show everything that is kept of one run.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam runs show latest\n  cofferdam runs show 019a8c3e-7f2b\n  cofferdam runs show latest~2 --json | jq .usage"
)]
pub(crate) struct ShowArgs {
    /// The run: its id, a unique beginning of it, `latest`, or `latest~2`.
    #[arg(value_name = "ID")]
    pub(crate) run: String,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
    #[arg(help = words::COLOR, long, value_name = "WHEN", value_enum, default_value = "auto")]
    pub(crate) color: When,
}

/// Print what a run wrote.
#[derive(Debug, Args, Default)]
#[command(after_long_help = LOGS_EXAMPLES)]
pub(crate) struct LogsArgs {
    /// The run: its id, a unique beginning of it, `latest`, or `latest~2`.
    #[arg(value_name = "ID")]
    pub(crate) run: String,

    /// Standard output alone. Piped: exactly its bytes.
    #[arg(long, help_heading = "What is printed", conflicts_with = "stderr")]
    pub(crate) stdout: bool,
    /// Standard error alone. Piped: exactly its bytes.
    #[arg(long, help_heading = "What is printed")]
    pub(crate) stderr: bool,
    /// Only the first N lines.
    #[arg(
        long,
        value_name = "N",
        help_heading = "What is printed",
        conflicts_with = "tail"
    )]
    pub(crate) head: Option<usize>,
    /// Only the last N lines.
    #[arg(long, value_name = "N", help_heading = "What is printed")]
    pub(crate) tail: Option<usize>,
    /// Of a run that goes on: print what comes until it ends; on a terminal, line by line.
    #[arg(long, short, help_heading = "What is printed", conflicts_with = "head")]
    pub(crate) follow: bool,

    /// Begin each line with the time at which it began to come, in UTC.
    #[arg(long, help_heading = "How it is printed")]
    pub(crate) timestamps: bool,
    /// Begin each line with `[stdout]` or `[stderr]`; on a terminal that is so when both are shown.
    #[arg(long, help_heading = "How it is printed", conflicts_with = "no_prefix")]
    pub(crate) prefix: bool,
    /// Never begin lines with the stream's name.
    #[arg(long, help_heading = "How it is printed")]
    pub(crate) no_prefix: bool,
    /// Use no pager, even when the output is longer than the terminal.
    #[arg(long, help_heading = "How it is printed")]
    pub(crate) no_pager: bool,
    #[arg(
        long,
        help = words::JSON,
        help_heading = "How it is printed",
        conflicts_with_all = ["head", "tail", "timestamps", "prefix"]
    )]
    pub(crate) json: bool,
    #[arg(
        help = words::COLOR,
        long,
        value_name = "WHEN",
        value_enum,
        default_value = "auto",
        help_heading = "How it is printed"
    )]
    pub(crate) color: When,
}

/// Compare two runs: output, ending, exit code, environment names and artifacts.
#[derive(Debug, Args)]
#[command(after_long_help = DIFF_EXAMPLES)]
pub(crate) struct DiffArgs {
    /// The run to compare from: an id, a unique beginning of one, `latest~1`.
    #[arg(value_name = "A")]
    pub(crate) a: String,
    /// The run to compare to.
    #[arg(value_name = "B")]
    pub(crate) b: String,

    /// Compare standard output alone.
    #[arg(long, help_heading = "What is compared", group = "only")]
    pub(crate) stdout_only: bool,
    /// Compare standard error alone.
    #[arg(long, help_heading = "What is compared", group = "only")]
    pub(crate) stderr_only: bool,
    /// Compare how they ended alone.
    #[arg(long, help_heading = "What is compared", group = "only")]
    pub(crate) exit_code_only: bool,

    /// Unchanged lines around each change.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        help_heading = "How it is printed"
    )]
    pub(crate) context: usize,
    #[arg(long, help = words::JSON, help_heading = "How it is printed")]
    pub(crate) json: bool,
    #[arg(
        help = words::COLOR,
        long,
        value_name = "WHEN",
        value_enum,
        default_value = "auto",
        help_heading = "How it is printed"
    )]
    pub(crate) color: When,
}

/// Remove runs that are too old, too many or too large. Tagged runs stay until they are named.
#[derive(Debug, Args, Default)]
#[command(
    after_long_help = "Without options, what the configuration says is kept. Each bound accepts `unlimited`.\n\nExamples:\n  cofferdam runs prune --dry-run\n  cofferdam runs prune --max-age 30d --max-age-of-failures 90d --max-size 2g\n  cofferdam runs prune --run 019a8c3e-7f2b --run latest"
)]
pub(crate) struct PruneArgs {
    #[arg(help_heading = "What is removed", help = words::DRY_RUN, long)]
    pub(crate) dry_run: bool,
    /// Remove runs that began longer ago, unless they failed.
    #[arg(long, value_name = "TIME", help_heading = "What is kept", value_parser = filters::age_bound)]
    pub(crate) max_age: Option<Cap<Duration>>,
    /// Remove failed runs that began longer ago.
    #[arg(long, value_name = "TIME", help_heading = "What is kept", value_parser = filters::age_bound)]
    pub(crate) max_age_of_failures: Option<Cap<Duration>>,
    /// Keep at most so many runs; the oldest go first.
    #[arg(long, value_name = "N", help_heading = "What is kept", value_parser = spelling::count)]
    pub(crate) max_runs: Option<Cap<u64>>,
    /// Keep at most so many bytes; the oldest go first.
    #[arg(long, value_name = "SIZE", help_heading = "What is kept", value_parser = spelling::bytes)]
    pub(crate) max_size: Option<Cap<Bytes>>,
    /// Remove this run and no other, tagged or not. Can be given more than once.
    #[arg(
        help_heading = "What is removed",
        long,
        value_name = "ID",
        conflicts_with_all = ["max_age", "max_age_of_failures", "max_runs", "max_size"]
    )]
    pub(crate) run: Vec<String>,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Show figures over the whole history: how many, how they ended, how long they took, how much room they take.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam runs stats\n  cofferdam runs stats --json | jq .duration_ms.p95"
)]
pub(crate) struct StatsArgs {
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
    #[arg(help = words::COLOR, long, value_name = "WHEN", value_enum, default_value = "auto")]
    pub(crate) color: When,
}

/// Write a run into a directory: run.json, stdout.txt, stderr.txt, artifacts/, and a link `latest` to it.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam runs save latest\n  cofferdam runs save 019a8c3e-7f2b -o ./evidence"
)]
pub(crate) struct SaveArgs {
    /// The run: its id, a unique beginning of it, `latest`, or `latest~2`.
    #[arg(value_name = "ID")]
    pub(crate) run: String,
    /// The directory in which the run's own directory is made.
    #[arg(
        long,
        short = 'o',
        value_name = "DIR",
        default_value = ".cofferdam/runs"
    )]
    pub(crate) output: PathBuf,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Look at the files that a run left.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct ArtifactsArgs {
    #[command(subcommand)]
    pub(crate) verb: ArtifactsVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ArtifactsVerb {
    List(ArtifactsListArgs),
    Get(ArtifactsGetArgs),
    Cat(ArtifactsCatArgs),
}

/// List the files that a run left in its workspace, new or changed.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam artifacts list latest\n  cofferdam artifacts list latest --json | jq -r .artifacts[].path"
)]
pub(crate) struct ArtifactsListArgs {
    /// The run: its id, a unique beginning of it, `latest`, or `latest~2`.
    #[arg(value_name = "ID")]
    pub(crate) run: String,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
    #[arg(help = words::COLOR, long, value_name = "WHEN", value_enum, default_value = "auto")]
    pub(crate) color: When,
}

/// Write one file that a run left to the disk. Nothing that is there is overwritten.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam artifacts get latest dist/app.tar\n  cofferdam artifacts get latest dist/app.tar -o /tmp/app.tar\n  cofferdam artifacts get latest report.json -o -   # to standard output"
)]
pub(crate) struct ArtifactsGetArgs {
    /// The run: its id, a unique beginning of it, `latest`, or `latest~2`.
    #[arg(value_name = "ID")]
    pub(crate) run: String,
    /// The file, as `artifacts list` shows it.
    #[arg(value_name = "PATH")]
    pub(crate) path: String,
    /// Where it goes; nothing that is there is overwritten [default: its own name, here].
    #[arg(long, short = 'o', value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Print one file that a run left. Piped: exactly its bytes.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  cofferdam artifacts cat latest report.json | jq .")]
pub(crate) struct ArtifactsCatArgs {
    /// The run: its id, a unique beginning of it, `latest`, or `latest~2`.
    #[arg(value_name = "ID")]
    pub(crate) run: String,
    /// The file, as `artifacts list` shows it.
    #[arg(value_name = "PATH")]
    pub(crate) path: String,
}

const LIST_EXAMPLES: &str = "\
All that is asked for must hold. On a narrow terminal the columns TAGS, FILES, EXIT, TOOK and STARTED go, in this order.

Examples:
  cofferdam runs list --since 1h
  cofferdam runs list --status timeout,memory --since 2026-11-15
  cofferdam runs list --command 'npm *' --exit-code 1 --longer-than 2s
  cofferdam runs list --tag ci --tag branch=main --json | jq -r .runs[].run_id
  cofferdam runs list --status failure --count";

const LOGS_EXAMPLES: &str = "\
On a terminal, colours of the program pass and everything else that would steer the terminal is shown escaped; binary output is shown as its size and a beginning; what is longer \
than the terminal goes through a pager (COFFERDAM_PAGER, PAGER, else `less -FRX`; empty or `cat` for none). Piped, both streams come as they were written; nothing is added or \
escaped.

Examples:
  cofferdam runs logs latest
  cofferdam runs logs latest --stderr --tail 20
  cofferdam runs logs latest --follow --timestamps
  cofferdam runs logs 019a8c3e-7f2b --stdout > out.bin";

const DIFF_EXAMPLES: &str = "\
Runs differ when their stdout or stderr as it is stored, their ending with exit code, signal and limit, the names of their environment variables, or their artifacts (added, removed, \
or other contents) differ. Command, duration and usage are shown and never make runs differ. With one of the -only options, only that counts.

Examples:
  cofferdam runs diff latest~1 latest
  cofferdam runs diff 019a8c3e-7f2b 019a8c40-11aa --stdout-only --context 0

Exit code: 0 when they are the same, 1 when they differ, 2 when there is no such run or several could be meant, 125 when they could not be compared.";

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::arguments::{Cli, Verb};

    fn parsed(line: &str) -> Result<Cli, String> {
        let words = std::iter::once("cofferdam").chain(line.split_whitespace());
        Cli::try_parse_from(words).map_err(|error| error.to_string())
    }

    fn runs_verb(line: &str) -> Option<RunsVerb> {
        match parsed(line).ok()?.verb {
            Verb::Runs(args) => Some(args.verb),
            _ => None,
        }
    }

    #[test]
    fn the_grammar_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_data_directory_can_be_named_anywhere() {
        for line in [
            "--data-dir /d runs list",
            "runs --data-dir /d list",
            "runs list --data-dir /d",
            "artifacts list latest --data-dir /d",
            "run --data-dir /d -- true",
        ] {
            let cli = parsed(line);
            assert!(
                cli.as_ref()
                    .is_ok_and(|cli| cli.data_dir == Some("/d".into())),
                "{line}: {cli:?}"
            );
        }
        assert!(parsed("runs list --data-dir").is_err());
    }

    #[test]
    fn logs_are_asked_for_in_many_ways() {
        let Some(RunsVerb::Logs(args)) = runs_verb("runs logs 019a -f --stderr --tail 20") else {
            panic!("not logs");
        };
        assert_eq!((args.run.as_str(), args.tail), ("019a", Some(20)));
        assert!(args.follow && args.stderr && !args.stdout);
    }

    #[test]
    fn a_diff_has_three_lines_of_context() {
        let Some(RunsVerb::Diff(args)) = runs_verb("runs diff latest~1 latest --color never")
        else {
            panic!("not diff");
        };
        assert_eq!((args.context, args.color), (3, When::Never));
    }

    #[test]
    fn pruning_takes_bounds_or_names() {
        let Some(RunsVerb::Prune(args)) =
            runs_verb("runs prune --dry-run --max-age 2w --max-runs unlimited --max-size 2g")
        else {
            panic!("not prune");
        };
        let weeks = Duration::from_secs(14 * 86_400);
        assert_eq!(args.max_age, Some(Cap::AtMost(weeks)));
        assert_eq!(args.max_runs, Some(Cap::Unlimited));
        assert_eq!(args.max_size, Some(Cap::AtMost(Bytes::new(2 << 30))));
        assert!(matches!(
            runs_verb("runs prune --run a --run b"),
            Some(RunsVerb::Prune(args)) if args.run == ["a", "b"]
        ));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for line in [
            "runs",
            "runs show",
            "runs logs x --stdout --stderr",
            "runs logs x --head 1 --tail 1",
            "runs logs x --head 1 --follow",
            "runs logs x --json --timestamps",
            "runs logs x --prefix --no-prefix",
            "runs logs x --tail -1",
            "runs diff a",
            "runs diff a b --stdout-only --stderr-only",
            "runs diff a b --color sometimes",
            "runs prune --run a --max-age 1d",
            "runs prune --max-age 0s",
            "runs prune --max-size many",
            "artifacts get x",
            "artifacts cat x",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
