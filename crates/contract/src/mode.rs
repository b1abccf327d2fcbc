//! Modes: what is allowed of everything that could be asked for, as a table. A mode is above the configuration and above flags: what breaks one of its rules is refused by the rule's
//! name before anything runs. Reads nothing and looks at nothing.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::network::{Hosts, Network};
use crate::request::BackendName;

/// Where work may run and whom it may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Work stays on this machine and has no network.
    LocalOnly,
    /// Work runs in containers and nowhere else.
    Docker,
    /// Work goes through the sandboxes that a daemon of this machine keeps ready.
    Burst,
    /// Nothing leaves this machine, neither from work nor from Cofferdam itself.
    AirGapped,
}

/// One rule of a mode. The names are stable; scripts match on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Which mode is in force, where the machine's owner has said so.
    Mode,
    /// What isolates a run.
    Backend,
    /// Whom a run can reach.
    Network,
    /// Whether an image may be fetched.
    Pull,
    /// Which daemons get work: of containers, or of our own.
    Daemon,
    /// Who is told about runs.
    Callback,
    /// Where traces go.
    Traces,
}

/// How much of a network there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetworkReach {
    /// Loopback and nothing else.
    None,
    /// Names and ports that were listed.
    Listed,
    Full,
}

/// How far something may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    Nowhere,
    ThisMachine,
    Anywhere,
}

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// The first is what runs where nothing is asked for.
    pub backends: &'static [BackendName],
    pub network: NetworkReach,
    /// From where images may be fetched.
    pub pull: Reach,
    pub daemon: Reach,
    pub callback: Reach,
    pub traces: Reach,
}

/// Something that a mode may forbid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed<'a> {
    Run(BackendName),
    Network(NetworkReach),
    /// An image that is not here would be fetched.
    Pull,
    /// Work goes to the daemon at this address.
    Daemon(&'a str),
    /// Somebody at this address is told about runs.
    Callback(&'a str),
    Traces(&'a str),
}

/// What is refused, by which rule, and what to do instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("mode {mode}, rule `{rule}`: {why}; {fix}")]
pub struct Violation {
    pub mode: Mode,
    pub rule: Rule,
    pub why: String,
    pub fix: String,
}

/// A name that is no mode's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a mode; write local-only, docker, burst or air-gapped")]
pub struct UnknownMode {
    pub text: String,
}

impl Mode {
    pub const ALL: [Self; 4] = [Self::LocalOnly, Self::Docker, Self::Burst, Self::AirGapped];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LocalOnly => "local-only",
            Self::Docker => "docker",
            Self::Burst => "burst",
            Self::AirGapped => "air-gapped",
        }
    }

    /// The table. No mode allows the `host` backend: it has the caller's network and no walls.
    pub const fn allowed(self) -> Allowed {
        use BackendName::{Bubblewrap, Docker, Gvisor, Native, Wasm};
        match self {
            Self::LocalOnly => Allowed {
                backends: &[Native, Bubblewrap, Gvisor, Wasm],
                network: NetworkReach::None,
                pull: Reach::Nowhere,
                daemon: Reach::ThisMachine,
                callback: Reach::Anywhere,
                traces: Reach::Anywhere,
            },
            Self::Docker => Allowed {
                backends: &[Docker],
                network: NetworkReach::Full,
                pull: Reach::Anywhere,
                daemon: Reach::Anywhere,
                callback: Reach::Anywhere,
                traces: Reach::Anywhere,
            },
            Self::Burst => Allowed {
                backends: &[Native, Wasm],
                network: NetworkReach::Full,
                pull: Reach::Nowhere,
                daemon: Reach::ThisMachine,
                callback: Reach::Anywhere,
                traces: Reach::Anywhere,
            },
            Self::AirGapped => Allowed {
                backends: &[Native, Bubblewrap, Gvisor, Wasm, Docker],
                network: NetworkReach::None,
                pull: Reach::Nowhere,
                daemon: Reach::ThisMachine,
                callback: Reach::ThisMachine,
                traces: Reach::ThisMachine,
            },
        }
    }

    /// What isolates a run where nobody has said.
    pub fn default_backend(self) -> BackendName {
        let first = self.allowed().backends.first();
        first.copied().unwrap_or(BackendName::Native)
    }

    /// Whether this is allowed here; if not, by which rule.
    pub fn check(self, deed: Deed<'_>) -> Result<(), Violation> {
        let allowed = self.allowed();
        let (rule, why, fix) = match deed {
            Deed::Run(backend) if allowed.backends.contains(&backend) => return Ok(()),
            Deed::Run(backend) => {
                let names: Vec<&str> = allowed.backends.iter().map(|name| name.as_str()).collect();
                let why = format!("the {} backend is not allowed", backend.as_str());
                let fix = format!("use {}, or another mode", names.join(", "));
                (Rule::Backend, why, fix)
            }
            Deed::Network(reach) if reach <= allowed.network => return Ok(()),
            Deed::Network(reach) => {
                let (asked, most) = (reach.as_str(), allowed.network.as_str());
                let why = format!("a run may have the network `{most}`, and `{asked}` is asked for");
                let fix = format!("ask for `{most}`, or use another mode");
                (Rule::Network, why, fix)
            }
            Deed::Pull if allowed.pull == Reach::Anywhere => return Ok(()),
            Deed::Pull => (
                Rule::Pull,
                "images are not fetched".to_owned(),
                "use one that is here already (`--pull never`), or bring it along with `docker load`".to_owned(),
            ),
            Deed::Daemon(address) if goes(address, allowed.daemon) => return Ok(()),
            Deed::Daemon(address) => beyond(Rule::Daemon, "work goes to", address, allowed.daemon),
            Deed::Callback(address) if goes(address, allowed.callback) => return Ok(()),
            Deed::Callback(address) => {
                beyond(Rule::Callback, "results are told to", address, allowed.callback)
            }
            Deed::Traces(address) if goes(address, allowed.traces) => return Ok(()),
            Deed::Traces(address) => beyond(Rule::Traces, "traces go to", address, allowed.traces),
        };
        Err(Violation {
            mode: self,
            rule,
            why,
            fix,
        })
    }

    /// Everything that is wrong with these, in their order.
    pub fn violations<'a>(self, deeds: impl IntoIterator<Item = Deed<'a>>) -> Vec<Violation> {
        let found = deeds.into_iter().filter_map(|deed| self.check(deed).err());
        found.collect()
    }
}

fn goes(address: &str, reach: Reach) -> bool {
    match reach {
        Reach::Nowhere => false,
        Reach::ThisMachine => is_this_machine(address),
        Reach::Anywhere => true,
    }
}

fn beyond(rule: Rule, what: &str, address: &str, reach: Reach) -> (Rule, String, String) {
    let shown = crate::problem::shorten(without_user(address));
    let (place, fix) = match reach {
        Reach::Nowhere => ("nobody", "remove the address, or use another mode"),
        Reach::ThisMachine | Reach::Anywhere => (
            "this machine alone",
            "write an address of this machine such as 127.0.0.1, or use another mode",
        ),
    };
    (
        rule,
        format!("{what} {place}, and `{shown}` is elsewhere"),
        fix.to_owned(),
    )
}

/// A password in an address is not repeated.
fn without_user(address: &str) -> &str {
    address.rsplit_once('@').map_or(address, |(_, rest)| rest)
}

/// Whether an address is one of this machine: a socket in its file system, or a loopback address by number or as `localhost`. Anything that could be read in two ways is not.
pub fn is_this_machine(address: &str) -> bool {
    if let Some(path) = address.strip_prefix("unix://") {
        return path.starts_with('/');
    }
    let Some((_, rest)) = address.split_once("://") else {
        return false;
    };
    // What follows the host, and a backslash, which some readers take for a slash.
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let place = authority.rsplit('@').next().unwrap_or_default();
    let host = match place.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => place.split(':').next().unwrap_or_default(),
    };
    let plain = host.strip_suffix('.').unwrap_or(host);
    if plain.eq_ignore_ascii_case("localhost") {
        return true;
    }
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(v4)) => v4.is_loopback(),
        Ok(IpAddr::V6(v6)) => {
            v6.is_loopback() || v6.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
        }
        Err(_) => false,
    }
}

impl Rule {
    pub const ALL: [Self; 7] = [
        Self::Mode,
        Self::Backend,
        Self::Network,
        Self::Pull,
        Self::Daemon,
        Self::Callback,
        Self::Traces,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mode => "mode",
            Self::Backend => "backend",
            Self::Network => "network",
            Self::Pull => "pull",
            Self::Daemon => "daemon",
            Self::Callback => "callback",
            Self::Traces => "traces",
        }
    }
}

impl NetworkReach {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Listed => "allow",
            Self::Full => "full",
        }
    }
}

impl From<&Network> for NetworkReach {
    fn from(network: &Network) -> Self {
        match network {
            Network::Denied => Self::None,
            Network::Allowed(allowance) => match allowance.hosts {
                Hosts::Listed(_) => Self::Listed,
                Hosts::Any => Self::Full,
            },
        }
    }
}

impl Reach {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nowhere => "nowhere",
            Self::ThisMachine => "this machine",
            Self::Anywhere => "anywhere",
        }
    }
}

impl Allowed {
    /// What each rule allows, in words: the whole policy for reading.
    pub fn rows(&self) -> [(Rule, String); 6] {
        let names: Vec<&str> = self.backends.iter().map(|name| name.as_str()).collect();
        let network = match self.network {
            NetworkReach::None => "none".to_owned(),
            NetworkReach::Listed => "none, allow".to_owned(),
            NetworkReach::Full => "none, allow, full".to_owned(),
        };
        let pull = match self.pull {
            Reach::Nowhere | Reach::ThisMachine => "never",
            Reach::Anywhere => "never, missing",
        };
        [
            (Rule::Backend, names.join(", ")),
            (Rule::Network, network),
            (Rule::Pull, pull.to_owned()),
            (Rule::Daemon, self.daemon.as_str().to_owned()),
            (Rule::Callback, self.callback.as_str().to_owned()),
            (Rule::Traces, self.traces.as_str().to_owned()),
        ]
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        let unknown = || UnknownMode {
            text: crate::problem::shorten(text),
        };
        let found = Self::ALL.into_iter().find(|mode| mode.as_str() == text);
        found.ok_or_else(unknown)
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_modes_read_back_and_nothing_else_does() {
        for mode in Mode::ALL {
            assert_eq!(mode.as_str().parse(), Ok(mode));
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.as_str());
        }
        for text in ["", "Docker", "local_only", "airgapped", "none"] {
            assert!(text.parse::<Mode>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_mode_is_exactly_what_its_row_says() {
        use BackendName::{Bubblewrap, Docker, Gvisor, Host, Native, Wasm};
        let all = [Native, Bubblewrap, Gvisor, Host, Wasm, Docker];
        let here = "http://127.0.0.1:8080";
        let away = "https://example.org";
        let rows = [
            (
                Mode::LocalOnly,
                "native bubblewrap gvisor wasm",
                "none",
                false,
                (true, false),
                (true, true),
            ),
            (
                Mode::Docker,
                "docker",
                "none allow full",
                true,
                (true, true),
                (true, true),
            ),
            (
                Mode::Burst,
                "native wasm",
                "none allow full",
                false,
                (true, false),
                (true, true),
            ),
            (
                Mode::AirGapped,
                "native bubblewrap gvisor wasm docker",
                "none",
                false,
                (true, false),
                (true, false),
            ),
        ];
        for (mode, backends, networks, pulls, daemon, told) in rows {
            let runs: Vec<&str> = all
                .into_iter()
                .filter(|backend| mode.check(Deed::Run(*backend)).is_ok())
                .map(BackendName::as_str)
                .collect();
            let mut expected: Vec<&str> = backends.split(' ').collect();
            expected.sort_by_key(|name| all.iter().position(|known| known.as_str() == *name));
            assert_eq!(runs, expected, "{mode}");
            let reaches: Vec<&str> = [NetworkReach::None, NetworkReach::Listed, NetworkReach::Full]
                .into_iter()
                .filter(|reach| mode.check(Deed::Network(*reach)).is_ok())
                .map(NetworkReach::as_str)
                .collect();
            assert_eq!(reaches.join(" "), networks, "{mode}");
            assert_eq!(mode.check(Deed::Pull).is_ok(), pulls, "{mode}");
            let both = |deed: fn(&'static str) -> Deed<'static>| {
                (
                    mode.check(deed(here)).is_ok(),
                    mode.check(deed(away)).is_ok(),
                )
            };
            assert_eq!(both(Deed::Daemon), daemon, "{mode}");
            assert_eq!(both(Deed::Callback), told, "{mode}");
            assert_eq!(both(Deed::Traces), told, "{mode}");
            assert!(mode.check(Deed::Run(mode.default_backend())).is_ok());
        }
    }

    #[test]
    fn a_violation_names_the_mode_the_rule_and_what_to_do() {
        let violation = Mode::AirGapped
            .check(Deed::Run(BackendName::Host))
            .unwrap_err();
        assert_eq!(
            violation.to_string(),
            "mode air-gapped, rule `backend`: the host backend is not allowed; use native, bubblewrap, gvisor, wasm, docker, or another mode"
        );
        let violation = Mode::AirGapped
            .check(Deed::Callback("https://me:secret@example.org/x"))
            .unwrap_err();
        assert_eq!(violation.rule, Rule::Callback);
        assert!(!violation.to_string().contains("secret"), "{violation}");
    }

    #[test]
    fn all_violations_come_at_once() {
        let found = Mode::LocalOnly.violations([
            Deed::Run(BackendName::Docker),
            Deed::Network(NetworkReach::Listed),
            Deed::Run(BackendName::Native),
            Deed::Pull,
        ]);
        let rules: Vec<Rule> = found.iter().map(|found| found.rule).collect();
        assert_eq!(rules, [Rule::Backend, Rule::Network, Rule::Pull]);
    }

    #[test]
    fn only_what_can_be_nothing_else_is_this_machine() {
        for here in [
            "http://127.0.0.1:8080",
            "http://127.9.9.9",
            "https://localhost/x",
            "http://LOCALHOST.:1",
            "http://[::1]:8080/",
            "http://[::ffff:127.0.0.1]/",
            "tcp://127.0.0.1:2375",
            "unix:///var/run/docker.sock",
            "http://a:b@127.0.0.1/",
        ] {
            assert!(is_this_machine(here), "{here}");
        }
        for away in [
            "",
            "127.0.0.1",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0.0.0.0/",
            "http://10.0.0.1",
            "http://127.0.0.1.example.org/",
            "http://127.0.0.1:80@example.org/",
            "http://example.org/@127.0.0.1",
            "http://example.org\\@127.0.0.1",
            "http://example.org#@127.0.0.1",
            "http://localhost.example.org",
            "http:///",
            "unix://var/run/docker.sock",
            "http://127.0.0.1\t.example.org/",
        ] {
            assert!(!is_this_machine(away), "{away}");
        }
    }
}
