//! The same signed transactions, given to our chain and to another node: they have to mean the same.

use std::time::{Duration, Instant};

use alloy_primitives::{Bytes, U256};
use alloy_sol_types::{SolCall, SolConstructor as _};
use cofferdam_chain::{Address, B256, BondLedger, Transaction, creation_code};
use cofferdam_testkit::anvil::Anvil;
use serde_json::{Value, json};

use crate::world::{World, key, terms};

const NUMBER: u64 = 31337;

fn signed(who: usize, nonce: u64, to: Option<Address>, value: u64, data: Vec<u8>) -> Value {
    let transaction = Transaction {
        chain: NUMBER,
        nonce,
        priority_fee: 1_000_000_000,
        max_fee: 100_000_000_000,
        gas: 5_000_000,
        to,
        value: U256::from(value),
        data: Bytes::from(data),
    };
    let signed = transaction.sign(&key(who)).unwrap();
    json!([signed.raw_hex()])
}

/// What both have to say of a transaction, without what is each one's own: its blocks and its prices.
fn meaning(receipt: &Value) -> Value {
    let log = |log: &Value| json!([log["address"], log["topics"], log["data"]]);
    let logs: Vec<Value> = receipt["logs"]
        .as_array()
        .unwrap()
        .iter()
        .map(log)
        .collect();
    json!({
        "status": receipt["status"], "from": receipt["from"], "to": receipt["to"],
        "made": receipt["contractAddress"], "logs": logs, "bloom": receipt["logsBloom"],
    })
}

fn lower(value: &Value) -> String {
    value.to_string().to_lowercase()
}

#[test]
fn the_same_transactions_mean_the_same_here_and_on_another_node() {
    let Some(anvil) = Anvil::start() else { return };
    let world = World::new(NUMBER);
    let mut code = creation_code().unwrap().to_vec();
    let arguments = BondLedger::constructorCall {
        treasury_: terms().treasury,
        protocolShare_: terms().protocol_share,
        withdrawalDelay_: terms().withdrawal_delay_seconds,
    };
    code.extend(arguments.abi_encode());
    let contract = key(0).address().create(0);
    let to = Some(contract);
    let worker = key(2).address();
    let slash = |settlement: u8| {
        let penalty = BondLedger::Penalty {
            settlement: B256::repeat_byte(settlement),
            worker,
            job: B256::repeat_byte(9),
            basisPoints: 8_000,
            reason: 4,
            reputation: 20,
            evidence: B256::repeat_byte(3),
            beneficiaries: vec![key(3).address()],
        };
        BondLedger::slashCall { penalty }.abi_encode()
    };
    let allow = BondLedger::setSettlerCall {
        settler: key(1).address(),
        allowed: true,
    };
    let stake = BondLedger::stakeCall {
        identity: B256::repeat_byte(7),
    };
    let lock = BondLedger::lockCall {
        job: B256::repeat_byte(9),
        worker,
        amount: 400,
        until: u64::try_from(jiff::Timestamp::now().as_second()).unwrap() + 3600,
    };
    let claim = BondLedger::claimCall {};
    // The second slash of one name is turned down, and so is a stranger's.
    for transaction in [
        signed(0, 0, None, 0, code),
        signed(0, 1, to, 0, allow.abi_encode()),
        signed(2, 0, to, 1000, stake.abi_encode()),
        signed(1, 0, to, 0, lock.abi_encode()),
        signed(1, 1, to, 0, slash(1)),
        signed(1, 2, to, 0, slash(1)),
        signed(3, 0, to, 0, slash(2)),
        signed(3, 1, to, 0, claim.abi_encode()),
    ] {
        let hash = anvil.ask("eth_sendRawTransaction", &transaction);
        let ours = world.ask("eth_sendRawTransaction", &transaction);
        assert_eq!(ours["result"], hash, "{ours}");
        // There it takes a moment.
        let until = Instant::now() + Duration::from_secs(60);
        let theirs = loop {
            let theirs = anvil.ask("eth_getTransactionReceipt", &json!([hash]));
            if !theirs.is_null() {
                break theirs;
            }
            assert!(Instant::now() < until, "{hash} is in no block");
            std::thread::sleep(Duration::from_millis(20));
        };
        let ours = world.ask("eth_getTransactionReceipt", &json!([hash]));
        assert_eq!(lower(&meaning(&ours["result"])), lower(&meaning(&theirs)));
    }
    for call in [
        BondLedger::accountOfCall { worker }.abi_encode(),
        BondLedger::creditCall(key(0).address()).abi_encode(),
        BondLedger::bondOfCall {
            worker,
            job: B256::repeat_byte(9),
        }
        .abi_encode(),
    ] {
        let question = json!([{"to": contract, "data": Bytes::from(call)}, "latest"]);
        let theirs = anvil.ask("eth_call", &question);
        assert_eq!(world.ask("eth_call", &question)["result"], theirs);
    }
    for (method, about) in [
        ("eth_getCode", json!([contract, "latest"])),
        ("eth_getBalance", json!([contract, "latest"])),
        (
            "eth_getTransactionCount",
            json!([key(1).address(), "latest"]),
        ),
        ("eth_getStorageAt", json!([contract, "0x0", "latest"])),
        ("eth_chainId", json!([])),
    ] {
        let theirs = anvil.ask(method, &about);
        assert_eq!(
            lower(&world.ask(method, &about)["result"]),
            lower(&theirs),
            "{method}"
        );
    }
}
