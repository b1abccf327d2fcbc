//! The grammar of `serve` and `token`: the daemon and who may use it.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use cofferdam_contract::units::{Bytes, parse_duration};

/// Serve HTTP: run commands and payloads for others, with a queue, live output and history.
#[derive(Debug, Args)]
#[command(after_long_help = SERVE_EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Where to listen. Anything but loopback needs a token.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:8080",
        env = "COFFERDAM_LISTEN"
    )]
    pub(crate) listen: SocketAddr,
    /// Runs at once [default: one for each CPU].
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) concurrency: Option<usize>,
    /// Runs that may wait.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) queue: usize,
    /// What the memory limits of all running work may add up to [default: 80 % of what is available at the start].
    #[arg(long, value_name = "SIZE", conflicts_with = "overcommit")]
    pub(crate) memory_budget: Option<Bytes>,
    /// Let memory limits add up to more than there is.
    #[arg(long)]
    pub(crate) overcommit: bool,
    /// The longest run that may be asked for.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    pub(crate) max_timeout: Duration,
    /// The most disk that a run may ask for.
    #[arg(long, value_name = "SIZE", default_value = "4g")]
    pub(crate) max_disk: Bytes,
    /// The most processes and threads that a run may ask for.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_processes: u64,
    /// The most open files that a run may ask for.
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u64).range(8..))]
    pub(crate) max_open_files: u64,
    /// The largest request.
    #[arg(long, value_name = "SIZE", default_value = "16m")]
    pub(crate) max_body: Bytes,
    /// How long running work may go on after SIGTERM; then it is cancelled.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) grace: Duration,
}

/// Say who may use the daemon.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam token create ci --scope run --max-running 2\n  cofferdam token list\n  cofferdam token revoke ci\n\nThe daemon notices changes at once."
)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) verb: TokenVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Make a token and print its secret, which is kept nowhere.
    Create {
        /// What to call it.
        name: String,
        /// What it may do. Can be given more than once.
        #[arg(long, value_enum, default_values_t = [TokenScope::Run])]
        scope: Vec<TokenScope>,
        /// Runs at once, at most.
        #[arg(long, value_name = "N", value_parser = positive)]
        max_running: Option<usize>,
        /// Waiting runs, at most.
        #[arg(long, value_name = "N")]
        max_queued: Option<usize>,
    },
    /// Show the tokens that there are.
    List {
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make a token worthless.
    Revoke {
        /// Its id or its name.
        token: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TokenScope {
    /// Send work, and see and cancel what it has sent.
    Run,
    /// See every run, and the metrics.
    Read,
    /// Everything.
    Admin,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("write a number from 1 on".to_owned()),
        Ok(number) => Ok(number),
    }
}

const SERVE_EXAMPLES: &str = "\
Examples:
  cofferdam serve
  curl -s 127.0.0.1:8080/v1/runs -H 'content-type: application/json' -d '{\"command\": [\"echo\", \"hello\"]}'

  cofferdam token create ci && cofferdam serve --listen 0.0.0.0:8080

Exit code: 143 after SIGTERM, 130 after Ctrl-C, 125 when it could not start.";
