//! A chain with the contract on it, and people who have money. Part of the tests of this crate and of those of the command line.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use cofferdam_chain::{
    Act, Address, B256, Decision, Key, Ledger, Node, Terms, U256, settlement_id,
};
use cofferdam_contract::canonical::Digest;
use cofferdam_contract::rules::{Offence, Rules};
use cofferdam_store::DataDir;
use cofferdam_store::settlements::Settlements;
use cofferdam_testkit::anvil::{Anvil, KEYS};
use jiff::Timestamp;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn key(number: usize) -> Key {
    Key::from_hex(KEYS[number], "a test").unwrap()
}

pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A chain with a contract, a settler and a worker with a bond of 1000 wei.
pub(crate) struct Town {
    pub(crate) data: PathBuf,
    pub(crate) anvil: Anvil,
    pub(crate) contract: Address,
    pub(crate) worker: Address,
}

impl Town {
    /// With this data directory for what is to be settled.
    pub(crate) fn new(data: PathBuf) -> Option<Self> {
        let anvil = Anvil::start()?;
        let owner = key(0);
        let terms = Terms {
            treasury: owner.address(),
            protocol_share: 5_000,
            withdrawal_delay_seconds: 100,
        };
        let (ledger, _) = Ledger::deploy(Node::at(&anvil.url()), &owner, &terms, None).unwrap();
        let allow = Act::SetSettler {
            settler: key(1).address(),
            allowed: true,
        };
        ledger.act(&owner, &allow, None).unwrap();
        let worker = key(2);
        let stake = Act::Stake {
            identity: B256::repeat_byte(7),
            wei: U256::from(1000),
        };
        ledger.act(&worker, &stake, None).unwrap();
        Some(Self {
            data,
            contract: ledger.place().contract,
            worker: worker.address(),
            anvil,
        })
    }

    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::open(Node::at(&self.anvil.url()), self.contract, None).unwrap()
    }

    pub(crate) fn outbox(&self) -> Settlements {
        let place = self.ledger().place().to_string();
        Settlements::open(&DataDir::at(&self.data), &place).unwrap()
    }

    pub(crate) fn stake(&self) -> u128 {
        self.ledger().account(self.worker).unwrap().stake_wei
    }

    /// Half of the bond.
    pub(crate) fn decide(&self, outbox: &Settlements, fact: &str) -> B256 {
        let action = Rules::default().action(Offence::Crash);
        let job = Digest::of(b"job");
        let decision = Decision::penalty(
            ("w", self.worker),
            &job,
            (Offence::Crash, action),
            &job,
            &[],
        );
        let id = settlement_id("w", fact);
        let body = serde_json::to_string(&decision).unwrap();
        outbox
            .put(&id.to_string(), &body, Timestamp::now())
            .unwrap();
        id
    }

    /// How many transactions of the settler are in blocks.
    pub(crate) fn sent(&self) -> u64 {
        let count = self.anvil.ask(
            "eth_getTransactionCount",
            &json!([key(1).address(), "latest"]),
        );
        number(&count)
    }

    pub(crate) fn pending(&self) -> u64 {
        number(&self.anvil.ask("txpool_status", &json!([]))["pending"])
    }
}

pub(crate) fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}
