//! Which part of the network a program may reach: nothing, what a list names, or everything that is public. Reads the ways in which that is written, and decides about names,
//! addresses and ports; speaks to nobody.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use url::Host;

use crate::address::{self, Nearby, Place};
use crate::host_pattern::{BadPattern, Pattern};
use crate::problem::{Problem, Problems};

/// What a run may reach beyond its own loopback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    /// Loopback and nothing else.
    Denied,
    Allowed(Allowance),
}

/// What may be reached, and by which way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowance {
    pub hosts: Hosts,
    /// Addresses that are not public are refused unless this names them.
    pub nearby: Nearby,
    /// Whom connections are made through, instead of directly.
    pub upstream: Option<Upstream>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// Those that an entry names; one without a port means [`WEB_PORTS`].
    Listed(Vec<Pattern>),
    /// Every host at every port.
    Any,
}

/// An HTTP proxy that takes `CONNECT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    pub host: String,
    pub port: u16,
}

/// What an entry without a port means.
pub const WEB_PORTS: [u16; 2] = [80, 443];

/// Where a program that may reach everything is heard although it knows nothing of proxies: what package managers, version control, mail and data bases use. All but the last few are ports
/// that a program in a sandbox could not listen at itself.
const EVERYDAY_PORTS: [u16; 16] = [
    21, 22, 25, 80, 110, 143, 443, 465, 587, 873, 993, 995, 3306, 5432, 8443, 9418,
];

/// Where the sandbox's own resolver listens.
pub const DNS_PORT: u16 = 53;
/// Where the proxy for `CONNECT` and SOCKS listens.
pub const PROXY_PORT: u16 = 1023;

const MAX_ENTRIES: usize = 256;
const MAX_PORTS: usize = 32;
const FIELD: &str = "network";
const NO_HOST: &str = "is neither a host name, `*.domain`, an address nor a network; write one such as `example.org:443`, `*.example.org` or `192.0.2.7`";

impl Network {
    /// Everything that is public.
    pub fn full() -> Self {
        Self::Allowed(Allowance::new(Hosts::Any))
    }

    /// The same with addresses that are not public, and through another proxy.
    #[must_use]
    pub fn by(self, nearby: Nearby, upstream: Option<Upstream>) -> Self {
        match self {
            Self::Denied => Self::Denied,
            Self::Allowed(Allowance { hosts, .. }) => Self::Allowed(Allowance {
                hosts,
                nearby,
                upstream,
            }),
        }
    }

    /// `none`, `full`, or `allow=HOST[:PORT],…`; every problem at once.
    pub fn read(text: &str) -> Result<Self, Vec<Problem>> {
        match text {
            "none" => Ok(Self::Denied),
            "full" => Ok(Self::full()),
            _ => match text.strip_prefix("allow=") {
                Some(list) => Self::listed(list.split(',').map(str::trim)),
                None => Err(vec![Problem::new(
                    FIELD,
                    text,
                    "is `none`, `full`, or `allow=` and hosts, such as `allow=example.org:443,*.example.net`",
                )]),
            },
        }
    }

    /// Only what these entries name; every problem at once.
    pub fn listed<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut listed = Vec::new();
        for entry in entries {
            match entry.parse() {
                Ok(pattern) => listed.push(pattern),
                Err(BadPattern { .. }) => {
                    problems.push(Problem::new(FIELD, entry, NO_HOST));
                }
            }
        }
        let all_are_bad = listed.is_empty() && !problems.is_empty();
        let network = Self::Allowed(Allowance::new(Hosts::Listed(listed)));
        if !all_are_bad {
            problems.extend(network.problems());
        }
        match problems.is_empty() {
            true => Ok(network),
            false => Err(problems),
        }
    }

    /// What is wrong with it, whoever made it.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        let Self::Allowed(Allowance {
            hosts: Hosts::Listed(listed),
            ..
        }) = self
        else {
            return found;
        };
        if listed.is_empty() {
            let fix = "allows no host; name one, or deny the network with `none`";
            found.push(Problem::new(FIELD, "allow=", fix));
        }
        if listed.len() > MAX_ENTRIES {
            let fix = format!("has too many entries; at most {MAX_ENTRIES} are taken");
            found.push(Problem::new(FIELD, listed.len(), fix));
        }
        let ports: BTreeSet<u16> = listed.iter().flat_map(ports_of).collect();
        if ports.len() > MAX_PORTS {
            let fix = format!("names too many ports; at most {MAX_PORTS} are taken");
            found.push(Problem::new(FIELD, ports.len(), fix));
        }
        for entry in listed {
            if let Some(port @ (DNS_PORT | PROXY_PORT)) = entry.port() {
                let fix = format!("port {port} is answered inside the sandbox; leave it out");
                found.push(Problem::new(FIELD, entry, fix));
            }
        }
        found
    }

    /// What is left of this where no more than `ceiling` is given: whoever asks for everything gets all of the ceiling, and a list must lie within it. Ways and addresses are the ceiling's.
    pub fn within(&self, ceiling: &Self) -> Result<Self, Problem> {
        let Self::Allowed(asked) = self else {
            return Ok(Self::Denied);
        };
        let Self::Allowed(most) = ceiling else {
            return Err(Problem::new(
                FIELD,
                self,
                "no network is given to runs here; leave it out, or have the operator allow it with `--net`",
            ));
        };
        let hosts = match (&asked.hosts, &most.hosts) {
            (Hosts::Any, ceiling) => ceiling.clone(),
            (Hosts::Listed(listed), Hosts::Any) => Hosts::Listed(listed.clone()),
            (Hosts::Listed(listed), Hosts::Listed(most)) => {
                if let Some(beyond) = listed.iter().find(|entry| !is_covered(entry, most)) {
                    return Err(Problem::new(
                        FIELD,
                        beyond,
                        "is more than the operator allows; leave it out",
                    ));
                }
                Hosts::Listed(listed.clone())
            }
        };
        Ok(Self::Allowed(Allowance {
            hosts,
            ..most.clone()
        }))
    }
}

impl Allowance {
    pub fn new(hosts: Hosts) -> Self {
        Self {
            hosts,
            nearby: Nearby::default(),
            upstream: None,
        }
    }

    /// Whether a host may be reached by its name, or by an address that is spelled out.
    pub fn permits(&self, host: &Host<&str>, port: u16) -> bool {
        match &self.hosts {
            Hosts::Any => true,
            Hosts::Listed(listed) => listed.iter().any(|entry| {
                entry.matches(host, port) && (entry.port().is_some() || WEB_PORTS.contains(&port))
            }),
        }
    }

    /// Whether a name may be asked for at all: it may be reached at some port.
    pub fn permits_name(&self, name: &str) -> bool {
        match &self.hosts {
            Hosts::Any => true,
            Hosts::Listed(listed) => listed.iter().any(|entry| entry.matches_name(name)),
        }
    }

    /// Whether an address that a name led to, or that was spelled out, may be connected to; why not.
    pub fn check_address(&self, address: IpAddr) -> Result<(), &'static str> {
        let listed = || match &self.hosts {
            Hosts::Any => false,
            Hosts::Listed(listed) => listed.iter().any(|entry| entry.contains(address)),
        };
        match address::admit(address, self.nearby, listed) {
            Ok(()) | Err(Place::Public) => Ok(()),
            Err(Place::Loopback) => Err("an address of this machine"),
            Err(Place::Private) => Err("a private address"),
            Err(Place::Never(why)) => Err(why),
        }
    }

    /// Where programs are heard that know nothing of proxies, in order.
    pub fn ports(&self) -> Vec<u16> {
        match &self.hosts {
            Hosts::Any => EVERYDAY_PORTS.to_vec(),
            Hosts::Listed(listed) => {
                let ports: BTreeSet<u16> = listed.iter().flat_map(ports_of).collect();
                ports.into_iter().collect()
            }
        }
    }
}

fn ports_of(entry: &Pattern) -> Vec<u16> {
    entry.port().map_or(WEB_PORTS.to_vec(), |port| vec![port])
}

fn is_covered(entry: &Pattern, by: &[Pattern]) -> bool {
    ports_of(entry).into_iter().all(|port| {
        by.iter()
            .any(|wide| wide.covers_hosts_of(entry) && ports_of(wide).contains(&port))
    })
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied => f.write_str("none"),
            Self::Allowed(allowance) => match &allowance.hosts {
                Hosts::Any => f.write_str("full"),
                Hosts::Listed(listed) => {
                    let entries: Vec<String> = listed.iter().map(ToString::to_string).collect();
                    write!(f, "allow={}", entries.join(","))
                }
            },
        }
    }
}

impl FromStr for Network {
    type Err = Problems;

    fn from_str(text: &str) -> Result<Self, Problems> {
        Self::read(text).map_err(|found| match Problems::check(found) {
            Err(problems) => problems,
            Ok(()) => Problems::one(Problem::new(FIELD, text, "cannot be read")),
        })
    }
}

impl FromStr for Upstream {
    type Err = String;

    /// `http://HOST:PORT`; the scheme and a slash at the end may be left out.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || "is `http://HOST:PORT`, such as `http://proxy.example.org:3128`".to_owned();
        if text.contains('@') {
            return Err("carries a user name or password, which is not supported; name a proxy that needs none".to_owned());
        }
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or_else(bad)?;
        let port = port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(bad)?;
        let host = match Host::parse(host).map_err(|_| bad())? {
            Host::Domain(name) => name,
            Host::Ipv4(v4) => v4.to_string(),
            Host::Ipv6(v6) => v6.to_string(),
        };
        Ok(Self { host, port })
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "http://[{}]:{}", self.host, self.port),
            false => write!(f, "http://{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
