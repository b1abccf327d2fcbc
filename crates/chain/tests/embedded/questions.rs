//! What is asked wrongly is answered with what is wrong, and changes nothing; what comes at the same time from several is all carried out.

use std::sync::Arc;

use cofferdam_chain::{
    Act, Address, B256, ChainError, Embedded, Ledger, Node, Transaction, U256, give,
};
use cofferdam_store::DataDir;
use serde_json::{Value, json};

use crate::world::{World, ether, key};

fn transfer(nonce: u64) -> Transaction {
    Transaction {
        chain: 77,
        nonce,
        priority_fee: 1,
        max_fee: 1,
        gas: 21_000,
        to: Some(Address::repeat_byte(5)),
        value: U256::from(1),
        data: alloy_primitives::Bytes::new(),
    }
}

#[test]
fn what_is_asked_wrongly_is_answered_with_what_is_wrong_and_changes_nothing() {
    let world = World::new(77);
    let before = world.ask("eth_blockNumber", &json!([]))["result"].clone();
    let send = |transaction: &Transaction, who: usize| {
        let raw = transaction.sign(&key(who)).unwrap().raw_hex();
        world.ask("eth_sendRawTransaction", &json!([raw]))
    };
    let poor = Key(9).send(&world);
    let rich = Transaction {
        value: ether(11),
        ..transfer(0)
    };
    let elsewhere = Transaction {
        chain: 78,
        ..transfer(0)
    };
    let thirsty = Transaction {
        gas: 20_000,
        ..transfer(0)
    };
    let greedy = Transaction {
        gas: 31_000_000,
        ..transfer(0)
    };
    let address = json!(key(0).address());
    for (answer, code, word) in [
        (poor, -32_000, "chain give"),
        (send(&rich, 0), -32_000, "insufficient funds"),
        (send(&elsewhere, 0), -32_000, "for the chain 78"),
        (send(&thirsty, 0), -32_000, "not valid"),
        (send(&greedy, 0), -32_000, "not valid"),
        (send(&transfer(1), 0), -32_000, "nonce too high"),
        (
            world.ask("eth_sendRawTransaction", &json!(["0x02"])),
            -32_000,
            "malformed",
        ),
        (
            world.ask("eth_sendRawTransaction", &json!(["0x"])),
            -32_000,
            "type 2",
        ),
        (
            world.ask("eth_sendRawTransaction", &json!([])),
            -32_602,
            "params[0]",
        ),
        (
            world.ask("eth_getBalance", &json!(["nobody", "latest"])),
            -32_602,
            "params[0]",
        ),
        (
            world.ask("eth_getBalance", &json!([address, "0x0"])),
            -32_000,
            "latest state",
        ),
        (
            world.ask("eth_call", &json!([{"to": 5}, "latest"])),
            -32_602,
            "params[0]",
        ),
        (world.ask("eth_mine", &json!([])), -32_601, "eth_mine"),
        (answered(&world, "{"), -32_700, "EOF"),
        (answered(&world, "{}"), -32_600, "no method"),
        (answered(&world, "[]"), -32_600, "1 to 100"),
        (answered(&world, "7"), -32_600, "no method"),
    ] {
        assert_eq!(answer["error"]["code"], code, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(word), "{message}");
    }
    assert_eq!(world.ask("eth_blockNumber", &json!([]))["result"], before);
    // One that is told again is not carried out again.
    assert!(send(&transfer(0), 0)["result"].is_string());
    let again = send(&transfer(0), 0);
    assert!(again.to_string().contains("nonce too low"), "{again}");
    let balance = json!([Address::repeat_byte(5), "latest"]);
    assert_eq!(world.ask("eth_getBalance", &balance)["result"], "0x1");
    let low = send(
        &Transaction {
            gas: 22_000,
            ..transfer(0)
        },
        0,
    );
    assert!(low.to_string().contains("nonce too low"), "{low}");
    // A list of questions is a list of answers.
    let both = answered(
        &world,
        r#"[{"id":"a","method":"eth_chainId"},{"id":2,"method":"x"}]"#,
    );
    assert_eq!(
        (&both[0]["id"], &both[0]["result"]),
        (&json!("a"), &json!("0x4d"))
    );
    assert_eq!(
        (&both[1]["id"], &both[1]["error"]["code"]),
        (&json!(2), &json!(-32_601))
    );
}

/// Somebody who has nothing.
struct Key(u8);

impl Key {
    fn send(&self, world: &World) -> Value {
        let nobody = format!("{:02x}", self.0).repeat(32);
        let nobody = cofferdam_chain::Key::from_hex(&nobody, "a test").unwrap();
        let free = Transaction {
            value: U256::ZERO,
            ..transfer(0)
        };
        let raw = free.sign(&nobody).unwrap().raw_hex();
        world.ask("eth_sendRawTransaction", &json!([raw]))
    }
}

fn answered(world: &World, message: &str) -> Value {
    serde_json::from_str(&world.chain.answer(message.as_bytes())).unwrap()
}

#[test]
fn what_several_send_at_once_is_carried_out_once_each_and_makes_one_chain() {
    let world = World::new(78);
    let data = world.data();
    let before = number(&world.ask("eth_blockNumber", &json!([])));
    std::thread::scope(|scope| {
        // Two with a key of their own, two with the same one; each as a process of its own would.
        for who in [0, 1, 2, 2] {
            let data = &data;
            scope.spawn(move || {
                let chain = Embedded::existing(data).unwrap().unwrap();
                let node = Node::here(Arc::new(chain));
                for _ in 0..5 {
                    give(
                        &node,
                        &key(who),
                        Address::repeat_byte(6),
                        U256::from(1),
                        None,
                    )
                    .unwrap();
                }
            });
        }
    });
    let sum = world.ask(
        "eth_getBalance",
        &json!([Address::repeat_byte(6), "latest"]),
    );
    assert_eq!(number(&sum), 20);
    assert_eq!(
        number(&world.ask("eth_blockNumber", &json!([]))),
        before + 20
    );
    let mut parent = json!(B256::ZERO);
    for place in 0..=before + 20 {
        let block = world.ask(
            "eth_getBlockByNumber",
            &json!([format!("{place:#x}"), true]),
        );
        let block = &block["result"];
        assert_eq!(block["parentHash"], parent, "{place}");
        assert_eq!(
            block["transactions"].as_array().unwrap().len(),
            usize::from(place > 0)
        );
        parent = block["hash"].clone();
    }
}

fn number(answer: &Value) -> u64 {
    let text = answer["result"].as_str().unwrap();
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

#[test]
fn a_chain_begins_once_and_every_one_is_another() {
    let dir = tempfile::tempdir().unwrap();
    let one = DataDir::at(dir.path().join("one"));
    assert!(
        Embedded::existing(&one).unwrap().is_none(),
        "looking begins nothing"
    );
    assert!(!one.path().exists());
    let ids: Vec<u64> = std::thread::scope(|scope| {
        let open = || Embedded::open(&one).unwrap().chain_id();
        let all: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let other = Embedded::open(&DataDir::at(dir.path().join("other"))).unwrap();
    assert_ne!(other.chain_id(), ids[0]);
    assert!(ids[0] >= 1 << 40 && ids[0] < 1 << 52, "{ids:?}");
    let chain = Arc::new(Embedded::open(&one).unwrap());
    let owner = Embedded::owner(&one).unwrap();
    let balance = Node::here(Arc::clone(&chain))
        .balance(owner.address())
        .unwrap();
    assert_eq!(balance, ether(1_000_000_000));
    // What the contract turns down comes back in its own words, and another chain is told apart.
    let world = World::new(79);
    let (ledger, _) = world.bonded();
    let refused = ledger.act(&key(2), &Act::Claim, None).unwrap_err();
    assert!(matches!(refused, ChainError::Reverted { .. }), "{refused}");
    assert!(refused.to_string().contains("nothing to do"), "{refused}");
    let wrong = Ledger::open(Node::here(chain), ledger.place().contract, Some(79)).unwrap_err();
    assert!(matches!(wrong, ChainError::OtherChain { .. }), "{wrong}");
}
