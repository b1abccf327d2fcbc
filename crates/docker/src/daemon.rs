//! Reaching the daemon, and putting what it answers into words: a daemon that is missing, refuses, is slow or goes away is a clear error, never a hang.

use std::time::Duration;

use bollard::errors::Error;
use bollard::{API_DEFAULT_VERSION, ClientVersion, Docker};
use cofferdam_engine::error::EngineError;

use crate::ping;
use crate::settings::{Endpoint, Settings};

const BACKEND: &str = "docker";

/// A daemon that answers.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) client: Docker,
    pub(crate) flavour: Flavour,
}

/// What kind of daemon it is, as far as that makes a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flavour {
    pub(crate) maker: Maker,
    /// The newest version of the API that both sides speak: 1 and this.
    pub(crate) minor: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maker {
    Docker,
    Podman,
}

/// Connects and agrees on a version of the API.
pub(crate) async fn connect(settings: &Settings) -> Result<Daemon, EngineError> {
    let endpoint = &settings.endpoint;
    let asked = tokio::time::timeout(settings.patience, ping::ask(endpoint)).await;
    let asked = match asked {
        Ok(asked) => asked.map_err(Error::from),
        Err(_) => Err(Error::RequestTimeoutError),
    };
    let unreachable = |error| unreachable(endpoint, error);
    let told = asked.map_err(unreachable)?;
    let minor = told.minor.min(API_DEFAULT_VERSION.minor_version);
    let version = ClientVersion {
        major_version: 1,
        minor_version: minor,
    };
    let seconds = settings.patience.as_secs().max(1);
    let client = match endpoint {
        Endpoint::Unix(path) => {
            Docker::connect_with_unix(&path.to_string_lossy(), seconds, &version)
        }
        Endpoint::Tcp(place) => {
            Docker::connect_with_http(&format!("tcp://{place}"), seconds, &version)
        }
    };
    Ok(Daemon {
        client: client.map_err(unreachable)?,
        flavour: Flavour { minor, ..told },
    })
}

/// The same client with time for something long.
pub(crate) fn patient(client: &Docker, patience: Duration) -> Docker {
    client.clone().with_timeout(patience)
}

/// The daemon could not be asked at all.
fn unreachable(endpoint: &Endpoint, error: Error) -> EngineError {
    let said = reason(&error);
    let (why, fix) = if said.contains("Permission denied") {
        (
            format!("you may not use the daemon at {endpoint}"),
            "join the group that owns the socket, or name another daemon with sandbox.docker.host"
                .to_owned(),
        )
    } else {
        (
            format!("no daemon answers at {endpoint}: {said}"),
            "start it, or name another with sandbox.docker.host or DOCKER_HOST".to_owned(),
        )
    };
    unavailable(why, fix)
}

/// The daemon was asked to do something and did not.
pub(crate) fn refused<'a>(doing: &'a str) -> impl Fn(Error) -> EngineError + 'a {
    move |error| {
        let why = format!("could not {doing}: {}", reason(&error));
        let fix = match error {
            Error::RequestTimeoutError => {
                "the daemon is slow or stuck; look at its log, or wait longer with sandbox.docker.patience"
            }
            // Docker calls it docker-init, Podman container-init.
            _ if why.contains("-init") => {
                "install the daemon's init (tini for Docker, catatonit for Podman), or do without one with sandbox.docker.init: false"
            }
            _ => "`cofferdam doctor` shows what the daemon can do",
        };
        unavailable(why, fix.to_owned())
    }
}

/// The daemon went away while the program ran: nobody knows how that ended.
pub(crate) fn lost(error: &Error) -> EngineError {
    unavailable(
        format!(
            "the daemon stopped answering during the run, whose end is not known: {}",
            reason(error)
        ),
        "look at the daemon's log; what is left of the run is removed when the daemon is back"
            .to_owned(),
    )
}

pub(crate) fn unavailable(why: String, fix: String) -> EngineError {
    EngineError::Unavailable {
        backend: BACKEND,
        why,
        fix,
    }
}

/// One line, the innermost reason last.
pub(crate) fn reason(error: &Error) -> String {
    let text = match error {
        Error::DockerResponseServerError { message, .. } => message.clone(),
        Error::DockerStreamError { error } => error.clone(),
        Error::RequestTimeoutError => "it did not answer in time".to_owned(),
        other => {
            let mut text = other.to_string();
            let mut inner = std::error::Error::source(other);
            while let Some(error) = inner {
                let said = error.to_string();
                if !text.contains(&said) {
                    text.push_str(": ");
                    text.push_str(&said);
                }
                inner = error.source();
            }
            text
        }
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What the daemon answered with, if it answered.
pub(crate) fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}
