//! Settling through crashes, outages, blocks that are taken back and prices that rise.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_chain::{Act, Address, Decision, HowLong, Policy, Settler, settlement_id};
use cofferdam_contract::canonical::Digest;
use cofferdam_contract::rules::{Offence, Rules};
use cofferdam_store::DataDir;
use cofferdam_store::settlements::{Settlements, State};
use jiff::Timestamp;
use serde_json::json;

use crate::world::{Town, key, policy, tick, until};

#[test]
fn a_penalty_is_settled_once_however_often_and_by_whomever_it_is_told() {
    let Some(town) = Town::new() else {
        return;
    };
    let outbox = Arc::new(town.outbox());
    let id = town.decide(&outbox, "fact");
    town.decide(&outbox, "fact");
    let settler = town.settler(&outbox, policy(3));
    until("it is on the chain", || {
        tick(&settler);
        outbox.get(&id.to_string()).unwrap().unwrap().state == State::Seen
    });
    assert_eq!(town.stake(), 500);
    town.anvil.mine(2);
    assert_eq!(tick(&settler).settled, 1);
    assert_eq!(outbox.counts().unwrap().settled, 1);
    // Another one that decided the same, from another disk.
    let elsewhere = DataDir::at(town.path("elsewhere"));
    let other =
        Arc::new(Settlements::open(&elsewhere, &town.ledger().place().to_string()).unwrap());
    town.decide(&other, "fact");
    assert_eq!(tick(&town.settler(&other, policy(3))).settled, 1);
    assert_eq!((town.stake(), town.sent()), (500, 1));
    // Many at once, with numbers one after the other.
    for fact in 0..20 {
        let decision = Decision::confirmation(("w", town.worker), &Digest::of(b"job"), 1);
        let body = serde_json::to_string(&decision).unwrap();
        let id = settlement_id("w", &fact.to_string()).to_string();
        outbox.put(&id, &body, Timestamp::now()).unwrap();
    }
    let quick = town.settler(&outbox, policy(1));
    until("all are settled", || tick(&quick).open == 0);
    assert_eq!(town.sent(), 21);
    assert_eq!(town.ledger().account(town.worker).unwrap().reputation, 70);
}

#[test]
fn a_settlement_that_the_chain_takes_back_is_sent_again_once() {
    let Some(town) = Town::new() else {
        return;
    };
    let outbox = Arc::new(town.outbox());
    let id = town.decide(&outbox, "fact").to_string();
    let settler = town.settler(&outbox, policy(4));
    let before = town.anvil.ask("evm_snapshot", &json!([]));
    until("it is seen", || {
        tick(&settler);
        outbox.get(&id).unwrap().unwrap().state == State::Seen
    });
    town.anvil.mine(1);
    assert_eq!(town.stake(), 500);
    // Another chain of blocks wins, and ours is not in it.
    assert_eq!(town.anvil.ask("evm_revert", &json!([before])), true);
    assert_eq!((town.stake(), town.sent()), (1000, 0));
    let said = tick(&settler).said.join(";");
    assert!(
        said.contains("took the settlement") && said.contains("sent again"),
        "{said}"
    );
    until("it is there again", || {
        tick(&settler);
        town.stake() == 500
    });
    town.anvil.mine(5);
    until("it is certain", || {
        tick(&settler);
        outbox.get(&id).unwrap().unwrap().state == State::Settled
    });
    assert_eq!((town.stake(), town.sent()), (500, 1));
}

#[test]
fn a_node_that_is_away_is_waited_for_and_nothing_is_lost() {
    let Some(mut town) = Town::new() else {
        return;
    };
    let outbox = Arc::new(town.outbox());
    let settler = town.settler(&outbox, policy(1));
    town.anvil.stop();
    town.decide(&outbox, "fact");
    let away = settler.tick(Timestamp::now()).unwrap_err();
    assert!(away.is_down(), "{away}");
    let mut told = std::cell::RefCell::new(Vec::new());
    let mut rounds = 0;
    let open = settler.run(
        HowLong::UntilDone,
        |line| told.borrow_mut().push(line.to_owned()),
        |_| {
            rounds += 1;
            rounds < 3
        },
    );
    assert_eq!(open.unwrap().settled, 0);
    assert_eq!(
        told.get_mut().len(),
        1,
        "the same trouble is told once: {told:?}"
    );
    town.anvil.again();
    let wait = |_| {
        std::thread::sleep(Duration::from_millis(50));
        true
    };
    let done = settler.run(HowLong::UntilDone, |_| {}, wait).unwrap();
    assert_eq!((done.settled, done.open), (1, 0));
    assert_eq!((town.stake(), town.sent()), (500, 1));
}

#[test]
fn a_transaction_that_is_too_cheap_is_replaced_and_a_cap_is_kept() {
    let Some(town) = Town::new() else {
        return;
    };
    let outbox = Arc::new(town.outbox());
    let id = town.decide(&outbox, "fact").to_string();
    town.anvil.ask("evm_setAutomine", &json!([false]));
    let first = town.settler(&outbox, policy(1));
    assert_eq!(tick(&first).open, 1);
    until("it waits", || town.pending() == 1);
    let offered = outbox.get(&id).unwrap().unwrap().progress;
    // Blocks have become dearer than what was offered.
    let dear = offered.max_fee * 10;
    town.anvil.ask(
        "anvil_setNextBlockBaseFeePerGas",
        &json!([format!("{dear:#x}")]),
    );
    town.anvil.mine(1);
    assert_eq!((town.stake(), tick(&first).open), (1000, 1));
    let impatient = Policy {
        bump_after: Duration::ZERO,
        max_fee: Some(offered.max_fee),
        ..policy(1)
    };
    let said = tick(&town.settler(&outbox, impatient)).said.join(";");
    assert!(said.contains("cheaper time"), "{said}");
    let generous = Policy {
        max_fee: None,
        ..impatient
    };
    let said = tick(&town.settler(&outbox, generous)).said.join(";");
    assert!(said.contains("are offered"), "{said}");
    let replaced = outbox.get(&id).unwrap().unwrap().progress;
    assert!(
        replaced.max_fee > dear && replaced.nonce == offered.nonce && replaced.hashes.len() >= 2
    );
    town.anvil.mine(1);
    until("it is settled", || {
        tick(&first);
        outbox.get(&id).unwrap().unwrap().state == State::Settled
    });
    assert_eq!((town.stake(), town.sent()), (500, 1));
    // What is dearer than the cap is not begun.
    town.anvil.ask("evm_setAutomine", &json!([true]));
    let other = town.decide(&outbox, "other").to_string();
    let poor = Policy {
        max_fee: Some(1),
        ..policy(1)
    };
    let said = tick(&town.settler(&outbox, poor)).said.join(";");
    assert!(said.contains("at most 1 are allowed"), "{said}");
    assert_eq!(outbox.get(&other).unwrap().unwrap().state, State::Waiting);
}

#[test]
fn what_the_contract_refuses_is_told_and_waits_or_is_laid_aside() {
    let Some(town) = Town::new() else {
        return;
    };
    let outbox = Arc::new(town.outbox());
    let settler = town.settler(&outbox, policy(1));
    let owner = key(0);
    town.ledger()
        .act(&owner, &Act::SetPaused(true), None)
        .unwrap();
    let paused = town.decide(&outbox, "paused").to_string();
    let said = tick(&settler).said.join(";");
    assert!(said.contains("paused"), "{said}");
    assert_eq!(outbox.get(&paused).unwrap().unwrap().state, State::Waiting);
    assert!(tick(&settler).said.is_empty(), "it is told once");
    town.ledger()
        .act(&owner, &Act::SetPaused(false), None)
        .unwrap();
    let later = Timestamp::now() + jiff::SignedDuration::from_secs(60);
    until("it is settled", || {
        settler.tick(later).unwrap();
        outbox.get(&paused).unwrap().unwrap().state == State::Settled
    });
    let action = Rules::default().action(Offence::Stall);
    let job = Digest::of(b"job");
    let nobody = Address::repeat_byte(0x77);
    let decision = Decision::penalty(("x", nobody), &job, (Offence::Stall, action), &job, &[]);
    let body = serde_json::to_string(&decision).unwrap();
    let id = settlement_id("x", "fact").to_string();
    outbox.put(&id, &body, Timestamp::now()).unwrap();
    let refused = tick(&settler);
    assert_eq!(refused.refused, 1);
    let kept = outbox.get(&id).unwrap().unwrap();
    assert_eq!(kept.state, State::Refused);
    assert!(kept.progress.note.unwrap().contains("has no bond"));
    // A key that may not settle sends nothing and says so.
    let stranger = Settler::new(town.ledger(), key(4), Arc::clone(&outbox), policy(1));
    town.decide(&outbox, "stranger");
    let said = tick(&stranger).said.join(";");
    assert!(said.contains("may not settle"), "{said}");
    assert_eq!((town.stake(), town.sent()), (500, 1));
}
