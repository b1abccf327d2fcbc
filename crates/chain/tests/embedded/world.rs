//! A chain of a test's own, and people with money on it.

use std::sync::Arc;

use cofferdam_chain::{Act, Address, B256, Embedded, Key, Ledger, Node, Terms, U256, give};
use cofferdam_store::DataDir;
use cofferdam_testkit::anvil::KEYS;
use serde_json::{Value, json};

pub(crate) struct World {
    pub(crate) chain: Arc<Embedded>,
    pub(crate) dir: tempfile::TempDir,
}

pub(crate) fn key(number: usize) -> Key {
    Key::from_hex(KEYS[number], "a test").unwrap()
}

pub(crate) fn ether(count: u64) -> U256 {
    U256::from(count) * U256::from(1_000_000_000_000_000_000_u64)
}

pub(crate) fn terms() -> Terms {
    Terms {
        treasury: key(0).address(),
        protocol_share: 5_000,
        withdrawal_delay_seconds: 100,
    }
}

impl World {
    /// With this number, and money for the first people of anvil.
    pub(crate) fn new(number: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let chain = Embedded::begun(&data(&dir), number).unwrap();
        let world = Self {
            chain: Arc::new(chain),
            dir,
        };
        for number in 0..4 {
            let owner = world.owner();
            give(
                &world.node(),
                &owner,
                key(number).address(),
                ether(10),
                None,
            )
            .unwrap();
        }
        world
    }

    pub(crate) fn data(&self) -> DataDir {
        data(&self.dir)
    }

    pub(crate) fn owner(&self) -> Key {
        Embedded::owner(&self.data()).unwrap()
    }

    pub(crate) fn node(&self) -> Node {
        Node::here(Arc::clone(&self.chain))
    }

    /// As somebody else who has just come.
    pub(crate) fn again(&self) -> Node {
        let chain = Embedded::existing(&self.data()).unwrap().unwrap();
        Node::here(Arc::new(chain))
    }

    pub(crate) fn ask(&self, method: &str, params: &Value) -> Value {
        let question = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let answer = self.chain.answer(question.to_string().as_bytes());
        serde_json::from_str(&answer).unwrap()
    }

    /// A contract with a settler, and a worker with a bond of 1000 wei.
    pub(crate) fn bonded(&self) -> (Ledger, Address) {
        let (ledger, _) = Ledger::deploy(self.node(), &key(0), &terms(), None).unwrap();
        let allow = Act::SetSettler {
            settler: key(1).address(),
            allowed: true,
        };
        ledger.act(&key(0), &allow, None).unwrap();
        let stake = Act::Stake {
            identity: B256::repeat_byte(7),
            wei: U256::from(1000),
        };
        ledger.act(&key(2), &stake, None).unwrap();
        (ledger, key(2).address())
    }
}

fn data(dir: &tempfile::TempDir) -> DataDir {
    DataDir::at(dir.path().join("data"))
}
