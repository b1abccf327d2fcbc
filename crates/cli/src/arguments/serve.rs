//! The grammar of `serve` and `token`: the daemon and who may use it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use cofferdam_callback::policy::Pattern;
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
    /// The largest request.
    #[arg(long, value_name = "SIZE", default_value = "16m")]
    pub(crate) max_body: Bytes,
    /// How long it may take to end after SIGTERM, reports included; what still runs shortly before is cancelled.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub(crate) grace: Duration,
    #[command(flatten)]
    pub(crate) callbacks: CallbackArgs,
}

/// Who is told about runs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Callbacks")]
pub(crate) struct CallbackArgs {
    /// Report every run to this control plane: `/internal/executions/ID/result` and its like below this address.
    #[arg(long, value_name = "URL", env = "COFFERDAM_CONTROL_PLANE")]
    pub(crate) control_plane: Option<String>,
    /// The file with the control plane's token, read for each attempt. Without it, the token is taken from the variable COFFERDAM_CONTROL_PLANE_TOKEN.
    #[arg(
        long,
        value_name = "FILE",
        requires = "control_plane",
        env = "COFFERDAM_CONTROL_PLANE_TOKEN_FILE"
    )]
    pub(crate) control_plane_token_file: Option<PathBuf>,
    /// The session that this daemon reports for [default: a new one].
    #[arg(
        long,
        value_name = "ID",
        value_parser = session,
        env = "COFFERDAM_SESSION_ID"
    )]
    pub(crate) session_id: Option<String>,
    /// An address to which clients may have results sent: `hooks.example.com`, `*.example.com:443`, `10.1.0.0/16`, `*`. Can be given more than once.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) callback_allow: Vec<Pattern>,
    /// Of those, also addresses of this machine.
    #[arg(long, requires = "callback_allow")]
    pub(crate) callback_allow_loopback: bool,
    /// Of those, also private addresses that no pattern names.
    #[arg(long, requires = "callback_allow")]
    pub(crate) callback_allow_private: bool,
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

fn session(text: &str) -> Result<String, String> {
    let checked = cofferdam_callback::message::check_id("session_id", text);
    checked
        .map(|()| text.to_owned())
        .map_err(|error| error.to_string())
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
  cofferdam serve --control-plane https://plane.example.com --control-plane-token-file /run/secrets/plane

Exit code: 143 after SIGTERM, 130 after Ctrl-C, 125 when it could not start.";
