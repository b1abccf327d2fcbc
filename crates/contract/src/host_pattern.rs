//! Hosts as an allow-list names them: a name, everything below a domain, an address, a network. Pure; looks nothing up.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use url::Host;

use crate::address::plain;

/// One entry of an allow-list: `hooks.example.com`, `*.example.com`, `10.1.0.0/16`, `192.0.2.7`, `[2001:db8::1]`, `*`; each but a network with `:port` where only that port may be used.
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

/// An entry of an allow-list that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is neither a host name, `*.domain`, an address nor a network; examples: `hooks.example.com:443`, `*.example.com`, `10.1.0.0/16`"
)]
pub struct BadPattern {
    pub text: String,
}

impl Pattern {
    /// The one port that it is about, if it names one.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    pub fn is_any(&self) -> bool {
        self.host == HostPattern::Any
    }

    /// A host and a port, where no port in the entry means every port.
    pub fn matches(&self, host: &Host<&str>, port: u16) -> bool {
        if self.port.is_some_and(|only| only != port) {
            return false;
        }
        match host {
            Host::Domain(name) => self.matches_name(name),
            Host::Ipv4(v4) => self.is_any() || self.contains(IpAddr::V4(*v4)),
            Host::Ipv6(v6) => self.is_any() || self.contains(IpAddr::V6(*v6)),
        }
    }

    /// Names are compared in the form that look-ups use: lower case, Punycode.
    pub fn matches_name(&self, name: &str) -> bool {
        // The dot at the end says that the name is complete, and changes nothing else.
        let name = name.strip_suffix('.').unwrap_or(name);
        match &self.host {
            HostPattern::Any => true,
            HostPattern::Name(exact) => name == exact,
            HostPattern::Below(domain) => is_below(name, domain),
            HostPattern::Network { .. } => false,
        }
    }

    /// Whether it is an address or a network that holds this one.
    pub fn contains(&self, address: IpAddr) -> bool {
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

    /// Whether every host that the other names is named by this one too; ports aside.
    pub fn covers_hosts_of(&self, other: &Self) -> bool {
        match (&self.host, &other.host) {
            (HostPattern::Any, _) => true,
            (_, HostPattern::Any) => false,
            (HostPattern::Name(ours), HostPattern::Name(theirs)) => ours == theirs,
            (HostPattern::Below(ours), HostPattern::Name(theirs)) => is_below(theirs, ours),
            (HostPattern::Below(ours), HostPattern::Below(theirs)) => {
                ours == theirs || is_below(theirs, ours)
            }
            (HostPattern::Network { bits: ours, .. }, HostPattern::Network { first, bits }) => {
                ours <= bits && self.contains(*first)
            }
            (HostPattern::Name(_), HostPattern::Below(_) | HostPattern::Network { .. })
            | (HostPattern::Below(_), HostPattern::Network { .. })
            | (HostPattern::Network { .. }, HostPattern::Name(_) | HostPattern::Below(_)) => false,
        }
    }
}

fn is_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain)
        .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

fn same_bits(a: u128, b: u128, width: u8, bits: u8) -> bool {
    let ignored = u32::from(width.saturating_sub(bits));
    (a ^ b).checked_shr(ignored).is_none_or(|rest| rest == 0)
}

impl FromStr for Pattern {
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
    let bits = width(first);
    HostPattern::Network { first, bits }
}

fn network(first: IpAddr, bits: u8) -> Option<HostPattern> {
    // A mapped network would never be compared with anything.
    let usable = bits <= width(first) && plain(first) == first;
    usable.then_some(HostPattern::Network { first, bits })
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            HostPattern::Any => f.write_str("*")?,
            HostPattern::Name(name) => f.write_str(name)?,
            HostPattern::Below(domain) => write!(f, "*.{domain}")?,
            HostPattern::Network { first, bits } if *bits < width(*first) => {
                write!(f, "{first}/{bits}")?;
            }
            HostPattern::Network {
                first: IpAddr::V6(v6),
                ..
            } => write!(f, "[{v6}]")?,
            HostPattern::Network { first, .. } => write!(f, "{first}")?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_printed_as_it_can_be_read_again() {
        for text in [
            "*",
            "*:8080",
            "example.org",
            "*.example.org:443",
            "10.1.0.0/16",
            "192.0.2.7:22",
            "[2001:db8::1]:443",
            "2001:db8::/32",
        ] {
            let pattern: Pattern = text.parse().unwrap();
            assert_eq!(pattern.to_string(), text);
            assert_eq!(pattern.to_string().parse(), Ok(pattern));
        }
    }

    #[test]
    fn one_entry_covers_another_only_if_it_names_every_host_of_it() {
        let of = |text: &str| text.parse::<Pattern>().unwrap();
        for (wide, narrow) in [
            ("*", "example.org"),
            ("*", "10.0.0.0/8"),
            ("*.example.org", "a.example.org"),
            ("*.example.org", "*.a.example.org"),
            ("10.0.0.0/8", "10.1.2.3"),
            ("10.0.0.0/8", "10.1.0.0/16"),
        ] {
            assert!(of(wide).covers_hosts_of(&of(narrow)), "{wide} {narrow}");
            assert!(!of(narrow).covers_hosts_of(&of(wide)), "{narrow} {wide}");
        }
        for (one, other) in [
            ("*.example.org", "example.org"),
            ("*.example.org", "evil-example.org"),
            ("example.org", "10.1.2.3"),
            ("10.0.0.0/8", "11.0.0.1"),
        ] {
            assert!(!of(one).covers_hosts_of(&of(other)), "{one} {other}");
        }
    }
}
