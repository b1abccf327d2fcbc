//! The grammar of `serve` and `token`: the daemon and who may use it.

use clap::{Args, Subcommand, ValueEnum};

use super::fleet::FrontDoorArgs;
use super::words;
use crate::config::{OVERCOMMIT, ServeKey, check_serve};

/// Serve HTTP: run commands and payloads for others, with a queue, live output and history.
#[derive(Debug, Args)]
#[command(after_long_help = SERVE_EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Where to listen; anything but loopback needs a token [env: COFFERDAM_LISTEN] [default: 127.0.0.1:8080].
    #[arg(help_heading = "Serving", long, value_name = "ADDRESS:PORT", value_parser = value(ServeKey::Listen))]
    listen: Option<String>,
    /// Runs at once [default: one for each CPU].
    #[arg(help_heading = "Serving", long, value_name = "N", value_parser = value(ServeKey::Concurrency))]
    concurrency: Option<String>,
    /// Runs that may wait [default: 100].
    #[arg(help_heading = "Serving", long, value_name = "N", value_parser = value(ServeKey::Queue))]
    queue: Option<String>,
    /// Sandboxes kept ready at most, or `auto` for twice as many as runs at once [default: auto].
    #[arg(help_heading = "Serving", long, value_name = "N", value_parser = value(ServeKey::Pool))]
    pool: Option<String>,
    /// Whether an interpreter may wait in them, as a copy of one that has started [default: true].
    #[arg(help_heading = "Serving", long, value_name = "true|false", value_parser = value(ServeKey::Copies))]
    copies: Option<String>,
    /// What the memory limits of all running work may add up to, as a size or a part of what is available at the start [default: 80%].
    #[arg(help_heading = "Serving", long, value_name = "SIZE", conflicts_with = "overcommit", value_parser = value(ServeKey::MemoryBudget))]
    memory_budget: Option<String>,
    /// Let memory limits add up to more than there is.
    #[arg(help_heading = "Serving", long)]
    overcommit: bool,
    /// The longest run that may be asked for [default: 1h].
    #[arg(help_heading = "What runs may ask for", long, value_name = "TIME", value_parser = value(ServeKey::MaxTimeout))]
    max_timeout: Option<String>,
    /// The most disk that a run may ask for [default: 4g].
    #[arg(help_heading = "What runs may ask for", long, value_name = "SIZE", value_parser = value(ServeKey::MaxDisk))]
    max_disk: Option<String>,
    /// The most processes and threads that a run may ask for [default: 1024].
    #[arg(help_heading = "What runs may ask for", long, value_name = "N", value_parser = value(ServeKey::MaxProcesses))]
    max_processes: Option<String>,
    /// The most open files that a run may ask for [default: 16384].
    #[arg(help_heading = "What runs may ask for", long, value_name = "N", value_parser = value(ServeKey::MaxOpenFiles))]
    max_open_files: Option<String>,
    /// The largest request [default: 16m].
    #[arg(help_heading = "Serving", long, value_name = "SIZE", value_parser = value(ServeKey::MaxBody))]
    max_body: Option<String>,
    /// How long it may take to end after SIGTERM, reports included; what still runs shortly before is cancelled [default: 2s].
    #[arg(help_heading = "Serving", long, value_name = "TIME", value_parser = value(ServeKey::Grace))]
    grace: Option<String>,
    /// A directory with manifests of further languages. Can be given more than once.
    #[arg(help_heading = "Serving", long, value_name = "DIR", value_parser = value(ServeKey::Languages))]
    languages: Vec<String>,
    /// Tell traces to a collector that takes OTLP over HTTP [env: OTEL_EXPORTER_OTLP_ENDPOINT].
    #[arg(help_heading = "Traces", long, value_name = "URL", value_parser = value(ServeKey::OtlpEndpoint))]
    otlp_endpoint: Option<String>,
    /// The name that traces carry [env: OTEL_SERVICE_NAME] [default: cofferdam].
    #[arg(help_heading = "Traces", long, value_name = "NAME", value_parser = value(ServeKey::OtlpServiceName))]
    otlp_service_name: Option<String>,
    /// Which part of the traces that begin here is told, from 0 to 1 [env: OTEL_TRACES_SAMPLER_ARG] [default: 1].
    #[arg(help_heading = "Traces", long, value_name = "PART", value_parser = value(ServeKey::OtlpSampling))]
    otlp_sampling: Option<String>,
    /// Report every run to this control plane: `/internal/executions/ID/result` and its like below this address [env: COFFERDAM_CONTROL_PLANE].
    #[arg(long, value_name = "URL", help_heading = "Callbacks", value_parser = value(ServeKey::ControlPlane))]
    control_plane: Option<String>,
    /// The file with the control plane's token, read for each attempt. Without it, the token is taken from the variable COFFERDAM_CONTROL_PLANE_TOKEN [env: COFFERDAM_CONTROL_PLANE_TOKEN_FILE].
    #[arg(long, value_name = "FILE", help_heading = "Callbacks", value_parser = value(ServeKey::ControlPlaneTokenFile))]
    control_plane_token_file: Option<String>,
    /// The session that this daemon reports for [env: COFFERDAM_SESSION_ID] [default: a new one].
    #[arg(long, value_name = "ID", help_heading = "Callbacks", value_parser = value(ServeKey::SessionId))]
    session_id: Option<String>,
    /// An address to which clients may have results sent: `hooks.example.com`, `*.example.com:443`, `10.1.0.0/16`, `*`. Can be given more than once.
    #[arg(long, value_name = "PATTERN", help_heading = "Callbacks", value_parser = value(ServeKey::CallbacksAllow))]
    callback_allow: Vec<String>,
    /// Of those, also addresses of this machine.
    #[arg(long, help_heading = "Callbacks")]
    callback_allow_loopback: bool,
    /// Of those, also private addresses that no pattern names.
    #[arg(long, help_heading = "Callbacks")]
    callback_allow_private: bool,
    /// What a run that asks for the network gets at most: `none` (default), `allow=HOST[:PORT],…`, or `full`.
    #[arg(long, value_name = "WHAT", help_heading = "Network", value_parser = value(ServeKey::Net))]
    net: Option<String>,
    /// Whether addresses that are not public may be reached: `refuse` (default), `allow`, or `loopback` for this machine as well.
    #[arg(long, value_name = "WHICH", help_heading = "Network", value_parser = value(ServeKey::NetPrivate))]
    net_private: Option<String>,
    /// Connect through this HTTP proxy: `http://HOST:PORT`.
    #[arg(long, value_name = "URL", help_heading = "Network", value_parser = value(ServeKey::NetProxy))]
    net_proxy: Option<String>,
    /// An image that a run may ask for: NAME:TAG, NAME@sha256:…, or a beginning with `*` behind it. None is fetched. Can be given more than once.
    #[arg(long, value_name = "NAME", help_heading = "Images", value_parser = value(ServeKey::Images))]
    image: Vec<String>,
    /// Where images run: `native`, unpacked here (default), or `docker`, in containers.
    #[arg(long, value_name = "BACKEND", help_heading = "Images", value_parser = value(ServeKey::ImagePlace))]
    image_backend: Option<String>,
    #[command(flatten)]
    pub(crate) front_door: FrontDoorArgs,
    /// Log more; COFFERDAM_LOG says what exactly [env: COFFERDAM_LOG].
    #[arg(help_heading = "Serving", long)]
    debug: bool,
}

impl ServeArgs {
    /// What was said, setting by setting; each value is checked.
    pub(crate) fn said(&self) -> Vec<(ServeKey, Vec<String>)> {
        let overcommit = self.overcommit.then(|| OVERCOMMIT.to_owned());
        let debug = self.debug.then(|| "debug".to_owned());
        let loopback = self.callback_allow_loopback.then(|| "true".to_owned());
        let private = self.callback_allow_private.then(|| "true".to_owned());
        let memory = self.memory_budget.clone().or(overcommit);
        let one = [
            (ServeKey::Listen, self.listen.clone()),
            (ServeKey::Concurrency, self.concurrency.clone()),
            (ServeKey::Queue, self.queue.clone()),
            (ServeKey::Pool, self.pool.clone()),
            (ServeKey::Copies, self.copies.clone()),
            (ServeKey::MemoryBudget, memory),
            (ServeKey::MaxTimeout, self.max_timeout.clone()),
            (ServeKey::MaxDisk, self.max_disk.clone()),
            (ServeKey::MaxProcesses, self.max_processes.clone()),
            (ServeKey::MaxOpenFiles, self.max_open_files.clone()),
            (ServeKey::MaxBody, self.max_body.clone()),
            (ServeKey::Grace, self.grace.clone()),
            (ServeKey::ControlPlane, self.control_plane.clone()),
            (
                ServeKey::ControlPlaneTokenFile,
                self.control_plane_token_file.clone(),
            ),
            (ServeKey::SessionId, self.session_id.clone()),
            (ServeKey::CallbacksAllowLoopback, loopback),
            (ServeKey::CallbacksAllowPrivate, private),
            (ServeKey::Net, self.net.clone()),
            (ServeKey::NetPrivate, self.net_private.clone()),
            (ServeKey::NetProxy, self.net_proxy.clone()),
            (ServeKey::ImagePlace, self.image_backend.clone()),
            (ServeKey::OtlpEndpoint, self.otlp_endpoint.clone()),
            (ServeKey::OtlpServiceName, self.otlp_service_name.clone()),
            (ServeKey::OtlpSampling, self.otlp_sampling.clone()),
            (ServeKey::Log, debug),
        ];
        let one = one
            .into_iter()
            .filter_map(|(key, text)| Some((key, vec![text?])));
        let many = [
            (ServeKey::Languages, self.languages.clone()),
            (ServeKey::CallbacksAllow, self.callback_allow.clone()),
            (ServeKey::Images, self.image.clone()),
        ];
        let many = many.into_iter().filter(|(_, texts)| !texts.is_empty());
        one.chain(many).collect()
    }
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
    #[command(
        after_long_help = "Example:\n  cofferdam token create ci --scope run --max-running 2"
    )]
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
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// Show the tokens that there are.
    #[command(after_long_help = "Example:\n  cofferdam token list")]
    List {
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// Make a token worthless.
    #[command(after_long_help = "Example:\n  cofferdam token revoke ci")]
    Revoke {
        /// Its id or its name.
        token: String,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
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

/// The same check as for files and the environment.
fn value(key: ServeKey) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync {
    move |text| check_serve(key, text).map(|()| text.to_owned())
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
  cofferdam serve --image 'python:*' --image registry.example/tool@sha256:…
  cofferdam serve --fleet nats://127.0.0.1:4222 --fleet-replicas 3
  cofferdam serve --control-plane https://plane.example.com --control-plane-token-file /run/secrets/plane

With --fleet nothing runs here: what is sent goes to the workers, and what comes back is the answer.

Exit code: 143 after SIGTERM, 130 after Ctrl-C, 125 when it could not start.";
