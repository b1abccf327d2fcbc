//! What the chain is asked, and what it answers: JSON-RPC as nodes speak it, as far as our client and simple tools need it. Only the latest state is known.

use alloy_primitives::{Address, B256, Bytes, U256, logs_bloom};
use cofferdam_store::chain_state::{Block, Included, Moment};
use revm::context::result::ExecutionResult;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::envelope::Envelope;
use super::evm::{self, MOST_GAS, Sight, Wish};
use super::{Embedded, Trouble, block_hash, now};

/// How many questions one message may hold.
const MOST_AT_ONCE: usize = 100;

/// A call that somebody wants to try.
#[derive(Debug, Default, Deserialize)]
struct Asked {
    from: Option<Address>,
    to: Option<Address>,
    value: Option<U256>,
    data: Option<Bytes>,
    input: Option<Bytes>,
    gas: Option<U256>,
}

impl Embedded {
    /// The answer to a message: one question, or a list of them.
    pub fn answer(&self, message: &[u8]) -> String {
        let alone = |trouble: Trouble| told(&Value::Null, Err(trouble));
        let answer = match serde_json::from_slice(message) {
            Ok(Value::Array(all)) if all.is_empty() || all.len() > MOST_AT_ONCE => {
                let why = format!("1 to {MOST_AT_ONCE} questions are answered at once");
                alone(Trouble::new(Trouble::NO_QUESTION, why))
            }
            Ok(Value::Array(all)) => all.iter().map(|one| self.one(one)).collect(),
            Ok(one) => self.one(&one),
            Err(error) => alone(Trouble::new(Trouble::MALFORMED, error.to_string())),
        };
        answer.to_string()
    }

    fn one(&self, question: &Value) -> Value {
        let answer = match question["method"].as_str() {
            Some(method) => self.ask(method, &question["params"]),
            None => Err(Trouble::new(Trouble::NO_QUESTION, "there is no method")),
        };
        told(&question["id"], answer)
    }

    pub(crate) fn ask(&self, method: &str, params: &Value) -> Result<Value, Trouble> {
        match method {
            "eth_chainId" => Ok(quantity(self.chain)),
            "net_version" => Ok(json!(self.chain.to_string())),
            "web3_clientVersion" => Ok(json!(concat!("cofferdam/", env!("CARGO_PKG_VERSION")))),
            // Gas is counted and costs nothing.
            "eth_gasPrice" | "eth_maxPriorityFeePerGas" => Ok(quantity(0)),
            "eth_sendRawTransaction" => self.send(&param::<Bytes>(params, 0)?),
            _ => self.state.look(|moment| self.seen(moment, method, params)),
        }
    }

    fn seen(&self, moment: &Moment<'_>, method: &str, params: &Value) -> Result<Value, Trouble> {
        let head = head(moment)?;
        match method {
            "eth_blockNumber" => Ok(quantity(head.number)),
            "eth_getBlockByNumber" => self.block(moment, head, params),
            "eth_getTransactionCount" => {
                let account = account(moment, &head, params, 1)?;
                Ok(quantity(account.map_or(0, |account| account.nonce)))
            }
            "eth_getBalance" => {
                let account = account(moment, &head, params, 1)?;
                let balance = account.map(|account| U256::from_be_bytes(account.balance));
                Ok(quantity(balance.unwrap_or_default()))
            }
            "eth_getCode" => {
                let code = match account(moment, &head, params, 1)? {
                    Some(account) => moment.code(&account.code)?,
                    None => None,
                };
                Ok(json!(Bytes::from(code.unwrap_or_default())))
            }
            "eth_getStorageAt" => {
                latest_only(&head, params, 2)?;
                let (name, slot) = (param::<Address>(params, 0)?, param::<U256>(params, 1)?);
                let found = moment.slot(&name.0.0, &slot.to_be_bytes())?;
                Ok(json!(found.map_or(B256::ZERO, B256::from)))
            }
            "eth_call" => {
                latest_only(&head, params, 1)?;
                let done = evm::run(moment, self.sight(&head), &wish(params)?)?;
                Ok(json!(output(&done.result)?))
            }
            "eth_estimateGas" => {
                latest_only(&head, params, 1)?;
                evm::estimate(moment, self.sight(&head), &wish(params)?).map(quantity)
            }
            "eth_getTransactionByHash" => {
                let found = moment.block_with(&param::<B256>(params, 0)?.0)?;
                let shown = found.as_ref().map(transaction).transpose()?;
                Ok(shown.unwrap_or_default())
            }
            "eth_getTransactionReceipt" => {
                let found = moment.block_with(&param::<B256>(params, 0)?.0)?;
                found
                    .and_then(|block| block.included)
                    .map_or(Ok(Value::Null), |one| receipt(&one))
            }
            unknown => {
                let why = format!("the method {unknown} is not known here");
                Err(Trouble::new(Trouble::UNKNOWN_METHOD, why))
            }
        }
    }

    fn sight(&self, head: &Block) -> Sight {
        Sight {
            chain: self.chain,
            number: head.number.saturating_add(1),
            seconds: now().max(head.seconds),
        }
    }

    /// Makes a block of a transaction. The same one again is told that its number is used, as by other nodes: two who sign the same at the same time must not both take it for their own.
    fn send(&self, raw: &[u8]) -> Result<Value, Trouble> {
        let envelope = Envelope::read(raw).map_err(Trouble::refused)?;
        let wanted = &envelope.transaction;
        if wanted.chain != self.chain {
            let (meant, chain) = (wanted.chain, self.chain);
            return Err(Trouble::refused(format!(
                "the transaction is for the chain {meant}, and this is {chain}"
            )));
        }
        let hash = envelope.hash;
        self.state.change(|moment| {
            let from = moment.account(&envelope.from.0.0)?;
            if from.is_none() {
                // Whoever has nothing here adds nothing: blocks cost nothing, and disks are not endless.
                let from = envelope.from;
                return Err(Trouble::refused(format!(
                    "insufficient funds: {from} has nothing on this chain; `cofferdam chain give` gives it some"
                )));
            }
            let head = head(moment)?;
            let sight = self.sight(&head);
            let wish = Wish {
                from: envelope.from,
                to: wanted.to,
                value: wanted.value,
                data: wanted.data.clone(),
                gas: wanted.gas,
                nonce: Some(wanted.nonce),
            };
            let done = evm::run(moment, sight, &wish)?;
            done.write(moment)?;
            let block = block_hash(head.hash.into(), sight.number, sight.seconds, hash);
            moment.append(&Block {
                number: sight.number,
                seconds: sight.seconds,
                hash: block.0,
                parent: head.hash,
                included: Some(Included {
                    hash: hash.0,
                    raw: raw.to_vec(),
                    receipt: written(&envelope, &done.result, sight.number, block).to_string(),
                }),
            })?;
            Ok(json!(hash))
        })
    }

    fn block(&self, moment: &Moment<'_>, head: Block, params: &Value) -> Result<Value, Trouble> {
        let block = match params[0].as_str() {
            // Nothing is ever taken back.
            Some("latest" | "pending" | "safe" | "finalized") | None => Some(head),
            Some("earliest") => moment.block(0)?,
            Some(_) => moment.block(param::<U256>(params, 0)?.saturating_to())?,
        };
        let Some(block) = block else {
            return Ok(Value::Null);
        };
        let whole = params[1].as_bool().unwrap_or(false);
        let inside: Vec<Value> = match (&block.included, whole) {
            (None, _) => Vec::new(),
            (Some(one), false) => vec![json!(B256::from(one.hash))],
            (Some(_), true) => vec![transaction(&block)?],
        };
        let receipt = block.included.as_ref().map(receipt).transpose()?;
        let (zero, none) = (json!(B256::ZERO), quantity(0));
        let used = receipt.as_ref().map(|receipt| receipt["gasUsed"].clone());
        Ok(json!({
            "number": quantity(block.number), "hash": B256::from(block.hash),
            "parentHash": B256::from(block.parent), "timestamp": quantity(block.seconds),
            "gasLimit": quantity(MOST_GAS), "gasUsed": used.unwrap_or_else(|| none.clone()),
            "baseFeePerGas": none, "transactions": inside, "uncles": [],
            "miner": Address::ZERO, "difficulty": none, "extraData": "0x", "size": none,
            "nonce": "0x0000000000000000", "mixHash": zero, "sha3Uncles": zero,
            "logsBloom": receipt.map_or_else(no_bloom, |receipt| receipt["logsBloom"].clone()),
            "stateRoot": zero, "transactionsRoot": zero, "receiptsRoot": zero,
        }))
    }
}

/// What a call gave back; what the contract turned down is an error with its words.
pub(super) fn output(result: &ExecutionResult) -> Result<Bytes, Trouble> {
    match result {
        ExecutionResult::Success { output, .. } => Ok(output.data().clone()),
        ExecutionResult::Revert { output, .. } => Err(Trouble::reverted(output)),
        ExecutionResult::Halt { reason, .. } => Err(Trouble::refused(format!(
            "the transaction would fail: {reason:?}"
        ))),
    }
}

fn told(id: &Value, answer: Result<Value, Trouble>) -> Value {
    match answer {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
    }
}

fn head(moment: &Moment<'_>) -> Result<Block, Trouble> {
    let head = moment.head()?;
    head.ok_or_else(|| Trouble::internal("the chain has no block"))
}

fn account(
    moment: &Moment<'_>,
    head: &Block,
    params: &Value,
    tag: usize,
) -> Result<Option<cofferdam_store::chain_state::AccountState>, Trouble> {
    latest_only(head, params, tag)?;
    let name: Address = param(params, 0)?;
    Ok(moment.account(&name.0.0)?)
}

/// Older states are not kept.
fn latest_only(head: &Block, params: &Value, index: usize) -> Result<(), Trouble> {
    let is_latest = match params[index].as_str() {
        None => params[index].is_null(),
        Some("latest" | "pending" | "safe" | "finalized") => true,
        Some(_) => param::<U256>(params, index)? == U256::from(head.number),
    };
    match is_latest {
        true => Ok(()),
        false => Err(Trouble::refused(
            "only the latest state is kept here; ask for `latest`",
        )),
    }
}

fn param<T: DeserializeOwned>(params: &Value, index: usize) -> Result<T, Trouble> {
    serde_json::from_value(params[index].clone()).map_err(|error| {
        let why = format!("params[{index}]: {error}");
        Trouble::new(Trouble::BAD_PARAMETER, why)
    })
}

fn wish(params: &Value) -> Result<Wish, Trouble> {
    let asked: Asked = param(params, 0)?;
    let gas = asked.gas.map_or(MOST_GAS, |gas| gas.saturating_to());
    Ok(Wish {
        from: asked.from.unwrap_or_default(),
        to: asked.to,
        value: asked.value.unwrap_or_default(),
        data: asked.data.or(asked.input).unwrap_or_default(),
        gas: gas.min(MOST_GAS),
        nonce: None,
    })
}

fn quantity(number: impl TryInto<U256>) -> Value {
    json!(number.try_into().unwrap_or(U256::MAX))
}

fn no_bloom() -> Value {
    json!(alloy_primitives::Bloom::ZERO)
}

fn receipt(one: &Included) -> Result<Value, Trouble> {
    serde_json::from_str(&one.receipt)
        .map_err(|error| Trouble::internal(format!("a receipt cannot be read: {error}")))
}

fn written(envelope: &Envelope, result: &ExecutionResult, number: u64, block: B256) -> Value {
    let (hash, used) = (envelope.hash, quantity(result.tx_gas_used()));
    // What was told before it was turned down was not told.
    let told = match result {
        ExecutionResult::Success { logs, .. } => logs.as_slice(),
        ExecutionResult::Revert { .. } | ExecutionResult::Halt { .. } => &[],
    };
    let logs: Vec<Value> = told
        .iter()
        .enumerate()
        .map(|(place, log)| {
            json!({
                "address": log.address, "topics": log.data.topics(), "data": log.data.data,
                "blockNumber": quantity(number), "blockHash": block, "transactionHash": hash,
                "transactionIndex": "0x0", "logIndex": format!("{place:#x}"), "removed": false,
            })
        })
        .collect();
    json!({
        "transactionHash": hash, "transactionIndex": "0x0",
        "blockHash": block, "blockNumber": quantity(number),
        "from": envelope.from, "to": envelope.transaction.to,
        "cumulativeGasUsed": used, "gasUsed": used, "effectiveGasPrice": "0x0",
        "contractAddress": result.created_address(), "type": "0x2",
        "status": quantity(u64::from(result.is_success())),
        "logs": logs, "logsBloom": logs_bloom(told),
    })
}

fn transaction(block: &Block) -> Result<Value, Trouble> {
    let raw = block.included.as_ref().map(|one| one.raw.as_slice());
    let envelope = Envelope::read(raw.unwrap_or_default()).map_err(Trouble::internal)?;
    let one = &envelope.transaction;
    let (r, s, is_odd) = envelope.signature;
    let parity = quantity(u64::from(is_odd));
    Ok(json!({
        "hash": envelope.hash, "blockHash": B256::from(block.hash),
        "blockNumber": quantity(block.number), "transactionIndex": "0x0", "type": "0x2",
        "chainId": quantity(one.chain), "nonce": quantity(one.nonce), "from": envelope.from,
        "to": one.to, "value": one.value, "input": one.data, "gas": quantity(one.gas),
        "gasPrice": "0x0", "maxFeePerGas": quantity(one.max_fee),
        "maxPriorityFeePerGas": quantity(one.priority_fee), "accessList": [],
        "r": r, "s": s, "v": parity, "yParity": parity,
    }))
}
