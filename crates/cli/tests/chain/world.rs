//! A town with a desk, at which the command line is used.

use std::ops::{Deref, DerefMut};

use cofferdam_chain::Address;
use cofferdam_testkit::Desk;
use cofferdam_testkit::anvil::{Anvil, KEYS};
use cofferdam_testkit::desk::{code, stderr};
use cofferdam_testkit::shape;
use serde_json::Value;

use crate::town;
pub(crate) use crate::town::{key, until};

pub(crate) struct Town {
    town: town::Town,
    pub(crate) desk: Desk,
}

impl Town {
    pub(crate) fn new(desk: Desk) -> Option<Self> {
        let town = town::Town::new(desk.path("data"))?;
        Some(Self { town, desk })
    }

    /// With a contract that is there already.
    pub(crate) fn around(desk: Desk, anvil: Anvil, contract: Address) -> Self {
        let town = town::Town {
            data: desk.path("data"),
            anvil,
            contract,
            worker: key(2).address(),
        };
        Self { town, desk }
    }

    pub(crate) fn chain(&self, key: usize, args: &[&str]) -> std::process::Output {
        let mut command = self.desk.command();
        command.env("COFFERDAM_CHAIN_KEY", KEYS[key]);
        command.args(["chain", "--rpc", &self.anvil.url()]);
        command.args(["--contract", &self.contract.to_string(), "--json"]);
        command.args(args).output().unwrap()
    }

    pub(crate) fn told(&self, key: usize, args: &[&str]) -> Value {
        let done = self.chain(key, args);
        assert_eq!(code(&done), 0, "{args:?}: {}", stderr(&done));
        shape::read(&[&["chain"], args].concat(), &done.stdout).unwrap()
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
