//! Which chain is meant: a node that somebody names, or the one of this data directory. And who signs there, and which contract.

use std::path::Path;
use std::sync::Arc;

use cofferdam_chain::{Act, Address, Embedded, Key, Ledger, Node, Terms};
use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::mode::Deed;
use cofferdam_store::DataDir;

use super::KEY_VARIABLE;
use crate::arguments::Places;
use crate::failure::Failure;
use crate::history;
use crate::keys;
use crate::policy;

#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// By JSON-RPC over HTTP.
    Node(String),
    Here {
        chain: Arc<Embedded>,
        dir: DataDir,
    },
}

/// Whether a chain may begin where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beginning {
    Wanted,
    Not,
}

/// What a contract has that nobody said anything about.
const PROTOCOL_SHARE: u16 = 5_000;
const WITHDRAWAL_DELAY_SECONDS: u64 = 7 * 24 * 3600;

/// The key of the environment. An empty variable counts as unset.
pub(super) fn key_variable() -> Option<std::ffi::OsString> {
    std::env::var_os(KEY_VARIABLE).filter(|text| !text.is_empty())
}

impl Place {
    pub(crate) fn of(
        rpc: Option<&str>,
        places: &Places,
        beginning: Beginning,
    ) -> Result<Self, Failure> {
        if let Some(url) = rpc {
            return Self::node_at(url, places);
        }
        let dir = history::place(places.data_dir.clone()).ok_or_else(keys::nowhere)?;
        let chain = match beginning {
            Beginning::Wanted => Some(Embedded::open(&dir)?),
            Beginning::Not => Embedded::existing(&dir)?,
        };
        let chain = chain.ok_or_else(|| {
            let message = format!(
                "there is no chain in `{}`; `cofferdam chain deploy` and `cofferdam fleet init --enforcement public` begin one, or name a node with --rpc",
                dir.path().display()
            );
            Failure::new(ErrorCode::InputInvalid, message)
        })?;
        Ok(Self::here(chain, dir))
    }

    /// For a process of a fleet: the node that it was told, or the chain here, if that is the fleet's.
    pub(crate) fn of_fleet(
        rpc: Option<&str>,
        places: &Places,
        chain_id: u64,
    ) -> Result<Option<Self>, Failure> {
        if let Some(url) = rpc {
            return Self::node_at(url, places).map(Some);
        }
        let Some(dir) = history::place(places.data_dir.clone()) else {
            return Ok(None);
        };
        let chain = Embedded::existing(&dir)?.filter(|chain| chain.chain_id() == chain_id);
        Ok(chain.map(|chain| Self::here(chain, dir)))
    }

    fn here(chain: Embedded, dir: DataDir) -> Self {
        Self::Here {
            chain: Arc::new(chain),
            dir,
        }
    }

    /// The mode that is in force has a say in who is spoken to.
    fn node_at(url: &str, places: &Places) -> Result<Self, Failure> {
        policy::refuse(policy::in_force(places)?, [Deed::Daemon(url)])?;
        Ok(Self::Node(url.to_owned()))
    }

    pub(crate) fn node(&self) -> Node {
        match self {
            Self::Node(url) => Node::at(url),
            Self::Here { chain, .. } => Node::here(Arc::clone(chain)),
        }
    }

    /// The key that signs, from its file or from the environment, never from an argument, which everybody on the machine can read. On a chain of one's own it is the owner's where none is named.
    pub(crate) fn key(&self, file: Option<&Path>) -> Result<Key, Failure> {
        if let Some(file) = file {
            return Ok(Key::from_file(file)?);
        }
        match (key_variable(), self) {
            // Text that is no UTF-8 is no key either, and must not become the owner's.
            (Some(text), _) => Ok(Key::from_hex(&text.to_string_lossy(), KEY_VARIABLE)?),
            (None, Self::Here { dir, .. }) => Ok(Embedded::owner(dir)?),
            (None, Self::Node(_)) => {
                let message = format!(
                    "no key signs this: name its file with --key-file, or put it into {KEY_VARIABLE}; `cofferdam chain key FILE` makes one"
                );
                Err(Failure::new(ErrorCode::InputInvalid, message))
            }
        }
    }

    pub(crate) fn contract(&self, named: Option<Address>) -> Result<Address, Failure> {
        let meant = match self {
            Self::Node(_) => None,
            Self::Here { chain, .. } => chain.ledger()?,
        };
        named.or(meant).ok_or_else(|| {
            let fix = "is missing; name the contract that `cofferdam chain deploy` printed, or set COFFERDAM_CHAIN_CONTRACT";
            Failure::problem("--contract", "nothing", fix)
        })
    }

    /// The contract of the chain here, put there if it is not yet. Its owner settles.
    pub(crate) fn with_contract(&self) -> Result<Ledger, Failure> {
        let Self::Here { chain, dir } = self else {
            return Ok(Ledger::open(self.node(), self.contract(None)?, None)?);
        };
        if let Some(contract) = chain.ledger()? {
            return Ok(Ledger::open(self.node(), contract, None)?);
        }
        let owner = Embedded::owner(dir)?;
        let terms = Terms {
            treasury: owner.address(),
            protocol_share: PROTOCOL_SHARE,
            withdrawal_delay_seconds: WITHDRAWAL_DELAY_SECONDS,
        };
        let (ledger, _) = Ledger::deploy(self.node(), &owner, &terms, None)?;
        self.allowed(&ledger, &owner, owner.address())?;
        self.meant(&ledger)?;
        Ok(ledger)
    }

    pub(crate) fn allowed(
        &self,
        ledger: &Ledger,
        owner: &Key,
        settler: Address,
    ) -> Result<(), Failure> {
        let allow = Act::SetSettler {
            settler,
            allowed: true,
        };
        ledger.act(owner, &allow, None)?;
        Ok(())
    }

    /// On a chain of one's own the first contract is the one that is meant where none is named.
    pub(crate) fn meant(&self, ledger: &Ledger) -> Result<(), Failure> {
        if let Self::Here { chain, .. } = self {
            chain.mean(ledger.place().contract)?;
        }
        Ok(())
    }
}
