//! Which addresses may be spoken to when a client chose them. The URL is checked before anything else, and the addresses behind its name when it is connected to: [`crate::client`] connects
//! to an address that passed here and to no other. Redirects are not followed, so there is nothing to check again.
//!
//! The operator's own control plane is not asked about here.

use std::net::{IpAddr, SocketAddr};

use cofferdam_contract::address::{Nearby, Place, admit, place};
pub use cofferdam_contract::host_pattern::{BadPattern, Pattern};
use cofferdam_contract::mode::{Deed, Mode, Violation};
use url::{Host, Url};

/// The default refuses everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    pub allow: Vec<Pattern>,
    /// Of hosts that `allow` names. Without it an address of this machine is refused whatever name leads to it.
    pub allow_loopback: bool,
    /// Of hosts that `allow` names. A network that `allow` names needs no further permission.
    pub allow_private: bool,
    /// What is above the allow-list.
    pub mode: Option<Mode>,
}

/// Why an address that a client chose is not spoken to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("callback URL `{url}`: {why}")]
    Unusable { url: String, why: String },
    #[error(
        "callback URL: `{host}` is not on the allow-list; ask the operator to add it with `--callback-allow`"
    )]
    NotListed { host: String },
    #[error(transparent)]
    Mode(Violation),
    #[error("callback URL: `{host}` leads to {address}, {why}")]
    Address {
        host: String,
        address: IpAddr,
        why: &'static str,
    },
}

impl Policy {
    /// Reads the URL as browsers do, which also undoes odd spellings of addresses, and says whether it may be used. What it returns is what must be stored and sent to.
    pub fn check(&self, url: &str) -> Result<Url, Refused> {
        let parsed = usable(url)?;
        let Some(host) = parsed.host() else {
            return Err(unusable(url, "it names no host"));
        };
        let port = parsed.port_or_known_default().unwrap_or(0);
        if !self.allow.iter().any(|entry| entry.matches(&host, port)) {
            return Err(Refused::NotListed {
                host: shown(&host, port),
            });
        }
        let literal = match host {
            Host::Ipv4(v4) => Some(IpAddr::V4(v4)),
            Host::Ipv6(v6) => Some(IpAddr::V6(v6)),
            Host::Domain(_) => None,
        };
        if let Some(address) = literal {
            self.check_address(&shown(&host, port), address)?;
        }
        Ok(parsed)
    }

    /// One that a name led to, or that the URL names.
    pub fn check_address(&self, host: &str, address: IpAddr) -> Result<(), Refused> {
        let listed = || {
            let entries = self.allow.iter();
            entries.into_iter().any(|entry| entry.contains(address))
        };
        let is_here = place(address) == Place::Loopback;
        if let Some(mode) = self.mode.filter(|_| !is_here) {
            let url = SocketAddr::new(address, 0);
            mode.check(Deed::Callback(&format!("http://{url}")))
                .map_err(Refused::Mode)?;
        }
        let nearby = Nearby {
            loopback: self.allow_loopback,
            private: self.allow_private,
        };
        let why = match admit(address, nearby, listed) {
            Ok(()) | Err(Place::Public) => return Ok(()),
            Err(Place::Loopback) => {
                "an address of this machine; `--callback-allow-loopback` would permit it"
            }
            Err(Place::Private) => "a private address; `--callback-allow-private` would permit it",
            Err(Place::Never(why)) => why,
        };
        Err(Refused::Address {
            host: host.to_owned(),
            address,
            why,
        })
    }
}

/// What holds for the operator's URLs as well.
pub(crate) fn usable(url: &str) -> Result<Url, Refused> {
    let parsed = Url::parse(url).map_err(|error| unusable(url, &error.to_string()))?;
    let why = if !matches!(parsed.scheme(), "http" | "https") {
        "only http and https are spoken"
    } else if !parsed.username().is_empty() || parsed.password().is_some() {
        "it carries a user name or password; use a token"
    } else if parsed.port() == Some(0) {
        "port 0 cannot be connected to"
    } else {
        return Ok(without_fragment(parsed));
    };
    Err(unusable(url, why))
}

fn without_fragment(mut url: Url) -> Url {
    url.set_fragment(None);
    url
}

/// A password in it is not repeated.
fn unusable(url: &str, why: &str) -> Refused {
    let shown = url.rsplit_once('@').map_or(url, |(_, rest)| rest);
    Refused::Unusable {
        url: shown.chars().take(200).collect(),
        why: why.to_owned(),
    }
}

fn shown(host: &Host<&str>, port: u16) -> String {
    format!("{host}:{port}")
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
