//! Why something about the chain could not be done.

use cofferdam_contract::codes::ErrorCode;
use cofferdam_store::StoreError;

use crate::contract::Revert;

#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    #[error("no chain answers at {url}: {why}; see that the node runs, or name another with --rpc")]
    Down { url: String, why: String },
    #[error("the node turned {method} down: {message}")]
    Refused {
        method: &'static str,
        code: i64,
        message: String,
    },
    #[error("{revert}")]
    Reverted { revert: Revert },
    #[error("{what} cannot be understood: {why}")]
    Malformed { what: String, why: String },
    #[error(
        "the node is one of the chain {found}, and {expected} is expected; name a node of that chain"
    )]
    OtherChain { expected: u64, found: u64 },
    #[error(
        "there is no contract at {address} on the chain {chain}; `cofferdam chain deploy` makes one"
    )]
    NoContract { address: String, chain: u64 },
    #[error("{0}")]
    Key(String),
    #[error(
        "a transaction costs {needed} wei for each unit of gas now, and at most {cap} are allowed; wait, or raise --max-fee"
    )]
    TooDear { needed: u128, cap: u128 },
    #[error(
        "the transaction {hash} is in no block after {seconds} s; it may still come: ask again with `cofferdam chain status`"
    )]
    Unsure { hash: String, seconds: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ChainError {
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Down { .. } => ErrorCode::ServerUnreachable,
            Self::Refused { .. }
            | Self::Reverted { .. }
            | Self::Malformed { .. }
            | Self::TooDear { .. }
            | Self::Unsure { .. } => ErrorCode::ServerRefused,
            Self::OtherChain { .. } | Self::NoContract { .. } | Self::Key(_) => {
                ErrorCode::InputInvalid
            }
            Self::Store(error) => error.code(),
        }
    }

    /// Whether the node cannot be spoken to right now.
    pub const fn is_down(&self) -> bool {
        matches!(self, Self::Down { .. })
    }
}
