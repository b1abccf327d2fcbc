//! The flags about the network: what a run may reach, and by which way.

use clap::{Args, ValueEnum};
use cofferdam_contract::address::Nearby;
use cofferdam_contract::network::{Network, Upstream};

/// What may be reached.
#[derive(Debug, Clone, PartialEq, Args, Default)]
pub(crate) struct NetworkArgs {
    /// What may be reached: `none` (default), `allow=HOST[:PORT],…` with names, `*.domain`, addresses or networks, or `full` for everything that is public; docs/egress.md tells how.
    #[arg(long, value_name = "WHAT", help_heading = "Network", value_parser = network)]
    pub(crate) net: Option<Network>,
    /// With --net: whether addresses that are not public may be reached [default: refuse].
    #[arg(
        long,
        value_name = "WHICH",
        help_heading = "Network",
        requires = "net",
        value_enum
    )]
    pub(crate) net_private: Option<NearbyArg>,
    /// With --net: connect through this HTTP proxy: `http://HOST:PORT`.
    #[arg(long, value_name = "URL", help_heading = "Network", requires = "net")]
    pub(crate) net_proxy: Option<Upstream>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NearbyArg {
    /// Public addresses only.
    Refuse,
    /// Also private networks, but nothing of this machine.
    Allow,
    /// Also this machine itself.
    Loopback,
}

impl NetworkArgs {
    /// What was said, as a request takes it.
    pub(crate) fn network(&self) -> Network {
        let network = self.net.clone().unwrap_or(Network::Denied);
        let nearby = self.net_private.map_or(Nearby::default(), Nearby::from);
        network.by(nearby, self.net_proxy.clone())
    }
}

impl From<NearbyArg> for Nearby {
    fn from(said: NearbyArg) -> Self {
        Self {
            private: said != NearbyArg::Refuse,
            loopback: said == NearbyArg::Loopback,
        }
    }
}

fn network(text: &str) -> Result<Network, String> {
    text.parse()
        .map_err(|problems: cofferdam_contract::problem::Problems| problems.to_string())
}
