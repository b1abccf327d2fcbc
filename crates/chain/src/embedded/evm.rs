//! What a transaction does: carried out by an EVM against the chain at one moment, and written down. Gas is counted and costs nothing: nobody makes these blocks for money.

use alloy_primitives::{Address, B256, Bytes, TxKind, U256, keccak256};
use cofferdam_store::StoreError;
use cofferdam_store::chain_state::{AccountState, Moment};
use revm::context::result::{EVMError, ExecutionResult, InvalidTransaction};
use revm::context::{Context, TxEnv};
use revm::primitives::hardfork::SpecId;
use revm::state::{Account, AccountInfo, Bytecode, EvmState};
use revm::{Database, ExecuteEvm as _, MainBuilder as _, MainContext as _};

use super::Trouble;

/// The rules of the machine. They stay as they are: what a block meant when it was made is what it means.
const RULES: SpecId = SpecId::PRAGUE;
/// Of a block, which has one transaction.
pub(super) const MOST_GAS: u64 = 30_000_000;

/// An estimate is at most this part of it above what is needed.
const PRECISION: u64 = 256;

/// The block in which something is carried out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight {
    pub(super) chain: u64,
    pub(super) number: u64,
    pub(super) seconds: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) from: Address,
    /// `None` makes a contract.
    pub(super) to: Option<Address>,
    pub(super) value: U256,
    pub(super) data: Bytes,
    pub(super) gas: u64,
    /// `None` where it is a question only.
    pub(super) nonce: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Done {
    pub(super) result: ExecutionResult,
    changes: EvmState,
}

/// The state as the machine asks for it.
struct View<'a>(&'a Moment<'a>);

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Lost(#[from] StoreError);

impl revm::database_interface::DBErrorMarker for Lost {}

impl Database for View<'_> {
    type Error = Lost;

    fn basic(&mut self, address: Address) -> Result<Option<AccountInfo>, Lost> {
        let found = self.0.account(&address.0.0)?;
        Ok(found.map(|found| AccountInfo {
            balance: U256::from_be_bytes(found.balance),
            nonce: found.nonce,
            code_hash: B256::from(found.code),
            code: None,
            ..AccountInfo::default()
        }))
    }

    fn code_by_hash(&mut self, code_hash: B256) -> Result<Bytecode, Lost> {
        let code = self.0.code(&code_hash.0)?.unwrap_or_default();
        Ok(Bytecode::new_raw_checked(code.into()).unwrap_or_default())
    }

    fn storage(&mut self, address: Address, index: U256) -> Result<U256, Lost> {
        let found = self.0.slot(&address.0.0, &index.to_be_bytes())?;
        Ok(found.map_or(U256::ZERO, U256::from_be_bytes))
    }

    fn block_hash(&mut self, number: u64) -> Result<B256, Lost> {
        let found = self.0.block(number)?;
        Ok(found.map_or(B256::ZERO, |block| B256::from(block.hash)))
    }
}

/// Carries it out and writes nothing.
pub(super) fn run(moment: &Moment<'_>, sight: Sight, wish: &Wish) -> Result<Done, Trouble> {
    let context = Context::mainnet()
        .with_db(View(moment))
        .modify_cfg_chained(|cfg| {
            cfg.set_spec_and_mainnet_gas_params(RULES);
            cfg.chain_id = sight.chain;
            cfg.disable_nonce_check = wish.nonce.is_none();
        })
        .modify_block_chained(|block| {
            block.number = U256::from(sight.number);
            block.timestamp = U256::from(sight.seconds);
            block.gas_limit = MOST_GAS;
        });
    let transaction = TxEnv::builder()
        .caller(wish.from)
        .kind(wish.to.map_or(TxKind::Create, TxKind::Call))
        .value(wish.value)
        .data(wish.data.clone())
        .gas_limit(wish.gas)
        .gas_price(0)
        .nonce(wish.nonce.unwrap_or_default())
        .chain_id(Some(sight.chain))
        .build()
        .map_err(|error| Trouble::refused(format!("the transaction cannot be: {error:?}")))?;
    match context.build_mainnet().transact(transaction) {
        Ok(done) => Ok(Done {
            result: done.result,
            changes: done.state,
        }),
        Err(EVMError::Transaction(error)) => Err(Trouble::refused(in_words(&error))),
        Err(EVMError::Database(Lost(error))) => Err(error.into()),
        Err(EVMError::Header(error)) => Err(Trouble::internal(error.to_string())),
        Err(EVMError::Custom(error)) => Err(Trouble::internal(error)),
        Err(EVMError::CustomAny(error)) => Err(Trouble::internal(error.to_string())),
    }
}

/// As other nodes say it: clients look for these words.
fn in_words(error: &InvalidTransaction) -> String {
    match error {
        InvalidTransaction::NonceTooLow { tx, state } => {
            format!("nonce too low: {tx}, and {state} is the next")
        }
        InvalidTransaction::NonceTooHigh { tx, state } => {
            format!("nonce too high: {tx}, and {state} is the next; nothing waits here")
        }
        InvalidTransaction::LackOfFundForMaxFee { fee, balance } => format!(
            "insufficient funds: it has {balance} wei and needs {fee}; `cofferdam chain give` gives it some"
        ),
        other => format!("the transaction is not valid: {other}"),
    }
}

/// The least gas with which it goes through; what the contract would refuse is an error.
pub(super) fn estimate(moment: &Moment<'_>, sight: Sight, wish: &Wish) -> Result<u64, Trouble> {
    let with = |gas: u64| {
        run(
            moment,
            sight,
            &Wish {
                gas,
                ..wish.clone()
            },
        )
    };
    let done = with(wish.gas)?;
    super::questions::output(&done.result)?;
    // Some of what is needed on the way is given back at the end.
    let (mut short, mut enough) = (done.result.tx_gas_used().saturating_sub(1), wish.gas);
    let mut next = done.result.gas().total_gas_spent();
    while enough - short > 1 + enough / PRECISION {
        let gas = next.clamp(short + 1, enough - 1);
        match with(gas) {
            Ok(done) if done.result.is_success() => enough = gas,
            Ok(_) => short = gas,
            Err(trouble) if trouble.is_refusal() => short = gas,
            Err(trouble) => return Err(trouble),
        }
        next = short + (enough - short) / 2;
    }
    Ok(enough)
}

impl Done {
    pub(super) fn write(&self, moment: &Moment<'_>) -> Result<(), StoreError> {
        for (address, account) in &self.changes {
            if account.is_touched() {
                write(moment, address, account)?;
            }
        }
        Ok(())
    }
}

fn write(moment: &Moment<'_>, address: &Address, account: &Account) -> Result<(), StoreError> {
    let name = address.0.0;
    // One without anything is none (EIP-161).
    if account.is_selfdestructed() || account.is_empty() {
        return moment.remove_account(&name);
    }
    if account.is_created() {
        moment.clear_storage(&name)?;
    }
    if let Some(code) = account.info.code.as_ref().filter(|code| !code.is_empty()) {
        moment.set_code(&account.info.code_hash.0, code.original_byte_slice())?;
    }
    let state = AccountState {
        nonce: account.info.nonce,
        balance: account.info.balance.to_be_bytes(),
        code: account.info.code_hash.0,
    };
    moment.set_account(&name, &state)?;
    for (slot, value) in &account.storage {
        if value.is_changed() {
            let value = value.present_value().to_be_bytes();
            moment.set_slot(&name, &slot.to_be_bytes(), &value)?;
        }
    }
    Ok(())
}

/// An account that only has money.
pub(super) fn rich(balance: U256) -> AccountState {
    AccountState {
        nonce: 0,
        balance: balance.to_be_bytes(),
        code: keccak256([]).0,
    }
}
