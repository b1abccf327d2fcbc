//! Settling on a chain of one's own: stake, slash once, and everything is still there for whoever comes next.

use std::sync::Arc;

use cofferdam_chain::{Act, Address, B256, Decision, Ledger, Policy, Settler, give, settlement_id};
use cofferdam_contract::canonical::Digest;
use cofferdam_contract::rules::{Offence, Rules};
use cofferdam_store::DataDir;
use cofferdam_store::settlements::{Settlements, State};
use jiff::Timestamp;

use crate::world::{World, ether, key};

struct Desk<'a> {
    world: &'a World,
    contract: Address,
    worker: Address,
}

impl<'a> Desk<'a> {
    fn of(world: &'a World) -> Self {
        let (ledger, worker) = world.bonded();
        Self {
            world,
            contract: ledger.place().contract,
            worker,
        }
    }

    fn ledger(&self) -> Ledger {
        Ledger::open(self.world.again(), self.contract, None).unwrap()
    }

    fn outbox(&self, name: &str) -> Arc<Settlements> {
        let dir = DataDir::at(self.world.dir.path().join(name));
        Arc::new(Settlements::open(&dir, &self.ledger().place().to_string()).unwrap())
    }

    fn settler(&self, outbox: &Arc<Settlements>) -> Settler {
        // The usual twelve blocks never come here, and need not.
        Settler::new(self.ledger(), key(1), Arc::clone(outbox), Policy::default())
    }

    /// Half of the bond.
    fn decide(&self, outbox: &Settlements, fact: &str) {
        let action = Rules::default().action(Offence::Crash);
        let job = Digest::of(b"job");
        let named = ("w", self.worker);
        let decision = Decision::penalty(named, &job, (Offence::Crash, action), &job, &[]);
        put(outbox, &decision, fact);
    }

    fn stake(&self) -> u128 {
        self.ledger().account(self.worker).unwrap().stake_wei
    }
}

fn put(outbox: &Settlements, decision: &Decision, fact: &str) {
    let body = serde_json::to_string(decision).unwrap();
    let id = settlement_id("w", fact).to_string();
    outbox.put(&id, &body, Timestamp::now()).unwrap();
}

/// Until nothing is open; bounded in looks, since a block is there at once.
fn settled(settler: &Settler) -> usize {
    let mut sum = 0;
    for _ in 0..20 {
        let tick = settler.tick(Timestamp::now()).unwrap();
        sum += tick.settled;
        if tick.open == 0 {
            return sum;
        }
    }
    panic!("it is not settled after twenty looks");
}

#[test]
fn on_a_chain_of_ones_own_a_penalty_is_settled_once_by_whomever_it_is_told() {
    let world = World::new(80);
    let desk = Desk::of(&world);
    let worker = desk.worker;
    let outbox = desk.outbox("one");
    desk.decide(&outbox, "fact");
    desk.decide(&outbox, "fact");
    assert_eq!(settled(&desk.settler(&outbox)), 1);
    assert_eq!(desk.stake(), 500);
    // Another one that decided the same, from another disk.
    let other = desk.outbox("other");
    desk.decide(&other, "fact");
    assert_eq!(settled(&desk.settler(&other)), 1);
    assert_eq!(desk.stake(), 500, "once");
    // Many at once, with numbers one after the other.
    for fact in 0..20 {
        let decision = Decision::confirmation(("w", worker), &Digest::of(b"job"), 1);
        put(&outbox, &decision, &fact.to_string());
    }
    assert_eq!(settled(&desk.settler(&outbox)), 20);
    assert_eq!(desk.ledger().account(worker).unwrap().reputation, 70);
    // What another version wrote keeps nothing else waiting.
    let strange = settlement_id("w", "strange").to_string();
    outbox
        .put(&strange, "{\"from\": \"tomorrow\"}", Timestamp::now())
        .unwrap();
    let confirmed = Decision::confirmation(("w", worker), &Digest::of(b"job"), 1);
    put(&outbox, &confirmed, "beside it");
    assert_eq!(settled(&desk.settler(&outbox)), 1);
    assert_eq!(outbox.get(&strange).unwrap().unwrap().state, State::Refused);
    assert_eq!(desk.ledger().account(worker).unwrap().reputation, 71);
    // What it will never take is laid aside, and what it does not take now waits.
    let decision = Decision::confirmation(("x", Address::repeat_byte(7)), &Digest::of(b"j"), 1);
    put(&outbox, &decision, "nobody");
    assert_eq!(
        desk.settler(&outbox)
            .tick(Timestamp::now())
            .unwrap()
            .refused,
        1
    );
    desk.ledger()
        .act(&key(0), &Act::SetPaused(true), None)
        .unwrap();
    desk.decide(&outbox, "paused");
    let said = desk.settler(&outbox).tick(Timestamp::now()).unwrap().said;
    assert!(said.join(";").contains("paused"), "{said:?}");
    let id = settlement_id("w", "paused").to_string();
    assert_eq!(outbox.get(&id).unwrap().unwrap().state, State::Waiting);
    assert!(!desk.ledger().network_permitted(B256::ZERO).unwrap());
}

/// More for each unit of gas is no help to an account that has nothing.
#[test]
fn a_settler_without_money_waits_for_it_and_offers_no_more_than_before() {
    let world = World::new(83);
    let desk = Desk::of(&world);
    let poor = key(4);
    let allow = Act::SetSettler {
        settler: poor.address(),
        allowed: true,
    };
    desk.ledger().act(&key(0), &allow, None).unwrap();
    let outbox = desk.outbox("poor");
    desk.decide(&outbox, "fact");
    let settler = Settler::new(
        desk.ledger(),
        key(4),
        Arc::clone(&outbox),
        Policy::default(),
    );
    let id = settlement_id("w", "fact").to_string();
    let progress = || outbox.get(&id).unwrap().unwrap().progress;
    let begun = Timestamp::now();
    let mut said = settler.tick(begun).unwrap().said;
    let first = progress();
    for seconds in 1..500 {
        let now = begun + jiff::SignedDuration::from_secs(seconds);
        said.extend(settler.tick(now).unwrap().said);
    }
    assert!(said.join(";").contains("insufficient funds"), "{said:?}");
    assert!(said.len() <= 2, "the same is told once: {said:?}");
    let last = progress();
    assert_eq!(
        (last.max_fee, last.priority_fee, last.hashes),
        (first.max_fee, first.priority_fee, first.hashes)
    );
    give(
        &world.node(),
        &world.owner(),
        poor.address(),
        ether(1),
        None,
    )
    .unwrap();
    assert_eq!(settled(&settler), 1);
    assert_eq!(desk.stake(), 500);
}

#[test]
fn what_is_locked_for_a_job_is_what_it_costs_and_is_let_go_after_that() {
    let world = World::new(81);
    let (ledger, worker) = world.bonded();
    let desk = Desk {
        world: &world,
        contract: ledger.place().contract,
        worker,
    };
    let outbox = desk.outbox("one");
    let (job, other) = (Digest::of(b"job"), Digest::of(b"other"));
    let lock = |job, wei| Decision::lock(("w", worker), job, wei, Timestamp::now());
    put(&outbox, &lock(&job, 400), "J.0.LOCK");
    assert_eq!(settled(&desk.settler(&outbox)), 1);
    let account = desk.ledger().account(worker).unwrap();
    assert_eq!((account.stake_wei, account.locked_wei), (1000, 400));
    let refused = ledger.act(&key(2), &Act::Announce { wei: 601 }, None);
    assert!(refused.unwrap_err().to_string().contains("600 are free"));
    // Another lock has to wait as long as nothing is free, and nobody else for it.
    put(&outbox, &lock(&other, 700), "K.0.LOCK");
    let tick = desk.settler(&outbox).tick(Timestamp::now()).unwrap();
    assert_eq!((tick.open, tick.refused), (1, 0), "{tick:?}");
    // Half of what is locked, and then the rest is let go: in this order, however soon it comes.
    put(&outbox, &lock(&job, 400), "J.0.LOCK");
    desk.decide(&outbox, "J.0.CRASH");
    put(
        &outbox,
        &Decision::release(("w", worker), &job),
        "J.0.RELEASE",
    );
    let settler = desk.settler(&outbox);
    let mut later = Timestamp::now();
    for _ in 0..10 {
        later += jiff::SignedDuration::from_secs(3);
        settler.tick(later).unwrap();
    }
    let account = desk.ledger().account(worker).unwrap();
    assert_eq!((account.stake_wei, account.locked_wei), (800, 700));
    // One that could not be had before it was decided is given up, and the penalty takes of what is free.
    let third = Digest::of(b"third");
    put(&outbox, &lock(&third, 400), "L.0.LOCK");
    let action = Rules::default().action(Offence::Crash);
    let named = ("w", worker);
    let penalty = Decision::penalty(named, &third, (Offence::Crash, action), &third, &[]);
    put(&outbox, &penalty, "L.0.CRASH");
    let done = settler.tick(later).unwrap();
    assert_eq!(done.refused, 1, "{done:?}");
    assert_eq!(settled(&settler), 1);
    let account = desk.ledger().account(worker).unwrap();
    assert_eq!((account.stake_wei, account.locked_wei), (750, 700));
}
