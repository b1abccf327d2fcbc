//! A town of a test's own, and whoever settles in it.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;

use cofferdam_chain::{Policy, Settler, Tick};
use cofferdam_store::settlements::Settlements;
use jiff::Timestamp;

use crate::town;
pub(crate) use crate::town::{key, until};

pub(crate) struct Town {
    town: town::Town,
    dir: tempfile::TempDir,
}

impl Town {
    pub(crate) fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        Some(Self {
            town: town::Town::new(dir.path().join("data"))?,
            dir,
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn settler(&self, outbox: &Arc<Settlements>, policy: Policy) -> Settler {
        Settler::new(self.ledger(), key(1), Arc::clone(outbox), policy)
    }
}

impl Deref for Town {
    type Target = town::Town;

    fn deref(&self) -> &town::Town {
        &self.town
    }
}

impl DerefMut for Town {
    fn deref_mut(&mut self) -> &mut town::Town {
        &mut self.town
    }
}

pub(crate) fn policy(confirmations: u64) -> Policy {
    Policy {
        confirmations,
        ..Policy::default()
    }
}

pub(crate) fn tick(settler: &Settler) -> Tick {
    settler.tick(Timestamp::now()).unwrap()
}
