//! What everybody here works with: what is allowed, which names were given out, and the ledger. All of one run, and in one thread.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use cofferdam_contract::address::plain;
use cofferdam_contract::network::{Allowance, Hosts};
use tokio::sync::Semaphore;
use url::Host;

use crate::bounds;
use crate::ledger::{Ledger, Peer};
use crate::names::Names;
use crate::resolver::Resolver;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) allowance: Allowance,
    pub(crate) names: RefCell<Names>,
    pub(crate) ledger: Rc<RefCell<Ledger>>,
    pub(crate) resolver: Resolver,
    pub(crate) seats: Arc<Semaphore>,
    pub(crate) seats_of_process: Arc<Semaphore>,
}

/// Whom a connection is for: a name where there is one, since that is what was allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Name(String),
    Address(IpAddr),
}

pub(crate) const NOT_LISTED: &str = "it is not on the list of what is allowed";

impl World {
    pub(crate) fn new(allowance: Allowance, resolver: Resolver) -> Self {
        Self {
            allowance,
            names: RefCell::default(),
            ledger: Rc::new(RefCell::new(Ledger::new())),
            resolver,
            seats: Arc::new(Semaphore::new(bounds::of_run())),
            seats_of_process: bounds::of_process(),
        }
    }

    /// What an address that a program connects to means: the name that it was given out for, or itself.
    pub(crate) fn target_of(&self, address: IpAddr) -> Target {
        let address = plain(address);
        match self.names.borrow().name_of(address) {
            Some(name) => Target::Name(name.to_owned()),
            None => Target::Address(address),
        }
    }

    /// The same for what a program told a proxy.
    pub(crate) fn target_named(&self, host: Host) -> Target {
        match host {
            Host::Domain(name) => Target::Name(name),
            Host::Ipv4(v4) => self.target_of(v4.into()),
            Host::Ipv6(v6) => self.target_of(v6.into()),
        }
    }

    /// Whether it may be reached at all, before anything is looked up.
    pub(crate) fn admit(&self, target: &Target, port: u16) -> Result<(), &'static str> {
        let host = match target {
            Target::Name(name) => Host::Domain(name.as_str()),
            Target::Address(IpAddr::V4(v4)) => Host::Ipv4(*v4),
            Target::Address(IpAddr::V6(v6)) => Host::Ipv6(*v6),
        };
        if !self.allowance.permits(&host, port) {
            return Err(NOT_LISTED);
        }
        match target {
            Target::Name(_) => Ok(()),
            Target::Address(address) => self.allowance.check_address(*address),
        }
    }

    /// The name that the connection itself must not contradict. Where everything is allowed there is nothing to contradict, and an address that is listed needs no name.
    pub(crate) fn expected<'a>(&self, target: &'a Target) -> Option<&'a str> {
        match (target, &self.allowance.hosts) {
            (Target::Name(name), Hosts::Listed(_)) => Some(name),
            (Target::Name(_), Hosts::Any) | (Target::Address(_), _) => None,
        }
    }
}

impl Target {
    pub(crate) fn peer(&self, port: u16) -> Peer {
        let host = match self {
            Self::Name(name) => name.clone(),
            Self::Address(IpAddr::V6(v6)) => format!("[{v6}]"),
            Self::Address(address) => address.to_string(),
        };
        Peer { host, port }
    }
}
