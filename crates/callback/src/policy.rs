//! Which addresses may be spoken to when a client chose them. The URL is checked before anything else, and the addresses behind its name when it is connected to: [`crate::client`] connects
//! to an address that passed here and to no other. Redirects are not followed, so there is nothing to check again.
//!
//! The operator's own control plane is not asked about here.

use std::net::{IpAddr, SocketAddr};

use cofferdam_contract::mode::{Deed, Mode, Violation};
use url::{Host, Url};

use crate::address::{Place, place, plain};

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

/// One entry of the allow-list: `hooks.example.com`, `*.example.com`, `10.1.0.0/16`, `192.0.2.7`, `[2001:db8::1]`, `*`; each but a network with `:port` where only that port may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    host: HostPattern,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    /// Any host; which addresses is another question.
    Any,
    Name(String),
    /// Names below this one, and not it itself.
    Below(String),
    Network {
        first: IpAddr,
        bits: u8,
    },
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

/// An entry of the allow-list that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "--callback-allow: `{text}` is neither a host name, `*.domain`, an address nor a network; examples: `hooks.example.com:443`, `*.example.com`, `10.1.0.0/16`"
)]
pub struct BadPattern {
    pub text: String,
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
        let why = match place(address) {
            Place::Public => return Ok(()),
            Place::Loopback if self.allow_loopback => return Ok(()),
            Place::Private if self.allow_private || listed() => return Ok(()),
            Place::Loopback => {
                "an address of this machine; `--callback-allow-loopback` would permit it"
            }
            Place::Private => "a private address; `--callback-allow-private` would permit it",
            Place::Never(why) => why,
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

impl Pattern {
    fn matches(&self, host: &Host<&str>, port: u16) -> bool {
        if self.port.is_some_and(|only| only != port) {
            return false;
        }
        match host {
            Host::Domain(name) => self.matches_name(name),
            Host::Ipv4(v4) => self.is_any() || self.contains(IpAddr::V4(*v4)),
            Host::Ipv6(v6) => self.is_any() || self.contains(IpAddr::V6(*v6)),
        }
    }

    fn is_any(&self) -> bool {
        self.host == HostPattern::Any
    }

    fn matches_name(&self, name: &str) -> bool {
        // The dot at the end says that the name is complete, and changes nothing else.
        let name = name.strip_suffix('.').unwrap_or(name);
        match &self.host {
            HostPattern::Any => true,
            HostPattern::Name(exact) => name == exact,
            HostPattern::Below(domain) => name
                .strip_suffix(domain.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            HostPattern::Network { .. } => false,
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        let HostPattern::Network { first, bits } = &self.host else {
            return false;
        };
        match (first, plain(address)) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                same_bits(first.to_bits().into(), address.to_bits().into(), 32, *bits)
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                same_bits(first.to_bits(), address.to_bits(), 128, *bits)
            }
            _ => false,
        }
    }
}

fn same_bits(a: u128, b: u128, width: u8, bits: u8) -> bool {
    let ignored = u32::from(width.saturating_sub(bits));
    (a ^ b).checked_shr(ignored).is_none_or(|rest| rest == 0)
}

impl std::str::FromStr for Pattern {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<Self, BadPattern> {
        let bad = || BadPattern {
            text: text.to_owned(),
        };
        if let Some((address, bits)) = text.split_once('/') {
            let first: IpAddr = address.parse().map_err(|_| bad())?;
            let bits: u8 = bits.parse().map_err(|_| bad())?;
            let network = network(first, bits).ok_or_else(bad)?;
            return Ok(Self {
                host: network,
                port: None,
            });
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            let host = single(address);
            return Ok(Self { host, port: None });
        }
        let (host, port) = split_port(text).ok_or_else(bad)?;
        let host = host_pattern(host).ok_or_else(bad)?;
        Ok(Self { host, port })
    }
}

fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let port = port.parse().ok().filter(|port| *port != 0)?;
            Some((host, Some(port)))
        }
        _ => Some((text, None)),
    }
}

fn host_pattern(text: &str) -> Option<HostPattern> {
    if text == "*" {
        return Some(HostPattern::Any);
    }
    let below = text.strip_prefix("*.");
    match Host::parse(below.unwrap_or(text)).ok()? {
        Host::Ipv4(v4) if below.is_none() => Some(single(IpAddr::V4(v4))),
        Host::Ipv6(v6) if below.is_none() => Some(single(IpAddr::V6(v6))),
        Host::Domain(name) => {
            let name = name.strip_suffix('.').unwrap_or(&name).to_owned();
            let usable = !name.is_empty() && !name.contains('*');
            usable.then_some(match below {
                Some(_) => HostPattern::Below(name),
                None => HostPattern::Name(name),
            })
        }
        Host::Ipv4(_) | Host::Ipv6(_) => None,
    }
}

fn single(address: IpAddr) -> HostPattern {
    let first = plain(address);
    let bits = if first.is_ipv4() { 32 } else { 128 };
    HostPattern::Network { first, bits }
}

fn network(first: IpAddr, bits: u8) -> Option<HostPattern> {
    let width = if first.is_ipv4() { 32 } else { 128 };
    // A mapped network would never be compared with anything.
    let usable = bits <= width && plain(first) == first;
    usable.then_some(HostPattern::Network { first, bits })
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
