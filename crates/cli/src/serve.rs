//! `cofferdam serve` and `cofferdam token`: the daemon, and who may use it.

use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_server::config::MemoryBudget;
use cofferdam_server::tokens::{NewToken, Scope, TokenError, TokenFile};
use cofferdam_server::{Config, Server, StartError};
use cofferdam_store::{DataDir, data_dir};

use crate::arguments::Places;
use crate::arguments::serve::{ServeArgs, TokenArgs, TokenScope, TokenVerb};
use crate::failure::{self, Failure};
use crate::history;

pub(crate) fn serve(args: &ServeArgs, places: Places) -> Result<ExitCode, Failure> {
    cofferdam_server::log::start();
    let mut config = Config::new(data_dir_of(places)?);
    config.listen = args.listen;
    config.grace = args.grace;
    config.http.body = args.max_body;
    config.runs.at_once = args.concurrency;
    config.runs.queue = args.queue;
    config.runs.longest = args.max_timeout;
    config.runs.longest_deadline = args.max_timeout.saturating_mul(2);
    config.runs.ceilings.disk = args.max_disk;
    config.runs.ceilings.processes = args.max_processes;
    config.runs.ceilings.open_files = args.max_open_files;
    config.runs.memory = match (args.overcommit, args.memory_budget) {
        (true, _) => MemoryBudget::Overcommit,
        (false, Some(bytes)) => MemoryBudget::AtMost(bytes),
        (false, None) => config.runs.memory,
    };
    let ended = Server::start(config)
        .and_then(cofferdam_server::Running::run_until_signal)
        .map_err(start_failure)?;
    Ok(ExitCode::from(ended.exit_code()))
}

pub(crate) fn token(args: TokenArgs, places: Places) -> Result<ExitCode, Failure> {
    let file = TokenFile::of(&data_dir_of(places)?);
    match args.verb {
        TokenVerb::Create {
            name,
            scope,
            max_running,
            max_queued,
        } => {
            let new = NewToken {
                name,
                scopes: scope.into_iter().map(scope_of).collect(),
                max_running,
                max_queued,
            };
            let (_, secret) = file.create(new).map_err(token_failure)?;
            failure::print(&format!("{}\n", secret.reveal()))?;
        }
        TokenVerb::List { json } => {
            let tokens = file.list().map_err(token_failure)?;
            let mut text = String::new();
            if json {
                let shown: Vec<_> = tokens
                    .iter()
                    .map(|token| {
                        serde_json::json!({
                            "id": token.id,
                            "name": token.name,
                            "scopes": token.scopes,
                            "max_running": token.max_running,
                            "max_queued": token.max_queued,
                            "created_at": token.created_at,
                        })
                    })
                    .collect();
                text = crate::seal::pretty(&shown)?;
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
        TokenVerb::Revoke { token } => {
            file.revoke(&token).map_err(token_failure)?;
        }
    }
    Ok(ExitCode::SUCCESS)
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
        StartError::Tokens(_) => ErrorCode::ConfigInvalid,
        StartError::System { .. } => ErrorCode::Internal,
    };
    Failure::new(code, error.to_string())
}

fn token_failure(error: TokenError) -> Failure {
    let code = match &error {
        TokenError::BadName { .. } | TokenError::NoScope | TokenError::NoSuchToken { .. } => {
            ErrorCode::InputInvalid
        }
        TokenError::Damaged { .. } | TokenError::Exposed { .. } => ErrorCode::ConfigInvalid,
        TokenError::Io { .. } => ErrorCode::InputUnreadable,
    };
    Failure::new(code, error.to_string())
}
