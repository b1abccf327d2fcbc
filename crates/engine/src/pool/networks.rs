//! Network namespaces of a pool's sandboxes: lent to one after the other, for as long as nobody has used one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cofferdam_sys::spare_network::SpareNetwork;

use crate::host::{Host, Privilege};

/// Those that nobody has at the moment.
#[derive(Debug)]
pub(super) struct Networks(Arc<Shelf>);

#[derive(Debug)]
struct Shelf {
    most: usize,
    free: Mutex<Vec<Arc<SpareNetwork>>>,
}

/// One that a sandbox has. It comes back when that has gone, processes and all, unless something was done with it.
#[derive(Debug)]
pub(super) struct Lent {
    network: Arc<SpareNetwork>,
    shelf: Weak<Shelf>,
}

impl Networks {
    pub(super) fn new(most: usize) -> Self {
        let free = Mutex::default();
        Self(Arc::new(Shelf { most, free }))
    }

    /// `None` where a sandbox must make its own: only root may make one ahead that programs have no right in.
    pub(super) fn lend(&self, host: &Host) -> Option<Lent> {
        if host.privilege != Privilege::Root {
            return None;
        }
        let free = self.0.free().pop();
        let network = match free {
            Some(network) => network,
            None => Arc::new(SpareNetwork::make().ok()?),
        };
        Some(Lent {
            network,
            shelf: Arc::downgrade(&self.0),
        })
    }

    /// Those that nobody has, for whoever wants none any more.
    pub(super) fn clear_out(&self) -> Vec<Arc<SpareNetwork>> {
        std::mem::take(&mut *self.0.free())
    }
}

impl Shelf {
    fn free(&self) -> MutexGuard<'_, Vec<Arc<SpareNetwork>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lent {
    pub(super) fn network(&self) -> Arc<SpareNetwork> {
        Arc::clone(&self.network)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(shelf) = self.shelf.upgrade() else {
            return;
        };
        if !self.network.is_untouched() {
            return;
        }
        let mut free = shelf.free();
        if free.len() < shelf.most {
            free.push(Arc::clone(&self.network));
        }
    }
}
