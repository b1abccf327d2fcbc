//! A chain of one's own, in a data directory: an EVM whose blocks are made by whoever has a transaction, one for each, and on the disk before it is told of. Any number of processes may use
//! it; one at a time adds a block, and nothing is ever taken back. Speaks the part of JSON-RPC that our client uses. It is no network: who can write the directory can write the chain.

mod envelope;
mod evm;
mod questions;

use std::fmt;
use std::fs;
use std::path::PathBuf;

use alloy_primitives::{Address, B256, U256, keccak256};
use cofferdam_store::chain_state::{Block, ChainState, Moment};
use cofferdam_store::{DataDir, StoreError};

use crate::error::ChainError;
use crate::key::Key;
pub(crate) use crate::rpc::Trouble;

#[derive(Debug)]
pub struct Embedded {
    state: ChainState,
    path: PathBuf,
    chain: u64,
}

const CHAIN: &str = "chain";
const LEDGER: &str = "ledger";
/// What its owner has at the beginning, in ether. It is worth what the owner says.
const ALL_MONEY: u64 = 1_000_000_000;
const ETHER: u64 = 1_000_000_000_000_000_000;
/// The numbers of such chains begin here: no public one is there, and every reader of JSON keeps them exactly.
const FIRST_NUMBER: u64 = 1 << 40;

impl fmt::Display for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path.to_string_lossy())
    }
}

impl Embedded {
    /// The chain of a data directory. Where there is none it begins, with a number by chance and all its money in the hands of a key that is made beside it.
    pub fn open(dir: &DataDir) -> Result<Self, ChainError> {
        let mut bytes = [0; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| ChainError::Key(format!("there is no randomness: {errno}")))?;
        Self::begun(dir, FIRST_NUMBER | u64::from_le_bytes(bytes) >> 24)
    }

    /// The same with a number of the caller's where it begins.
    pub fn begun(dir: &DataDir, number: u64) -> Result<Self, ChainError> {
        let state = ChainState::open(dir)?;
        let chain = state.change(|moment| match known(moment)? {
            Some(chain) => Ok(chain),
            None => begin(moment, dir, number),
        })?;
        Ok(Self {
            state,
            path: dir.chain(),
            chain,
        })
    }

    /// The chain of a data directory, if it has begun.
    pub fn existing(dir: &DataDir) -> Result<Option<Self>, ChainError> {
        if !dir.chain().exists() {
            return Ok(None);
        }
        let state = ChainState::open(dir)?;
        let chain = state.look(known)?;
        Ok(chain.map(|chain| Self {
            state,
            path: dir.chain(),
            chain,
        }))
    }

    /// The key that had all the money at the beginning.
    pub fn owner(dir: &DataDir) -> Result<Key, ChainError> {
        Key::from_file(&dir.chain_key())
    }

    pub const fn chain_id(&self) -> u64 {
        self.chain
    }

    /// The contract that is meant where none is named.
    pub fn ledger(&self) -> Result<Option<Address>, ChainError> {
        let text = self.state.look(|moment| moment.fact(LEDGER))?;
        Ok(text.and_then(|text| text.parse().ok()))
    }

    /// Has one meant from now on, if none is yet.
    pub fn mean(&self, ledger: Address) -> Result<(), ChainError> {
        let set = self.state.change(|moment| match moment.fact(LEDGER)? {
            Some(_) => Ok(()),
            None => moment.set_fact(LEDGER, &ledger.to_string()),
        });
        Ok(set.map_err(|error: StoreError| error)?)
    }
}

fn known(moment: &Moment<'_>) -> Result<Option<u64>, ChainError> {
    let Some(text) = moment.fact(CHAIN)? else {
        return Ok(None);
    };
    let number = text.parse().map_err(|_| ChainError::Malformed {
        what: "the number of the chain".to_owned(),
        why: format!("`{text}` is no number"),
    })?;
    Ok(Some(number))
}

/// Nobody else begins it at the same time, and what fails here has not begun.
fn begin(moment: &Moment<'_>, dir: &DataDir, number: u64) -> Result<u64, ChainError> {
    let owner = owner_made(dir)?;
    let money = U256::from(ALL_MONEY) * U256::from(ETHER);
    moment.set_account(&owner.address().0.0, &evm::rich(money))?;
    moment.set_fact(CHAIN, &number.to_string())?;
    let seconds = now();
    moment.append(&Block {
        number: 0,
        seconds,
        hash: block_hash(B256::ZERO, 0, seconds, B256::from(U256::from(number))).0,
        parent: B256::ZERO.0,
        included: None,
    })?;
    Ok(number)
}

/// The key goes to its place whole: a crash leaves half a one under another name only.
fn owner_made(dir: &DataDir) -> Result<Key, ChainError> {
    let path = dir.chain_key();
    if path.exists() {
        return Key::from_file(&path);
    }
    let new = path.with_extension("key.new");
    let failed = |error: std::io::Error| {
        ChainError::Key(format!(
            "cannot write the key `{}`: {error}",
            path.display()
        ))
    };
    match fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    let key = Key::generate(&new)?;
    fs::rename(&new, &path).map_err(failed)?;
    fs::File::open(dir.path())
        .and_then(|dir| dir.sync_all())
        .map_err(failed)?;
    Ok(key)
}

fn now() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or(0)
}

/// The name of a block, from everything that makes it this one.
fn block_hash(parent: B256, number: u64, seconds: u64, transaction: B256) -> B256 {
    let mut bytes = parent.to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend(seconds.to_be_bytes());
    bytes.extend(transaction);
    keccak256(bytes)
}
