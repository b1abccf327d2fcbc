//! What can be made of a sandbox before anything is known of its run: the network namespace, while whoever wants the run still reads arguments and configuration.

use cofferdam_sys::made_network::{MadeNetwork, Making};

/// A network on its way.
#[derive(Debug)]
pub struct Headstart(Making);

impl Headstart {
    /// `None` where a sandbox must make its own: only root may make one that programs have no right in.
    pub fn begin() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        Making::begin().ok().map(Self)
    }

    /// Waits for it. Where it could not be made, the sandbox tries for itself, and tells what is in the way.
    pub(crate) fn network(self) -> Option<MadeNetwork> {
        self.0.finish().ok()
    }
}
