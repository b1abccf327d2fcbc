//! Bonds on an EVM chain: the contract, a client that signs by itself and speaks JSON-RPC, a chain of one's own where there is no node, and the settling of what a fleet has decided, once.

mod contract;
mod decision;
mod embedded;
mod error;
mod key;
mod ledger;
mod node;
mod rpc;
mod settler;
mod transaction;

pub use alloy_primitives::{Address, B256, U256};
pub use contract::{BondLedger, Revert, RevertKind, creation_code};
pub use decision::{Decision, reason_code, settlement_id};
pub use embedded::Embedded;
pub use error::ChainError;
pub use key::Key;
pub use ledger::{Account, Act, Ledger, Overview, Place, Terms, give};
pub use node::{Fees, Node, Receipt};
pub use settler::{HowLong, Policy, Settler, Tick};
pub use transaction::{Signed, Transaction};
