//! `cofferdam serve` and `cofferdam token`: the daemon, and who may use it.

use std::path::PathBuf;
use std::process::ExitCode;

use cofferdam_callback::{Bearer, ControlPlane};
use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::limits::Limits;
use cofferdam_contract::mode::{Deed, Mode, NetworkReach};
use cofferdam_contract::problem::Problems;
use cofferdam_contract::request::BackendName;
use cofferdam_contract::units::Cap;
use cofferdam_server::config::{Callbacks, FrontDoorConfig, Images, Remembrance, TokenSource};
use cofferdam_server::tokens::{NewToken, Scope, Token, TokenError, TokenFile};
use cofferdam_server::{Config, Server, StartError};
use cofferdam_store::sift::redact::Rules;
use cofferdam_store::{DataDir, data_dir};
use serde_json::{Value, json};

use crate::arguments::Places;
use crate::arguments::fleet::FrontDoorArgs;
use crate::arguments::serve::{ServeArgs, TokenArgs, TokenScope, TokenVerb};
use crate::config::{self, Flags, HistorySettings, ServeKey, ServeSettings, Sources, Switch};
use crate::failure::{self, Failure};
use crate::fleet::way;
use crate::history;
use crate::policy;
use crate::terminal::output::document;

pub(crate) fn serve(args: &ServeArgs, places: Places) -> Result<ExitCode, Failure> {
    let (named, mode) = (places.config.clone(), places.mode);
    let (config, log) = configured(args, (named, mode), data_dir_of(places)?)?;
    let _log = cofferdam_server::log::start(&log)
        .map_err(|bad| Failure::new(ErrorCode::ConfigInvalid, bad.to_string()))?;
    let ended = Server::start(config)
        .and_then(cofferdam_server::Running::run_until_signal)
        .map_err(start_failure)?;
    Ok(ExitCode::from(ended.exit_code()))
}

/// Files, then the environment, then flags. And what is logged.
fn configured(
    args: &ServeArgs,
    (named, mode): (Option<PathBuf>, Option<Mode>),
    dir: DataDir,
) -> Result<(Config, String), Failure> {
    let invalid = |problems: &_| Failure::problems(ErrorCode::ConfigInvalid, problems);
    let lookup = |name: &str| std::env::var_os(name);
    let flags = Flags {
        mode,
        // The daemon has no other; its section of the limits is the one that counts.
        backend: Some(BackendName::Native),
        ..Flags::default()
    };
    let sources = Sources::of_process(named, flags, Limits::DEFAULT);
    let mut merged = config::load(sources).map_err(|problems| invalid(&problems))?;
    let mut problems = Vec::new();
    merged.serve.environment(&lookup, &mut problems);
    Problems::check(problems).map_err(|problems| invalid(&problems))?;
    for (key, texts) in args.said() {
        merged.serve.flag(key, &texts);
    }
    let mode = merged.mode.value;
    policy::refuse(mode, deeds(&merged.serve))?;
    let refused = |text: String| Failure::new(ErrorCode::ConfigInvalid, text);
    let mut config = Config::new(dir);
    let rest = merged.serve.apply(&mut config).map_err(refused)?;
    config::with_otlp_headers(&mut config, &lookup).map_err(refused)?;
    callbacks(&merged.serve, &mut config.callbacks)?;
    config.runs.defaults = defaults(merged.limits(), &config);
    config.history = Remembrance {
        results: config.history.results,
        ..remembrance(&merged.history)?
    };
    let network = NetworkReach::from(&config.runs.network);
    policy::refuse(mode, [Deed::Network(network)])?;
    images(&merged.docker, &mut config.runs.images);
    if !config.runs.images.allow.is_empty() {
        policy::refuse(mode, [Deed::Run(config.runs.images.place.backend())])?;
    }
    config.front_door = front_door(&args.front_door, mode)?;
    if config.front_door.is_some() {
        leave_to_workers(&merged.serve)?;
    }
    config.runs.mode = mode;
    config.callbacks.policy.mode = mode;
    Ok((config, rest.log))
}

fn front_door(
    args: &FrontDoorArgs,
    mode: Option<Mode>,
) -> Result<Option<FrontDoorConfig>, Failure> {
    let Some(url) = &args.fleet else {
        return Ok(None);
    };
    policy::refuse(mode, [Deed::Daemon(url)])?;
    Ok(Some(FrontDoorConfig {
        address: way::address(url, &args.way),
        trust: way::trust(args.fleet_trusted.as_deref())?,
        replicas: args.fleet_replicas,
        audit_rate: args.fleet_audit_rate,
    }))
}

/// Which addresses and which proxy lead to a host only the worker knows that goes there: what cannot be passed on is not accepted either.
fn leave_to_workers(settings: &ServeSettings) -> Result<(), Failure> {
    let nearby = settings.text(ServeKey::NetPrivate);
    let proxy = settings.text(ServeKey::NetProxy);
    for (flag, said) in [
        ("--net-private", nearby.filter(|said| *said != "refuse")),
        ("--net-proxy", proxy),
    ] {
        if let Some(said) = said {
            let fix = format!(
                "does not reach the workers of a fleet; leave it out here, and say it to each of them: `cofferdam worker --net … {flag} …`"
            );
            return Err(Failure::problem(flag, said, fix).with_code(ErrorCode::ConfigInvalid));
        }
    }
    Ok(())
}

/// Containers are made as the configuration says, where there are any.
#[cfg(feature = "docker")]
fn images(docker: &config::DockerSettings, images: &mut Images) {
    images.docker = crate::containers::of_configuration(docker);
}

#[cfg(not(feature = "docker"))]
fn images(_: &config::DockerSettings, _: &mut Images) {}

/// What a daemon does of its own accord. What its clients ask for is checked as it comes.
fn deeds(settings: &ServeSettings) -> Vec<Deed<'_>> {
    let plane = settings.named(ServeKey::ControlPlane).map(Deed::Callback);
    let traces = settings.named(ServeKey::OtlpEndpoint).map(Deed::Traces);
    let runs = Deed::Run(BackendName::Native);
    [Some(runs), plane, traces].into_iter().flatten().collect()
}

/// Nobody asked for a default, so that one above the daemon's bounds is lowered and not refused.
fn defaults(mut limits: Limits, config: &Config) -> Limits {
    let runs = &config.runs;
    let time = limits.wall_time.at_most().unwrap_or(runs.longest);
    limits.wall_time = Cap::AtMost(time.min(runs.longest));
    let output = limits.output.at_most().unwrap_or(runs.largest_output);
    limits.output = Cap::AtMost(output.min(runs.largest_output));
    limits
}

/// The daemon answers from the history; without one it could not.
pub(crate) fn remembrance(settings: &HistorySettings) -> Result<Remembrance, Failure> {
    if settings.enabled.value == Switch::Off {
        let message = format!(
            "history.enabled: the daemon answers from the history and cannot do without; remove it ({}), and keep less with `history.max_age` and `history.max_runs`",
            settings.enabled.origin
        );
        return Err(Failure::new(ErrorCode::ConfigInvalid, message));
    }
    let patterns = settings.redact.iter().map(|pattern| &*pattern.value);
    let wants_artifacts = settings.artifacts.value == Switch::On;
    Ok(Remembrance {
        keeping: settings.keeping(),
        retention: settings.retention(),
        artifacts: wants_artifacts.then(|| settings.artifact_limits()),
        rules: Rules::default().with_patterns(patterns)?,
        ..Remembrance::default()
    })
}

/// The token of the control plane, where no file is named. No setting, so that it is never shown.
const PLANE_TOKEN: &str = "COFFERDAM_CONTROL_PLANE_TOKEN";

fn callbacks(settings: &ServeSettings, config: &mut Callbacks) -> Result<(), Failure> {
    let invalid =
        |name: &str, why: String| Failure::new(ErrorCode::InputInvalid, format!("{name}: {why}"));
    config.pod = std::env::var("POD_NAME").ok();
    if config.control_plane.is_none() {
        config.token = None;
        return Ok(());
    }
    if config.token.is_none()
        && let Ok(text) = std::env::var(PLANE_TOKEN)
        && !text.is_empty()
    {
        let bearer = Bearer::new(&text).map_err(|why| invalid(PLANE_TOKEN, why))?;
        config.token = Some(TokenSource::Given(bearer));
    }
    let url = settings.text(ServeKey::ControlPlane).unwrap_or_default();
    let name = config.token.as_ref().map(|_| Callbacks::TOKEN);
    let plane = ControlPlane::new(url, ControlPlane::PREFIX, name)
        .map_err(|refused| invalid("--control-plane", refused.to_string()))?;
    config.control_plane = Some(plane);
    Ok(())
}

const TOKENS: &str = "cofferdam.tokens/1";

pub(crate) fn token(args: TokenArgs, places: Places) -> Result<ExitCode, Failure> {
    let file = TokenFile::of(&data_dir_of(places)?);
    match args.verb {
        TokenVerb::Create {
            name,
            scope,
            max_running,
            max_queued,
            json,
        } => {
            let new = NewToken {
                name,
                scopes: scope.into_iter().map(scope_of).collect(),
                max_running,
                max_queued,
            };
            let (token, secret) = file.create(new).map_err(token_failure)?;
            failure::print(&match json {
                true => {
                    let mut told = shown(&token);
                    told["secret"] = json!(secret.reveal());
                    document(TOKENS, &told)?
                }
                false => format!("{}\n", secret.reveal()),
            })?;
        }
        TokenVerb::List { json } => {
            let tokens = file.list().map_err(token_failure)?;
            let mut text = String::new();
            if json {
                let shown: Vec<_> = tokens.iter().map(shown).collect();
                text = document(TOKENS, &json!({ "tokens": shown }))?;
            } else {
                for token in tokens {
                    let scopes: Vec<_> = token.scopes.iter().map(|scope| scope.as_str()).collect();
                    text.push_str(&format!(
                        "{}  {}  {}  {}\n",
                        token.id,
                        token.created_at,
                        scopes.join(","),
                        token.name
                    ));
                }
            }
            failure::print(&text)?;
        }
        TokenVerb::Revoke { token, json } => {
            file.revoke(&token).map_err(token_failure)?;
            if json {
                failure::print(&document(TOKENS, &json!({ "revoked": token }))?)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Without what is kept of its secret.
fn shown(token: &Token) -> Value {
    json!({
        "id": token.id,
        "name": token.name,
        "scopes": token.scopes,
        "max_running": token.max_running,
        "max_queued": token.max_queued,
        "created_at": token.created_at,
    })
}

fn data_dir_of(places: Places) -> Result<DataDir, Failure> {
    history::place(places.data_dir).ok_or_else(|| {
        let message = format!(
            "--data-dir: none of {}, XDG_DATA_HOME and HOME says where runs are kept; name a directory",
            data_dir::VARIABLE
        );
        Failure::new(ErrorCode::HistoryUnavailable, message)
    })
}

fn scope_of(scope: TokenScope) -> Scope {
    match scope {
        TokenScope::Run => Scope::Run,
        TokenScope::Read => Scope::Read,
        TokenScope::Admin => Scope::Admin,
    }
}

fn start_failure(error: StartError) -> Failure {
    let code = match &error {
        StartError::Exposed { .. } | StartError::Listen { .. } => ErrorCode::InputInvalid,
        StartError::InUse { .. } => ErrorCode::HistoryUnavailable,
        StartError::Store(error) => error.code(),
        StartError::Fleet(error) => error.code(),
        StartError::Tokens(_) => ErrorCode::ConfigInvalid,
        StartError::System { .. } => ErrorCode::Internal,
    };
    Failure::new(code, error.to_string())
}

fn token_failure(error: TokenError) -> Failure {
    let code = match &error {
        TokenError::BadName { .. }
        | TokenError::NoScope
        | TokenError::TooMany { .. }
        | TokenError::NoSuchToken { .. } => ErrorCode::InputInvalid,
        TokenError::Damaged { .. } | TokenError::Exposed { .. } => ErrorCode::ConfigInvalid,
        TokenError::Io { .. } => ErrorCode::InputUnreadable,
    };
    Failure::new(code, error.to_string())
}
