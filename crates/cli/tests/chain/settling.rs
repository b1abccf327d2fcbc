//! A settling process that is killed where it hurts.

use std::process::{Child, Stdio};

use cofferdam_store::settlements::State;
use cofferdam_testkit::anvil::KEYS;
use cofferdam_testkit::desk;
use cofferdam_testkit::desk::{code, stderr};
use serde_json::json;

use crate::world::{Town, until};

struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_that_is_killed_between_sending_and_hearing_of_it_settles_once_when_it_comes_back() {
    let Some(town) = Town::new(desk!()) else {
        return;
    };
    let outbox = town.outbox();
    let id = town.decide(&outbox, "fact").to_string();
    town.anvil.ask("evm_setAutomine", &json!([false]));
    let settle = || {
        let mut command = town.desk.command();
        command.env("COFFERDAM_CHAIN_KEY", KEYS[1]);
        command.args(["chain", "--rpc", &town.anvil.url(), "--contract"]);
        command.args([&town.contract.to_string(), "settle", "--confirmations", "2"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Guest(command.spawn().unwrap())
    };
    let first = settle();
    until("it is sent", || town.pending() == 1);
    // SIGKILL.
    drop(first);
    assert_eq!(outbox.get(&id).unwrap().unwrap().state, State::Sent);
    // The next one finds it under way and sends nothing again.
    let hasty = town.chain(1, &["settle", "--confirmations", "2", "--within", "1s"]);
    assert!(
        code(&hasty) == 125 && stderr(&hasty).contains("still open"),
        "{}",
        stderr(&hasty)
    );
    assert_eq!(town.pending(), 1);
    town.anvil.mine(3);
    let done = town.told(1, &["settle", "--confirmations", "2"]);
    assert_eq!(done["all"], json!({"open": 0, "settled": 1, "refused": 0}));
    assert_eq!((town.stake(), town.sent(), town.pending()), (500, 1, 0));
    // Killed before it is sent: it was written down and the node never heard of it.
    let other = town.decide(&outbox, "other").to_string();
    let third = settle();
    until("it is sent", || town.pending() == 1);
    drop(third);
    town.anvil.ask("anvil_dropAllTransactions", &json!([]));
    assert_eq!(town.pending(), 0);
    town.anvil.ask("evm_setAutomine", &json!([true]));
    let fourth = settle();
    until("it is on the chain", || town.stake() == 250);
    town.anvil.mine(3);
    until("it is certain", || {
        outbox.get(&other).unwrap().unwrap().state == State::Settled
    });
    drop(fourth);
    assert_eq!(town.sent(), 2);
}
