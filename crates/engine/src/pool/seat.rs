//! One sandbox that waits, and where what is left of its run goes.

use std::sync::Weak;
use std::time::Instant;

use cofferdam_store::private_dir::PrivateDir;
use cofferdam_sys::cgroup::Bounds;
use cofferdam_sys::errand::Errand;
use cofferdam_sys::launch::Entrusted;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::{MOST_WASTE, Shared};
use crate::error::EngineError;
use crate::plan::Enclosure;
use crate::stand::{Stand, Waste, unavailable_group};
use crate::walls::Walls;

/// Where a run leaves what takes time to go, once its result is known.
#[derive(Debug)]
pub(crate) struct Bin(Weak<Shared>);

impl Bin {
    /// Takes the time itself when there is no pool any more.
    pub(crate) fn leave(&self, waste: Waste) {
        let Some(shared) = self.0.upgrade() else {
            return drop(waste);
        };
        let mut state = shared.state();
        if state.stopping || state.waste.len() >= MOST_WASTE {
            drop(state);
            return drop(waste);
        }
        state.waste.push(waste);
        drop(state);
        shared.wake.notify_one();
    }
}

/// A sandbox that waits for its one run.
#[derive(Debug)]
pub struct Seat {
    pub(super) pool: Weak<Shared>,
    pub(super) walls: Walls,
    pub(super) bounds: Bounds,
    pub(super) stand: Stand,
    pub(super) workspace: Option<PrivateDir>,
    pub(super) since: Instant,
}

impl Seat {
    /// The directory that is the sandbox's workspace; whoever takes it sees to its end.
    pub fn take_workspace(&mut self) -> Option<PrivateDir> {
        self.workspace.take()
    }

    pub(crate) fn bin(&self) -> Bin {
        Bin(Weak::clone(&self.pool))
    }

    /// Whether it can be used for a run with these walls and bounds; the bounds are set then.
    pub(crate) fn fits(&self, enclosure: &Enclosure, bounds: &Bounds) -> bool {
        let is_built = matches!(enclosure, Enclosure::Walls(walls) if *walls == self.walls);
        is_built && self.is_alive() && self.set(bounds).is_ok()
    }

    fn set(&self, bounds: &Bounds) -> Result<(), EngineError> {
        let held = |bounds: &Bounds| {
            (
                bounds.memory_bytes.is_some(),
                bounds.processes.is_some(),
                bounds.cpu_milli,
            )
        };
        if held(bounds) != held(&self.bounds) {
            return Err(EngineError::system("bound a sandbox that stands")(
                Errno::INVAL,
            ));
        }
        let group = self.stand.group.as_ref();
        match group.filter(|_| self.bounds != *bounds) {
            Some(group) => group.bound(bounds).map_err(unavailable_group),
            None => Ok(()),
        }
    }

    pub(crate) fn take(self, errand: Errand) -> Result<Stand, EngineError> {
        match self.stand.sandbox.entrust(errand) {
            Ok(()) => Ok(self.stand),
            Err(Entrusted) => Err(EngineError::system("use a sandbox once")(Errno::ALREADY)),
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(
            self.stand.sandbox.pidfd(),
            PollFlags::IN,
        )];
        rustix::event::poll(&mut fds, Some(&Timespec::default())) == Ok(0)
    }
}
