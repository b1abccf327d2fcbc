//! From a name to addresses that may be connected to. The client connects to what this returns and asks nobody else, so a name cannot mean one thing when it is checked and another when it
//! is used.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;
use url::{Host, Url};

use crate::policy::{Policy, Refused};

/// Asks the system, unless a test asks somebody else.
pub type Lookup = Arc<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// More questions than this at once are only asked when a name server does not answer.
const MAX_LOOKUPS: usize = 32;
const MAX_ADDRESSES: usize = 16;

pub(crate) struct Checked {
    /// `None`: the operator's own address.
    pub(crate) policy: Option<Arc<Policy>>,
    pub(crate) lookup: Lookup,
    pub(crate) at_most: Duration,
    pub(crate) running: Arc<AtomicUsize>,
}

impl fmt::Debug for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checked")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

pub(crate) fn system() -> Lookup {
    Arc::new(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
}

/// Asked when a client names an address, so that it is told at once what would never be spoken to. Whatever passes is checked again when it is used.
#[derive(Debug)]
pub struct Doorkeeper {
    policy: Arc<Policy>,
    checked: Checked,
}

impl Doorkeeper {
    pub fn new(policy: Policy) -> Self {
        let policy = Arc::new(policy);
        Self {
            checked: Checked {
                policy: Some(Arc::clone(&policy)),
                lookup: system(),
                at_most: Duration::ZERO,
                running: Arc::new(AtomicUsize::new(0)),
            },
            policy,
        }
    }

    /// Blocks while the name is looked up, for as long as is said. A name that leads nowhere passes: it may lead somewhere when the result is there.
    pub fn check(&self, url: &str, at_most: Duration) -> Result<Url, Refused> {
        let url = self.policy.check(url)?;
        if let Some(Host::Domain(name)) = url.host() {
            let port = url.port_or_known_default().unwrap_or(0);
            for address in self.checked.ask(name, port, at_most).unwrap_or_default() {
                self.policy.check_address(name, address.ip())?;
            }
        }
        Ok(url)
    }
}

impl Resolver for Checked {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let url =
            Url::parse(&uri.to_string()).map_err(|error| ureq::Error::BadUri(error.to_string()))?;
        let port = url.port_or_known_default().unwrap_or(0);
        let addresses = match url.host() {
            Some(Host::Ipv4(v4)) => vec![SocketAddr::from((v4, port))],
            Some(Host::Ipv6(v6)) => vec![SocketAddr::from((v6, port))],
            Some(Host::Domain(name)) => self.ask(name, port, self.at_most)?,
            None => Vec::new(),
        };
        if let Some(policy) = &self.policy {
            let host = url.host_str().unwrap_or_default();
            // One that may not be spoken to among several is an attack or a mistake; either way the others are not to be trusted.
            for address in &addresses {
                policy.check_address(host, address.ip()).map_err(refusal)?;
            }
        }
        let mut found = self.empty();
        for address in addresses.into_iter().take(MAX_ADDRESSES) {
            found.push(address);
        }
        if found.is_empty() {
            return Err(ureq::Error::HostNotFound);
        }
        Ok(found)
    }
}

impl Checked {
    /// The system's own lookup takes as long as it likes, so it is asked from a thread of its own.
    fn ask(
        &self,
        name: &str,
        port: u16,
        at_most: Duration,
    ) -> Result<Vec<SocketAddr>, ureq::Error> {
        let counted = Counted::new(&self.running).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::WouldBlock,
                "the name servers do not answer; too many questions are open",
            )
        })?;
        let (answer, answered) = mpsc::sync_channel(1);
        let lookup = Arc::clone(&self.lookup);
        let name = name.to_owned();
        thread::Builder::new()
            .name("callback-dns".to_owned())
            .spawn(move || {
                let found = lookup(&name, port);
                drop(counted);
                // Nobody waits any more when it took too long.
                let _ = answer.send(found);
            })?;
        match answered.recv_timeout(at_most) {
            Ok(found) => Ok(found?),
            Err(_) => Err(ureq::Error::Timeout(ureq::Timeout::Resolve)),
        }
    }
}

/// One open question.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(running: &Arc<AtomicUsize>) -> Option<Self> {
        let counted = Self(Arc::clone(running));
        let before = running.fetch_add(1, Ordering::AcqRel);
        (before < MAX_LOOKUPS).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn refusal(refused: Refused) -> ureq::Error {
    ureq::Error::Other(Box::new(refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(5);

    #[test]
    fn a_name_that_leads_to_this_machine_is_refused_at_the_door() {
        let policy = Policy {
            allow: vec!["*".parse().unwrap()],
            ..Policy::default()
        };
        let mut door = Doorkeeper::new(policy.clone());
        let refused = door.check("http://localhost:8000/x", LONG).unwrap_err();
        assert!(matches!(refused, Refused::Address { .. }), "{refused}");
        let mixed = ["192.0.2.1:80", "169.254.169.254:80"];
        door.checked.lookup = Arc::new(move |_, _| {
            let parsed = mixed.iter().map(|text| text.parse());
            parsed.collect::<Result<_, _>>().map_err(io::Error::other)
        });
        let refused = door.check("http://hooks.example/x", LONG).unwrap_err();
        assert!(matches!(refused, Refused::Address { .. }), "{refused}");
        door.checked.lookup = Arc::new(|_, _| Err(io::ErrorKind::NotFound.into()));
        assert!(door.check("http://hooks.example/x", LONG).is_ok());
        let allowed = Policy {
            allow_loopback: true,
            ..policy
        };
        let door = Doorkeeper::new(allowed);
        assert!(door.check("http://localhost:8000/x", LONG).is_ok());
    }
}
