//! What can be chosen about this backend: which daemon, which image, which runtime, and how long to wait. Nothing of it weakens a limit or a wall.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where the daemon listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    Unix(PathBuf),
    /// `host:port`, without encryption: for a daemon on this machine, or behind a tunnel.
    Tcp(String),
}

/// Where an image may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    /// From its registry, when the daemon does not have it.
    Missing,
    /// Only what the daemon has already.
    Never,
}

/// Whether the daemon's own small init is the first process, which reaps and passes signals on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Init {
    Daemons,
    /// The program is the first process itself; it then ignores signals that it has no handler for.
    None,
}

/// Told how far a pull has come: bytes of how many. The last call has both equal.
#[derive(Clone)]
pub struct Progress(pub Arc<dyn Fn(u64, u64) + Send + Sync>);

/// How runs are carried out.
#[derive(Debug, Clone)]
pub struct Settings {
    pub endpoint: Endpoint,
    /// What a run's root is made of: a name, a name with a digest, or an id.
    pub image: Option<String>,
    pub pull: Pull,
    /// `runc`, `crun`, `runsc`, `kata`: one that the daemon knows; its own default when absent.
    pub runtime: Option<String>,
    pub init: Init,
    /// Between asking a program to end and ending it.
    pub grace: Duration,
    /// For one answer of the daemon.
    pub patience: Duration,
    /// For one pull.
    pub pull_patience: Duration,
    pub progress: Option<Progress>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            endpoint: Endpoint::Unix("/var/run/docker.sock".into()),
            image: None,
            pull: Pull::Missing,
            runtime: None,
            init: Init::Daemons,
            grace: Duration::from_secs(1),
            patience: Duration::from_secs(30),
            pull_patience: Duration::from_secs(300),
            progress: None,
        }
    }
}

impl Endpoint {
    /// `unix:///path` or `tcp://host:port`, as `DOCKER_HOST` has them.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix://") {
            return match path.starts_with('/') {
                true => Ok(Self::Unix(path.into())),
                false => Err("is not absolute; write unix:///path/to/docker.sock".to_owned()),
            };
        }
        let Some(place) = text.strip_prefix("tcp://") else {
            return Err(
                "is no daemon that can be reached; write unix:///path or tcp://host:port"
                    .to_owned(),
            );
        };
        let port = place.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        match port {
            Some(Ok(_)) => Ok(Self::Tcp(place.to_owned())),
            _ => Err("has no port; write tcp://host:port".to_owned()),
        }
    }

    /// The address of a daemon that is reached by TCP.
    pub(crate) fn resolve(place: &str) -> Option<SocketAddr> {
        place.to_socket_addrs().ok()?.next()
    }

    /// Whether the daemon's processes and CPUs are this machine's.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Unix(_))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_docker_host_has_them() {
        let unix = Endpoint::parse("unix:///run/x.sock").unwrap();
        assert_eq!(unix, Endpoint::Unix("/run/x.sock".into()));
        assert_eq!(unix.to_string(), "unix:///run/x.sock");
        let tcp = Endpoint::parse("tcp://127.0.0.1:2375").unwrap();
        assert_eq!(tcp.to_string(), "tcp://127.0.0.1:2375");
        for bad in ["", "unix://x", "ssh://host", "tcp://nowhere", "/run/x.sock"] {
            assert!(Endpoint::parse(bad).is_err(), "{bad}");
        }
    }
}
