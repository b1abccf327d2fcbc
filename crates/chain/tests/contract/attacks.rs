//! Those who may not, receivers that call again, and money that nobody asked for.

use alloy_primitives::{Address, Bytes, U256};
use alloy_sol_types::{SolCall, sol};
use cofferdam_chain::BondLedger;
use serde_json::Value;

use crate::world::{
    DELAY, OWNER, SETTLER, TREASURY, WORKERS, World, lock, packed, slash, with_address, word,
};

const ONE: Address = WORKERS[0];
const TWO: Address = WORKERS[1];

sol! {
    function prepare(bytes data);
    function act(bytes data, uint256 value);
    function tries() returns (uint256);
    function gotIn() returns (uint256);
}

fn counted<C: SolCall<Return = U256>>(world: &mut World, at: Address, call: &C) -> u64 {
    let answer = world.send(OWNER, at, call.abi_encode().into(), 0).unwrap();
    C::abi_decode_returns(&answer).unwrap().to()
}

#[test]
fn a_receiver_that_calls_again_while_it_is_paid_is_paid_once() {
    let artifact: Value =
        serde_json::from_str(include_str!("../../../../contracts/attacks/Reentrant.json")).unwrap();
    let mut world = World::new();
    world.stake(ONE, 5000);
    let ledger = world.ledger;
    let code = with_address(artifact["bytecode"].as_str().unwrap(), ledger);
    let thief = world.make(TWO, code, 1000);
    let act = |world: &mut World, call: Bytes, value: u64| {
        let call = actCall {
            data: call,
            value: U256::from(value),
        };
        world.send(TWO, thief, call.abi_encode().into(), 0).unwrap();
    };
    act(
        &mut world,
        packed(&BondLedger::stakeCall { identity: word(66) }),
        1000,
    );
    act(
        &mut world,
        packed(&BondLedger::announceWithdrawalCall { amount: 400 }),
        0,
    );
    let mut share = slash(1, ONE, 1, 1_000);
    share.penalty.beneficiaries = vec![thief];
    world.done(SETTLER, &share);
    assert_eq!(world.credit(thief), 250);
    world.pass(DELAY);
    let (withdraw, claim) = (
        packed(&BondLedger::withdrawCall {}),
        packed(&BondLedger::claimCall {}),
    );
    let mut paid = 0;
    for (first, again, amount) in [(&withdraw, &claim, 400), (&claim, &claim, 250)] {
        let prepare = prepareCall {
            data: again.clone(),
        };
        world
            .send(TWO, thief, prepare.abi_encode().into(), 0)
            .unwrap();
        act(&mut world, first.clone(), 0);
        paid += amount;
        assert_eq!(world.balance(thief), paid);
    }
    assert_eq!(counted(&mut world, thief, &triesCall {}), 2, "it did try");
    assert_eq!(counted(&mut world, thief, &gotInCall {}), 0);
    let treasury = world.credit(TREASURY);
    let held = world.account(ONE).stake + world.account(thief).stake + treasury;
    assert_eq!(world.balance(ledger), held);
}

#[test]
fn who_may_not_cannot() {
    let mut world = World::new();
    world.stake(ONE, 1000);
    let until = world.now + 100;
    world.done(SETTLER, &lock(1, ONE, 10, until));
    // The owner is no settler, and a settler no owner.
    for who in [OWNER, ONE, TWO, TREASURY] {
        let text = world.refused(who, &slash(1, ONE, 1, 100));
        assert!(text.contains("may not settle"), "{text}");
        for refused in [
            world.try_call(
                who,
                &BondLedger::confirmCall {
                    settlement: word(2),
                    worker: ONE,
                    job: word(1),
                    reputation: 1,
                },
            ),
            world.try_call(who, &lock(2, ONE, 1, until)),
            world.try_call(
                who,
                &BondLedger::permitNetworkCall {
                    job: word(2),
                    until,
                },
            ),
            world.try_call(who, &BondLedger::revokeNetworkCall { job: word(2) }),
            world.try_call(
                who,
                &BondLedger::releaseCall {
                    job: word(1),
                    worker: ONE,
                },
            ),
        ] {
            assert!(refused.is_err());
        }
    }
    for who in [SETTLER, ONE, TREASURY] {
        for refused in [
            world.try_call(
                who,
                &BondLedger::setSettlerCall {
                    settler: who,
                    allowed: true,
                },
            ),
            world.try_call(who, &BondLedger::setPausedCall { paused_: true }),
            world.try_call(
                who,
                &BondLedger::setTermsCall {
                    treasury_: who,
                    protocolShare_: 0,
                    withdrawalDelay_: 0,
                },
            ),
            world.try_call(who, &BondLedger::proposeOwnerCall { proposed: who }),
            world.try_call(who, &BondLedger::acceptOwnershipCall {}),
        ] {
            assert!(refused.unwrap_err().text.contains("not the owner"));
        }
    }
    world.done(
        OWNER,
        &BondLedger::setSettlerCall {
            settler: SETTLER,
            allowed: false,
        },
    );
    assert!(
        world
            .refused(SETTLER, &slash(1, ONE, 1, 100))
            .contains("may not settle")
    );
    assert_eq!(world.account(ONE).stake, 1000);
}

#[test]
fn while_it_is_paused_nothing_moves() {
    let mut world = World::new();
    world.stake(ONE, 1000);
    let until = world.now + 10;
    world.done(SETTLER, &lock(1, ONE, 10, until));
    world.done(ONE, &BondLedger::announceWithdrawalCall { amount: 100 });
    world.done(SETTLER, &slash(1, ONE, 9, 5_000));
    world.pass(DELAY);
    world.done(OWNER, &BondLedger::setPausedCall { paused_: true });
    let ledger = world.ledger;
    let before = (
        world.account(ONE),
        world.balance(ledger),
        world.credit(TREASURY),
    );
    let stake = BondLedger::stakeCall {
        identity: ONE.into_word(),
    };
    let until = world.now + 10;
    for refused in [
        world.try_with(ONE, &stake, 5),
        world.try_call(ONE, &BondLedger::withdrawCall {}),
        world.try_call(ONE, &BondLedger::announceWithdrawalCall { amount: 1 }),
        world.try_call(ONE, &BondLedger::cancelWithdrawalCall {}),
        world.try_call(TREASURY, &BondLedger::claimCall {}),
        world.try_call(SETTLER, &slash(2, ONE, 1, 100)),
        world.try_call(
            SETTLER,
            &BondLedger::confirmCall {
                settlement: word(3),
                worker: ONE,
                job: word(1),
                reputation: 1,
            },
        ),
        world.try_call(SETTLER, &lock(2, ONE, 1, until)),
        world.try_call(
            ONE,
            &BondLedger::releaseCall {
                job: word(1),
                worker: ONE,
            },
        ),
        world.try_call(
            SETTLER,
            &BondLedger::permitNetworkCall {
                job: word(1),
                until,
            },
        ),
        world.try_call(SETTLER, &BondLedger::revokeNetworkCall { job: word(1) }),
    ] {
        assert!(refused.unwrap_err().text.contains("paused"));
    }
    assert_eq!(
        (
            world.account(ONE),
            world.balance(ledger),
            world.credit(TREASURY)
        ),
        before
    );
    world.done(OWNER, &BondLedger::setPausedCall { paused_: false });
    world.done(ONE, &BondLedger::withdrawCall {});
    world.done(TREASURY, &BondLedger::claimCall {});
}

#[test]
fn money_that_is_sent_without_a_word_is_not_taken() {
    let mut world = World::new();
    let ledger = world.ledger;
    assert!(world.send(ONE, ledger, Bytes::new(), 10).is_err());
    let unknown = Bytes::from_static(&[1, 2, 3, 4]);
    assert!(world.send(ONE, ledger, unknown, 10).is_err());
    assert!(world.try_with(ONE, &BondLedger::claimCall {}, 10).is_err());
    assert_eq!(world.balance(ledger), 0);
}
