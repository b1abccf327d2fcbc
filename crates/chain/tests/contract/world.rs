//! A chain in memory with the contract on it, an owner, a settler, a treasury and workers, all of whom have money.

use alloy_primitives::{Address, B256, Bytes, U256};
use alloy_sol_types::{SolCall, SolConstructor as _, SolValue as _};
use cofferdam_chain::{BondLedger, Revert, creation_code};
use revm::context::result::ExecutionResult;
use revm::context::{Context, TxEnv};
use revm::database::InMemoryDB;
use revm::handler::{MainnetContext, MainnetEvm};
use revm::primitives::TxKind;
use revm::state::AccountInfo;
use revm::{Database as _, ExecuteCommitEvm as _, MainBuilder as _, MainContext as _};

pub(crate) const DELAY: u64 = 1000;
pub(crate) const MONEY: u128 = 1_000_000;
pub(crate) const OWNER: Address = Address::repeat_byte(0xa0);
pub(crate) const SETTLER: Address = Address::repeat_byte(0xa1);
pub(crate) const TREASURY: Address = Address::repeat_byte(0xa2);
pub(crate) const WORKERS: [Address; 3] = [
    Address::repeat_byte(0x01),
    Address::repeat_byte(0x02),
    Address::repeat_byte(0x03),
];

pub(crate) struct World {
    evm: MainnetEvm<MainnetContext<InMemoryDB>>,
    pub(crate) ledger: Address,
    pub(crate) now: u64,
}

pub(crate) fn identity(worker: Address) -> B256 {
    worker.into_word()
}

pub(crate) fn word(number: u64) -> B256 {
    U256::from(number).into()
}

impl World {
    pub(crate) fn new() -> Self {
        let mut db = InMemoryDB::default();
        for who in [OWNER, SETTLER, TREASURY].into_iter().chain(WORKERS) {
            let info = AccountInfo::from_balance(U256::from(MONEY));
            db.insert_account_info(who, info);
        }
        let context = Context::mainnet().with_db(db).modify_cfg_chained(|cfg| {
            cfg.disable_nonce_check = true;
        });
        let mut world = Self {
            evm: context.build_mainnet(),
            ledger: Address::ZERO,
            now: 0,
        };
        world.pass(1_000_000);
        let terms = BondLedger::constructorCall {
            treasury_: TREASURY,
            protocolShare_: 5_000,
            withdrawalDelay_: DELAY,
        };
        let mut code = creation_code().unwrap().to_vec();
        code.extend(terms.abi_encode());
        world.ledger = world.make(OWNER, code.into(), 0);
        let allowed = BondLedger::setSettlerCall {
            settler: SETTLER,
            allowed: true,
        };
        world.done(OWNER, &allowed);
        world
    }

    /// Time goes on, and blocks with it.
    pub(crate) fn pass(&mut self, seconds: u64) {
        self.now += seconds;
        let now = self.now;
        self.evm.ctx.modify_block(|block| {
            block.timestamp = U256::from(now);
            block.number += U256::ONE;
        });
    }

    pub(crate) fn make(&mut self, from: Address, code: Bytes, value: u128) -> Address {
        let done = self.transact(from, TxKind::Create, code, value);
        done.created_address().unwrap_or_else(|| panic!("{done:?}"))
    }

    fn transact(
        &mut self,
        from: Address,
        kind: TxKind,
        data: Bytes,
        value: u128,
    ) -> ExecutionResult {
        let tx = TxEnv::builder()
            .caller(from)
            .kind(kind)
            .data(data)
            .value(U256::from(value))
            .gas_limit(8_000_000)
            .gas_price(0)
            .build()
            .unwrap();
        self.evm.transact_commit(tx).unwrap()
    }

    pub(crate) fn send(
        &mut self,
        from: Address,
        to: Address,
        data: Bytes,
        value: u128,
    ) -> Result<Bytes, Revert> {
        match self.transact(from, TxKind::Call(to), data, value) {
            ExecutionResult::Success { output, .. } => Ok(output.into_data()),
            ExecutionResult::Revert { output, .. } => Err(Revert::read(&output)),
            halted @ ExecutionResult::Halt { .. } => panic!("{halted:?}"),
        }
    }

    pub(crate) fn try_with(
        &mut self,
        from: Address,
        call: &impl SolCall,
        value: u128,
    ) -> Result<(), Revert> {
        let ledger = self.ledger;
        self.send(from, ledger, call.abi_encode().into(), value)
            .map(drop)
    }

    pub(crate) fn try_call(&mut self, from: Address, call: &impl SolCall) -> Result<(), Revert> {
        self.try_with(from, call, 0)
    }

    pub(crate) fn done(&mut self, from: Address, call: &impl SolCall) {
        self.try_call(from, call).unwrap();
    }

    pub(crate) fn refused(&mut self, from: Address, call: &impl SolCall) -> String {
        self.try_call(from, call).unwrap_err().text
    }

    pub(crate) fn ask<C: SolCall>(&mut self, call: &C) -> C::Return {
        let ledger = self.ledger;
        let answer = self
            .send(OWNER, ledger, call.abi_encode().into(), 0)
            .unwrap();
        C::abi_decode_returns(&answer).unwrap()
    }

    pub(crate) fn balance(&mut self, who: Address) -> u128 {
        let info = self.evm.ctx.journaled_state.database.basic(who).unwrap();
        info.map_or(0, |info| info.balance.to())
    }

    pub(crate) fn stake(&mut self, worker: Address, wei: u128) {
        let call = BondLedger::stakeCall {
            identity: identity(worker),
        };
        self.try_with(worker, &call, wei).unwrap();
    }

    pub(crate) fn account(&mut self, worker: Address) -> BondLedger::Account {
        self.ask(&BondLedger::accountOfCall { worker })
    }

    pub(crate) fn credit(&mut self, who: Address) -> u128 {
        self.ask(&BondLedger::creditCall(who)).to()
    }

    pub(crate) fn bond(&mut self, worker: Address, job: B256) -> u128 {
        self.ask(&BondLedger::bondOfCall { worker, job }).amount
    }
}

pub(crate) fn lock(job: u64, worker: Address, amount: u128, until: u64) -> BondLedger::lockCall {
    BondLedger::lockCall {
        job: word(job),
        worker,
        amount,
        until,
    }
}

pub(crate) fn slash(
    settlement: u64,
    worker: Address,
    job: u64,
    basis_points: u16,
) -> BondLedger::slashCall {
    BondLedger::slashCall {
        penalty: BondLedger::Penalty {
            settlement: word(settlement),
            worker,
            job: word(job),
            basisPoints: basis_points,
            reason: 4,
            reputation: 20,
            evidence: word(77),
            beneficiaries: Vec::new(),
        },
    }
}

/// The bytes of a call, as another contract is given them.
pub(crate) fn packed(call: &impl SolCall) -> Bytes {
    call.abi_encode().into()
}

/// The arguments of a constructor after its code.
pub(crate) fn with_address(code: &str, address: Address) -> Bytes {
    let mut code: Vec<u8> = code.parse::<Bytes>().unwrap().to_vec();
    code.extend(address.abi_encode());
    code.into()
}
