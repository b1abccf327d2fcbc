//! The bonds as others see them: what the contract is asked, and the acts of a person, each sent once and waited for.

use std::time::Duration;

use alloy_primitives::{Address, B256, Bytes, U256};
use alloy_sol_types::{SolCall, SolConstructor as _};
use serde::Serialize;

use crate::contract::{BondLedger, creation_code};
use crate::error::ChainError;
use crate::key::Key;
use crate::node::{Call, Fees, Node, Receipt};
use crate::transaction::{Signed, Transaction};

/// One contract on one chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub chain: u64,
    pub contract: Address,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.chain, self.contract)
    }
}

/// What holds for everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Terms {
    pub treasury: Address,
    /// In hundredths of a percent.
    pub protocol_share: u16,
    pub withdrawal_delay_seconds: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Overview {
    pub chain: u64,
    pub contract: Address,
    pub owner: Address,
    pub paused: bool,
    #[serde(flatten)]
    pub terms: Terms,
    pub block: u64,
    #[serde(serialize_with = "decimal")]
    pub held_wei: U256,
}

/// A worker's bond.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Account {
    pub address: Address,
    /// The worker's Ed25519 public key; nothing where there is no bond.
    pub identity: Option<B256>,
    #[serde(serialize_with = "decimal")]
    pub stake_wei: u128,
    #[serde(serialize_with = "decimal")]
    pub locked_wei: u128,
    #[serde(serialize_with = "decimal")]
    pub leaving_wei: u128,
    pub leaves_at: u64,
    pub reputation: u8,
    /// Its share of what was slashed of others.
    #[serde(serialize_with = "decimal")]
    pub credit_wei: U256,
}

/// Amounts are larger than the numbers that every reader of JSON keeps exactly: they are written as text.
fn decimal<S: serde::Serializer>(
    amount: &impl std::fmt::Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(amount)
}

/// What a person can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    Stake {
        identity: B256,
        wei: U256,
    },
    Announce {
        wei: u128,
    },
    CancelWithdrawal,
    Withdraw,
    Claim,
    Lock {
        job: B256,
        worker: Address,
        wei: u128,
        until: u64,
    },
    Release {
        job: B256,
        worker: Address,
    },
    Permit {
        job: B256,
        until: u64,
    },
    Revoke {
        job: B256,
    },
    SetSettler {
        settler: Address,
        allowed: bool,
    },
    SetTerms(Terms),
    SetPaused(bool),
}

/// A contract that is there.
#[derive(Debug)]
pub struct Ledger {
    node: Node,
    place: Place,
}

/// How often an act is sent anew when its number was taken by another.
const MOST_TRIES: u32 = 64;
/// How long an act is waited for.
const PATIENCE: Duration = Duration::from_secs(180);

impl Ledger {
    /// Finds the contract; `chain` is what the chain has to be, where that is known.
    pub fn open(node: Node, contract: Address, chain: Option<u64>) -> Result<Self, ChainError> {
        let found = node.chain_id()?;
        if let Some(expected) = chain.filter(|expected| *expected != found) {
            return Err(ChainError::OtherChain { expected, found });
        }
        let place = Place {
            chain: found,
            contract,
        };
        let ledger = Self { node, place };
        ledger.check_code()?;
        Ok(ledger)
    }

    /// Makes a contract. Who signs owns it.
    pub fn deploy(
        node: Node,
        key: &Key,
        terms: &Terms,
        max_fee: Option<u128>,
    ) -> Result<(Self, Receipt), ChainError> {
        let chain = node.chain_id()?;
        let mut data = creation_code()?.to_vec();
        let arguments = BondLedger::constructorCall {
            treasury_: terms.treasury,
            protocolShare_: terms.protocol_share,
            withdrawalDelay_: terms.withdrawal_delay_seconds,
        };
        data.extend(arguments.abi_encode());
        let receipt = act(&node, chain, key, None, U256::ZERO, &data.into(), max_fee)?;
        let contract = receipt.made.ok_or_else(|| ChainError::Malformed {
            what: "the receipt of the deployment".to_owned(),
            why: "it names no contract".to_owned(),
        })?;
        let place = Place { chain, contract };
        Ok((Self { node, place }, receipt))
    }

    pub const fn place(&self) -> Place {
        self.place
    }

    pub const fn node(&self) -> &Node {
        &self.node
    }

    pub(crate) fn check_code(&self) -> Result<(), ChainError> {
        if self.node.has_code(self.place.contract)? {
            return Ok(());
        }
        Err(ChainError::NoContract {
            address: self.place.contract.to_string(),
            chain: self.place.chain,
        })
    }

    pub fn overview(&self) -> Result<Overview, ChainError> {
        Ok(Overview {
            chain: self.place.chain,
            contract: self.place.contract,
            owner: self.ask(&BondLedger::ownerCall {})?,
            paused: self.ask(&BondLedger::pausedCall {})?,
            terms: Terms {
                treasury: self.ask(&BondLedger::treasuryCall {})?,
                protocol_share: self.ask(&BondLedger::protocolShareCall {})?,
                withdrawal_delay_seconds: self.ask(&BondLedger::withdrawalDelayCall {})?,
            },
            block: self.node.head()?.number,
            held_wei: self.node.balance(self.place.contract)?,
        })
    }

    pub fn account(&self, address: Address) -> Result<Account, ChainError> {
        let found = self.ask(&BondLedger::accountOfCall { worker: address })?;
        Ok(Account {
            address,
            identity: (!found.identity.is_zero()).then_some(found.identity),
            stake_wei: found.stake,
            locked_wei: found.locked,
            leaving_wei: found.leaving,
            leaves_at: found.leavesAt,
            reputation: found.reputation,
            credit_wei: self.ask(&BondLedger::creditCall(address))?,
        })
    }

    pub fn is_settler(&self, address: Address) -> Result<bool, ChainError> {
        self.ask(&BondLedger::settlersCall(address))
    }

    /// Whether a job may use the network now.
    pub fn network_permitted(&self, job: B256) -> Result<bool, ChainError> {
        self.ask(&BondLedger::networkPermittedCall { job })
    }

    /// The block in which something was settled, if it was.
    pub fn settled_in(&self, settlement: B256) -> Result<Option<u64>, ChainError> {
        let block: U256 = self.ask(&BondLedger::settledInCall(settlement))?;
        Ok((!block.is_zero()).then(|| block.saturating_to()))
    }

    /// Sends an act and waits until it is in a block. What the contract would refuse is not sent.
    pub fn act(
        &self,
        key: &Key,
        wanted: &Act,
        max_fee: Option<u128>,
    ) -> Result<Receipt, ChainError> {
        let (value, data) = wanted.call();
        let to = Some(self.place.contract);
        act(&self.node, self.place.chain, key, to, value, &data, max_fee)
    }

    fn ask<C: SolCall>(&self, call: &C) -> Result<C::Return, ChainError> {
        let data: Bytes = call.abi_encode().into();
        let answer = self.node.call(&Call {
            from: None,
            to: Some(self.place.contract),
            value: U256::ZERO,
            data: &data,
        })?;
        C::abi_decode_returns(&answer).map_err(|error| ChainError::Malformed {
            what: format!("what the contract at {} says", self.place.contract),
            why: format!("{error}; is it a ledger of bonds of this version?"),
        })
    }
}

impl Act {
    fn call(&self) -> (U256, Bytes) {
        let none = U256::ZERO;
        match self {
            Self::Stake { identity, wei } => (
                *wei,
                bytes(&BondLedger::stakeCall {
                    identity: *identity,
                }),
            ),
            Self::Announce { wei } => (
                none,
                bytes(&BondLedger::announceWithdrawalCall { amount: *wei }),
            ),
            Self::CancelWithdrawal => (none, bytes(&BondLedger::cancelWithdrawalCall {})),
            Self::Withdraw => (none, bytes(&BondLedger::withdrawCall {})),
            Self::Claim => (none, bytes(&BondLedger::claimCall {})),
            Self::Lock {
                job,
                worker,
                wei,
                until,
            } => (
                none,
                bytes(&BondLedger::lockCall {
                    job: *job,
                    worker: *worker,
                    amount: *wei,
                    until: *until,
                }),
            ),
            Self::Release { job, worker } => (
                none,
                bytes(&BondLedger::releaseCall {
                    job: *job,
                    worker: *worker,
                }),
            ),
            Self::Permit { job, until } => (
                none,
                bytes(&BondLedger::permitNetworkCall {
                    job: *job,
                    until: *until,
                }),
            ),
            Self::Revoke { job } => (none, bytes(&BondLedger::revokeNetworkCall { job: *job })),
            Self::SetSettler { settler, allowed } => (
                none,
                bytes(&BondLedger::setSettlerCall {
                    settler: *settler,
                    allowed: *allowed,
                }),
            ),
            Self::SetTerms(terms) => (
                none,
                bytes(&BondLedger::setTermsCall {
                    treasury_: terms.treasury,
                    protocolShare_: terms.protocol_share,
                    withdrawalDelay_: terms.withdrawal_delay_seconds,
                }),
            ),
            Self::SetPaused(paused) => {
                (none, bytes(&BondLedger::setPausedCall { paused_: *paused }))
            }
        }
    }
}

fn bytes(call: &impl SolCall) -> Bytes {
    call.abi_encode().into()
}

/// One transaction from beginning to end. The estimate finds out what the contract would refuse, before anything is paid.
fn act(
    node: &Node,
    chain: u64,
    key: &Key,
    to: Option<Address>,
    value: U256,
    data: &Bytes,
    max_fee: Option<u128>,
) -> Result<Receipt, ChainError> {
    let call = Call {
        from: Some(key.address()),
        to,
        value,
        data,
    };
    let mut tries = 0;
    let signed = loop {
        let gas = node.estimate(&call)?;
        let fees = affordable(node.fees(&node.head()?)?, max_fee)?;
        let transaction = Transaction {
            chain,
            nonce: node.pending_count(key.address())?,
            priority_fee: fees.priority,
            max_fee: fees.max,
            gas: with_room(gas),
            to,
            value,
            data: data.clone(),
        };
        let signed = transaction.sign(key)?;
        match node.send(&signed.raw_hex()) {
            Ok(()) => break signed,
            // Another process that signs with this key was faster. It was not taken, so that it can be sent anew.
            Err(ChainError::Refused { message, .. })
                if message.contains("nonce too low") && tries < MOST_TRIES =>
            {
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    };
    let receipt = node.wait_for(&signed, PATIENCE)?;
    if receipt.succeeded {
        return Ok(receipt);
    }
    // Something changed between the estimate and the block: the contract is asked for its reason.
    Err(match node.call(&call) {
        Err(error) => error,
        Ok(_) => failed(&signed),
    })
}

/// Gives money to an account.
pub fn give(
    node: &Node,
    key: &Key,
    to: Address,
    wei: U256,
    max_fee: Option<u128>,
) -> Result<Receipt, ChainError> {
    let chain = node.chain_id()?;
    act(node, chain, key, Some(to), wei, &Bytes::new(), max_fee)
}

fn failed(signed: &Signed) -> ChainError {
    ChainError::Malformed {
        what: format!("the transaction {}", signed.hash),
        why: "it failed, and would not fail now; try again".to_owned(),
    }
}

/// Bounded by what its sender allows. Less than twice the base fee is offered where that is enough for now.
pub(crate) fn affordable(fees: Fees, cap: Option<u128>) -> Result<Fees, ChainError> {
    let Some(cap) = cap else {
        return Ok(fees);
    };
    let least = (fees.max - fees.priority) / 2 + 1;
    if cap < least {
        return Err(ChainError::TooDear { needed: least, cap });
    }
    let max = fees.max.min(cap);
    Ok(Fees {
        max,
        priority: fees.priority.min(max),
    })
}

/// What a call needs may be more in the next block than in the last.
pub(crate) const fn with_room(gas: u64) -> u64 {
    gas.saturating_add(gas / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_bounds_what_is_offered_and_says_when_it_is_too_low() {
        let fees = Fees {
            max: 210,
            priority: 10,
        };
        assert_eq!(affordable(fees, None).unwrap(), fees);
        let bounded = affordable(fees, Some(150)).unwrap();
        assert_eq!((bounded.max, bounded.priority), (150, 10));
        let refused = affordable(fees, Some(100)).unwrap_err();
        assert!(
            matches!(
                refused,
                ChainError::TooDear {
                    needed: 101,
                    cap: 100
                }
            ),
            "{refused}"
        );
        let tight = affordable(
            Fees {
                max: 12,
                priority: 10,
            },
            Some(2),
        )
        .unwrap();
        assert_eq!((tight.max, tight.priority), (2, 2));
    }
}
