//! One sandbox that waits, and where what is left of its run goes.

use std::ffi::OsString;
use std::sync::{Arc, Weak};
use std::time::Instant;

use cofferdam_store::private_dir::PrivateDir;
use cofferdam_sys::cgroup::Bounds;
use cofferdam_sys::errand::Errand;
use cofferdam_sys::launch::Entrusted;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::Resource;

use super::{MOST_WASTE, Shared};
use crate::ahead;
use crate::error::EngineError;
use crate::interpreter::{Interpreter, Way};
use crate::pipes::Ends;
use crate::plan::{Enclosure, Plan, RESULT_VARIABLE};
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
        state.rest_until = None;
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
    /// That its program has already.
    pub(super) rlimits: Vec<(Resource, u64)>,
    pub(super) stand: Stand,
    pub(super) workspace: Option<PrivateDir>,
    /// What its program's process is a copy of.
    pub(super) interpreter: Option<Arc<Interpreter>>,
    /// The file that its workspace has already, and its contents.
    pub(super) script: Option<(String, String)>,
    /// Of an interpreter that has started and waits.
    pub(super) streams: Option<Ends>,
    /// The errand as such a copy reads it, once there is one.
    pub(super) written: Vec<u8>,
    pub(super) since: Instant,
}

/// What fits into one message to a process that does not share our memory.
const MOST_WRITTEN: usize = 96 * 1024;

impl Seat {
    /// The directory that is the sandbox's workspace; whoever takes it sees to its end.
    pub fn take_workspace(&mut self) -> Option<PrivateDir> {
        self.workspace.take()
    }

    /// Whether this file is in its workspace already.
    pub fn has_placed(&self, path: &str, content: &[u8]) -> bool {
        let script = self.script.as_ref();
        script.is_some_and(|(placed, text)| placed == path && text.as_bytes() == content)
    }

    pub(crate) fn bin(&self) -> Bin {
        Bin(Weak::clone(&self.pool))
    }

    /// The streams of its program, where that has started already.
    pub(crate) fn take_streams(&mut self) -> Option<Ends> {
        self.streams.take()
    }

    /// How its program starts, where that is not as usual.
    pub(crate) fn start(&self) -> Option<String> {
        let interpreter = self.interpreter.as_ref()?;
        let name = &interpreter.name;
        Some(match interpreter.way {
            Way::Copy => format!("copy of a waiting {name}"),
            Way::Ahead => format!("{name} that was waiting"),
        })
    }

    /// It, made ready for this run, if it can be used for it.
    pub(crate) fn fitted(mut self, plan: &Plan) -> Option<Self> {
        let is_built = matches!(&plan.enclosure, Enclosure::Walls(walls) if *walls == self.walls);
        if let Some(interpreter) = &self.interpreter {
            if !interpreter.suits(&plan.terms.request) {
                return None;
            }
            if interpreter.way == Way::Copy {
                self.written = plan.errand.written();
            }
        }
        let is_ready = is_built
            && self.written.len() <= MOST_WRITTEN
            && self.is_alive()
            && self.set(&plan.bounds).is_ok()
            && self.is_told(plan);
        is_ready.then_some(self)
    }

    /// What has started has its resource limits, expects to answer apart from what it prints, and has used up some of what is counted: the count begins anew when it knows what to do.
    fn is_told(&self, plan: &Plan) -> bool {
        let Some(ends) = &self.streams else {
            return true;
        };
        let answers = |(name, _): &(OsString, OsString)| *name == *RESULT_VARIABLE;
        let group = self.stand.group.as_ref();
        plan.errand.rlimits == self.rlimits
            && plan.terms.request.env.iter().any(answers)
            && ahead::tell(&self.stand, ends, &plan.errand, plan.terms.variants).is_ok()
            && group.is_some_and(|group| group.begin_anew().is_ok())
    }

    fn set(&self, bounds: &Bounds) -> Result<(), EngineError> {
        let held = |bounds: &Bounds| {
            (
                bounds.memory_bytes.is_some(),
                bounds.processes.is_some(),
                bounds.cpu_milli,
                bounds.io,
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

    pub(crate) fn take(mut self, errand: Errand) -> Result<Stand, EngineError> {
        let way = self.interpreter.as_ref().map(|interpreter| interpreter.way);
        let entrusted = match way {
            None => self.stand.sandbox.entrust(errand),
            Some(Way::Copy) => self.stand.sandbox.entrust_guest(self.written),
            // Has one already.
            Some(Way::Ahead) => Ok(()),
        };
        match entrusted {
            Ok(()) => Ok(self.stand),
            Err(Entrusted) => Err(EngineError::system("use a sandbox once")(Errno::ALREADY)),
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        let sandbox = &self.stand.sandbox;
        let fds = std::iter::once(sandbox.pidfd()).chain(sandbox.guest_pidfd());
        let mut fds: Vec<PollFd<'_>> = fds
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        rustix::event::poll(&mut fds, Some(&Timespec::default())) == Ok(0)
    }
}
