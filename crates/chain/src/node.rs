//! What is asked of a node: blocks, fees, counts of transactions, calls, receipts. Typed, and nothing more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use alloy_primitives::{Address, Bytes, U256};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::embedded::Embedded;
use crate::error::ChainError;
use crate::rpc::{Http, Rpc};
use crate::transaction::Signed;

#[derive(Debug)]
pub struct Node {
    rpc: Rpc,
}

/// What a unit of gas costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fees {
    /// At most, all together.
    pub max: u128,
    /// Of it, for who makes the block.
    pub priority: u128,
}

/// What became of a transaction that is in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    pub succeeded: bool,
    pub block: u64,
    pub gas_used: u64,
    pub made: Option<Address>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) number: u64,
    pub(crate) base_fee: u128,
    /// The block up to which nothing is ever taken back, where that was asked and is known.
    pub(crate) final_number: Option<u64>,
}

/// A call that changes nothing.
#[derive(Debug, Clone)]
pub(crate) struct Call<'a> {
    pub(crate) from: Option<Address>,
    pub(crate) to: Option<Address>,
    pub(crate) value: U256,
    pub(crate) data: &'a Bytes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawBlock {
    number: U256,
    #[serde(default)]
    base_fee_per_gas: U256,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawReceipt {
    status: U256,
    block_number: U256,
    gas_used: U256,
    contract_address: Option<Address>,
}

/// Where a chain says nothing about it.
const USUAL_PRIORITY: u128 = 1_000_000_000;
const LOOKING: Duration = Duration::from_millis(100);

impl Node {
    /// One elsewhere, by HTTP.
    pub fn at(url: &str) -> Self {
        Self {
            rpc: Rpc::Http(Http::new(url)),
        }
    }

    /// The chain of a data directory, in this process.
    pub const fn here(chain: Arc<Embedded>) -> Self {
        Self {
            rpc: Rpc::Here(chain),
        }
    }

    /// Where it is, without what may be secret in that.
    pub fn shown(&self) -> String {
        self.rpc.shown()
    }

    pub fn chain_id(&self) -> Result<u64, ChainError> {
        Ok(self.ask::<U256>("eth_chainId", json!([]))?.saturating_to())
    }

    pub(crate) fn head(&self) -> Result<Head, ChainError> {
        let block: RawBlock = self.ask("eth_getBlockByNumber", json!(["latest", false]))?;
        Ok(Head {
            number: block.number.saturating_to(),
            base_fee: block.base_fee_per_gas.saturating_to(),
            final_number: None,
        })
    }

    /// The block up to which nothing is ever taken back, where the chain knows such a thing.
    pub(crate) fn final_number(&self) -> Result<Option<u64>, ChainError> {
        match self.ask::<Option<RawBlock>>("eth_getBlockByNumber", json!(["finalized", false])) {
            Ok(block) => Ok(block.map(|block| block.number.saturating_to())),
            Err(ChainError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How many transactions of an account are in blocks.
    pub(crate) fn count(&self, account: Address) -> Result<u64, ChainError> {
        let count: U256 = self.ask("eth_getTransactionCount", json!([account, "latest"]))?;
        Ok(count.saturating_to())
    }

    /// The same with those that wait.
    pub(crate) fn pending_count(&self, account: Address) -> Result<u64, ChainError> {
        let count: U256 = self.ask("eth_getTransactionCount", json!([account, "pending"]))?;
        Ok(count.saturating_to())
    }

    pub fn balance(&self, account: Address) -> Result<U256, ChainError> {
        self.ask("eth_getBalance", json!([account, "latest"]))
    }

    pub(crate) fn has_code(&self, account: Address) -> Result<bool, ChainError> {
        let code: Bytes = self.ask("eth_getCode", json!([account, "latest"]))?;
        Ok(!code.is_empty())
    }

    /// What to offer so that a transaction gets into one of the next blocks, also when they become dearer.
    pub(crate) fn fees(&self, head: &Head) -> Result<Fees, ChainError> {
        let priority = match self.ask::<U256>("eth_maxPriorityFeePerGas", json!([])) {
            Ok(priority) => priority.saturating_to(),
            Err(error) if error.is_down() => return Err(error),
            Err(_) => USUAL_PRIORITY,
        };
        let priority: u128 = std::cmp::max(priority, 1);
        Ok(Fees {
            max: head.base_fee.saturating_mul(2).saturating_add(priority),
            priority,
        })
    }

    pub(crate) fn call(&self, call: &Call<'_>) -> Result<Bytes, ChainError> {
        self.ask("eth_call", json!([call.params(), "latest"]))
    }

    /// By the latest block: what waits may be the very transaction that is to be replaced.
    pub(crate) fn estimate(&self, call: &Call<'_>) -> Result<u64, ChainError> {
        let gas: U256 = self.ask("eth_estimateGas", json!([call.params(), "latest"]))?;
        Ok(gas.saturating_to())
    }

    pub(crate) fn send(&self, raw: &str) -> Result<(), ChainError> {
        let _: Value = self.ask("eth_sendRawTransaction", json!([raw]))?;
        Ok(())
    }

    /// Whether the node has it, in a block or waiting.
    pub(crate) fn knows(&self, hash: &str) -> Result<bool, ChainError> {
        let found: Value = self.ask("eth_getTransactionByHash", json!([hash]))?;
        Ok(!found.is_null())
    }

    pub(crate) fn receipt(&self, hash: &str) -> Result<Option<Receipt>, ChainError> {
        let found: Option<RawReceipt> = self.ask("eth_getTransactionReceipt", json!([hash]))?;
        Ok(found.map(|found| Receipt {
            succeeded: found.status == U256::ONE,
            block: found.block_number.saturating_to(),
            gas_used: found.gas_used.saturating_to(),
            made: found.contract_address,
        }))
    }

    /// Waits until a transaction is in a block. It is not there at once after it was sent.
    pub(crate) fn wait_for(
        &self,
        signed: &Signed,
        patience: Duration,
    ) -> Result<Receipt, ChainError> {
        let until = Instant::now() + patience;
        let hash = signed.hash.to_string();
        loop {
            match self.receipt(&hash) {
                Ok(Some(receipt)) => return Ok(receipt),
                Ok(None) => {}
                // A node that is away for a moment is asked again.
                Err(error) if error.is_down() && Instant::now() < until => {}
                Err(error) => return Err(error),
            }
            if Instant::now() >= until {
                let seconds = patience.as_secs();
                return Err(ChainError::Unsure { hash, seconds });
            }
            std::thread::sleep(LOOKING);
        }
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: Value,
    ) -> Result<T, ChainError> {
        let answer = self.rpc.ask(method, params)?;
        serde_json::from_value(answer).map_err(|error| ChainError::Malformed {
            what: format!("the node's answer to {method}"),
            why: error.to_string(),
        })
    }
}

impl Call<'_> {
    fn params(&self) -> Value {
        let mut params = json!({"data": self.data, "value": self.value});
        if let Some(from) = self.from {
            params["from"] = json!(from);
        }
        if let Some(to) = self.to {
            params["to"] = json!(to);
        }
        params
    }
}
