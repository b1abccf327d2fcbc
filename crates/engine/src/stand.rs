//! A sandbox with what belongs to it, before it is supervised: built now for one errand, or parked until there is one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_sys::blueprint::{Blueprint, NetworkNamespace};
use cofferdam_sys::cgroup::{Bounds, Entry, RunGroup};
use cofferdam_sys::errand::Errand;
use cofferdam_sys::guest::Entrances;
use cofferdam_sys::janitor::{Family, Janitor, Remover, Ward};
use cofferdam_sys::launch::{self, Sandbox};
use cofferdam_sys::made_network::MadeNetwork;
use cofferdam_sys::protocol::Event;
use rustix::io::Errno;

use crate::error::EngineError;
use crate::headstart::Headstart;
use crate::host::Host;
use crate::plan::Enclosure;
use crate::zygote::Zygote;

/// In the order in which they must go: the processes, the group, whoever removes it.
#[derive(Debug)]
pub(crate) struct Stand {
    pub(crate) sandbox: Sandbox,
    pub(crate) group: Option<RunGroup>,
    pub(crate) remover: Option<Remover>,
    /// What the sandbox has said while nobody supervised it.
    pub(crate) told: Vec<Event>,
}

/// What a sandbox that waits is built with, beside its blueprint.
pub(crate) struct Site<'a> {
    pub(crate) bounds: Bounds,
    /// Of its group.
    pub(crate) name: &'a str,
    /// Which its group belongs to, where there are groups.
    pub(crate) family: Option<&'a Arc<Family>>,
    /// The one that its blueprint names.
    pub(crate) network: Option<&'a MadeNetwork>,
    pub(crate) host: &'a Host,
}

/// What is left of a run that nothing needs any more. Dropping it takes time.
#[derive(Debug, Default)]
pub(crate) struct Waste {
    /// Perhaps not gone yet; with its mounts.
    _sandbox: Option<Sandbox>,
    _group: Option<RunGroup>,
    /// Of the groups; dropping it waits for that.
    _remover: Option<Remover>,
}

impl Waste {
    pub(crate) fn new(sandbox: Sandbox, group: Option<RunGroup>, remover: Option<Remover>) -> Self {
        Self {
            _sandbox: Some(sandbox),
            _group: group,
            _remover: remover,
        }
    }
}

/// On so few CPUs the sandbox and the network that is made beside it keep all of them busy: working on the group meanwhile would only be in the way.
const BUSY_CPUS: usize = 2;
const LONG_ENOUGH: Duration = Duration::from_millis(20);
/// How long a sandbox may take to be built for nobody in particular.
const PATIENCE: Duration = Duration::from_secs(5);

impl Stand {
    /// Clones the sandbox first: while it builds itself, its control group is made here, and the program waits in the socket.
    pub(crate) fn build(
        (enclosure, errand): (Enclosure, Errand),
        bounds: &Bounds,
        name: &str,
        host: &Host,
        headstart: Option<Headstart>,
    ) -> Result<Self, EngineError> {
        let has_walls = matches!(enclosure, Enclosure::Walls(_));
        let (mut blueprint, headstart) = match enclosure {
            Enclosure::Walls(walls) => {
                let headstart = headstart.filter(|_| walls.can_be_given_a_network(host));
                (walls.draw(host)?, headstart)
            }
            Enclosure::None(blueprint) => (blueprint, None),
        };
        let network = headstart.and_then(Headstart::network);
        if let Some(network) = &network {
            blueprint.network = NetworkNamespace::Given(network.identity());
        }
        let make_group = || {
            RunGroup::create(&host.cgroups, name, bounds, Entry::Born).map_err(unavailable_group)
        };
        let start_janitor = || {
            let started = Janitor::start(&host.cgroups, name).map_err(unwatched());
            started.map(|janitor| janitor.map(Remover::Janitor))
        };
        let (sandbox, remover, group) = if host.cgroups.is_cloned_into() {
            let remover = start_janitor()?;
            let group = make_group()?;
            let into = group.as_ref().and_then(RunGroup::clone_into);
            let sandbox = launch::launch(blueprint, errand, into, network.as_ref());
            (sandbox.map_err(unavailable)?, remover, group)
        } else {
            let sandbox = launch::launch(blueprint, errand, None, network.as_ref());
            let sandbox = sandbox.map_err(unavailable)?;
            let makes_a_network = has_walls && network.is_none();
            if makes_a_network && host.cpus.len() <= BUSY_CPUS {
                sandbox.await_word(LONG_ENOUGH);
            }
            (sandbox, start_janitor()?, make_group()?)
        };
        Ok(Self {
            sandbox,
            group,
            remover,
            told: Vec::new(),
        })
    }

    /// Builds one that waits for its errand, and returns when it stands.
    pub(crate) fn park(blueprint: Blueprint, site: &Site<'_>) -> Result<Self, EngineError> {
        let sandbox = launch::park(blueprint, site.network).map_err(unavailable)?;
        let mut stand = Self::around(sandbox, site)?;
        stand.settle_in()?;
        Ok(stand)
    }

    /// Builds one that a copy of an interpreter can come into, and returns when the way in is open.
    pub(crate) fn park_open(
        blueprint: Blueprint,
        site: &Site<'_>,
    ) -> Result<(Self, Entrances), EngineError> {
        let sandbox = launch::park_for_a_guest(blueprint, site.network).map_err(unavailable)?;
        let mut stand = Self::around(sandbox, site)?;
        let entrances = stand.hear_entrances()?;
        Ok((stand, entrances))
    }

    /// Has a copy of an interpreter go in.
    pub(crate) fn invite(
        &mut self,
        zygote: &Zygote,
        entrances: &Entrances,
        site: &Site<'_>,
    ) -> Result<(), EngineError> {
        let failed = EngineError::system("send an interpreter into a sandbox");
        let door = self.sandbox.take_door();
        let door = door.ok_or_else(|| failed(Errno::BADF))?;
        self.sandbox.expect_from(zygote.group());
        let blueprint = self.sandbox.blueprint();
        zygote
            .send_in(&door, entrances, site.network, blueprint)
            .map_err(failed)
    }

    /// Returns when it has come in and waits.
    pub(crate) fn welcome(&mut self) -> Result<(), EngineError> {
        self.settle_in()
    }

    /// Returns when the program's process can only wait: the listener for refused calls is the last that it sends by itself. By then it is where it would be slow to go later.
    fn settle_in(&mut self) -> Result<(), EngineError> {
        self.hear_until(|event| matches!(event, Event::Listener { .. }))?;
        if let Some(entrance) = self.group.as_ref().and_then(RunGroup::joins_ahead) {
            let failed = EngineError::system("have a sandbox wait in its control group");
            self.sandbox.join(&[entrance]).map_err(failed)?;
            self.hear_until(|event| matches!(event, Event::Joined))?;
            self.told.pop();
        }
        self.sandbox.hold_mounts_best_effort();
        Ok(())
    }

    fn around(sandbox: Sandbox, site: &Site<'_>) -> Result<Self, EngineError> {
        let (name, groups) = (site.name, &site.host.cgroups);
        let ward = site
            .family
            .map(|family| Ward::new(family, name))
            .transpose();
        let ward = ward.map_err(unwatched())?;
        let group = RunGroup::create(groups, name, &site.bounds, Entry::Joined)
            .map_err(unavailable_group)?;
        // The first look at a counter opens it, which need not be done while somebody waits.
        if let Some(group) = &group {
            group.counters();
            group.is_deserted();
        }
        Ok(Self {
            sandbox,
            group,
            remover: ward.map(Remover::Ward),
            told: Vec::new(),
        })
    }

    /// Hears where a process from elsewhere can come in.
    fn hear_entrances(&mut self) -> Result<Entrances, EngineError> {
        self.hear_until(|event| matches!(event, Event::Namespaces { .. }))?;
        match self.told.pop() {
            Some(Event::Namespaces { entrances }) => Ok(entrances),
            _ => Err(EngineError::system("find the way into a sandbox")(
                Errno::BADMSG,
            )),
        }
    }

    fn hear_until(&mut self, is_last: impl Fn(&Event) -> bool) -> Result<(), EngineError> {
        let failed = EngineError::system("build a sandbox ahead of time");
        let until = Instant::now() + PATIENCE;
        while !self.told.last().is_some_and(&is_last) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(failed(Errno::TIMEDOUT));
            }
            match self.sandbox.receive() {
                Ok(Some(Event::SetupFailed { errno, .. } | Event::ExecFailed { errno, .. })) => {
                    return Err(failed(Errno::from_raw_os_error(errno)));
                }
                Ok(Some(Event::Guest { pidfd })) => self.sandbox.admit(pidfd),
                Ok(Some(event)) => self.told.push(event),
                Ok(None) => return Err(failed(Errno::CHILD)),
                Err(Errno::AGAIN | Errno::INTR) if self.sandbox.guest_ended().is_some() => {
                    return Err(failed(Errno::CHILD));
                }
                Err(Errno::AGAIN | Errno::INTR) => self.sandbox.await_word(left),
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(())
    }
}

/// Nobody would remove the group if this process were killed.
pub(crate) fn unwatched() -> impl Fn(Errno) -> EngineError {
    EngineError::system("start the process that clears up")
}

fn unavailable(error: launch::LaunchError) -> EngineError {
    EngineError::Unavailable {
        backend: "native",
        why: error.to_string(),
        fix: "run `cofferdam doctor`, which names the setting that forbids it".to_owned(),
    }
}

pub(crate) fn unavailable_group(error: cofferdam_sys::cgroup::CgroupError) -> EngineError {
    EngineError::Unavailable {
        backend: "native",
        why: error.to_string(),
        fix: format!(
            "set {}=1 to run without control groups",
            crate::host::NO_CGROUPS_VARIABLE
        ),
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_contract::request::{BackendName, Grant, Request};
    use cofferdam_sys::descendants;

    use super::*;
    use crate::plan::{Channel, Evidence, plan};

    #[test]
    fn one_without_walls_that_never_got_to_its_program_leaves_nobody() {
        let host = Host::detect();
        for _ in 0..20 {
            let request = Request {
                backend: BackendName::Host,
                ..Request::command(["true"])
            };
            let grant = Grant::new(request).unwrap();
            let plan = plan(grant, &host, Evidence::Full, Channel::None).unwrap();
            let Enclosure::None(blueprint) = plan.enclosure else {
                panic!("{plan:?}");
            };
            let sandbox = launch::launch(blueprint, plan.errand, None, None).unwrap();
            sandbox.await_word(Duration::from_secs(10));
            drop(sandbox);
        }
        assert_eq!(descendants::children(), Vec::<u32>::new());
    }
}
