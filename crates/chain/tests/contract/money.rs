//! What each function does, and who may not call it.

use alloy_primitives::{Address, U256};
use cofferdam_chain::BondLedger;

use crate::world::{DELAY, MONEY, OWNER, SETTLER, TREASURY, WORKERS, World, identity, slash, word};

const ONE: Address = WORKERS[0];
const TWO: Address = WORKERS[1];
const THREE: Address = WORKERS[2];

#[test]
fn a_bond_leaves_when_it_was_announced_and_the_delay_has_passed_and_not_before() {
    let mut world = World::new();
    world.stake(ONE, 1000);
    world.stake(ONE, 500);
    let account = world.account(ONE);
    assert_eq!(
        (account.stake, account.reputation, account.identity),
        (1500, 50, identity(ONE))
    );
    assert!(
        world
            .refused(ONE, &BondLedger::withdrawCall {})
            .contains("nothing to do")
    );
    let too_much = BondLedger::announceWithdrawalCall { amount: 1501 };
    assert!(world.refused(ONE, &too_much).contains("1500 are free"));
    world.done(ONE, &BondLedger::announceWithdrawalCall { amount: 600 });
    world.pass(DELAY - 1);
    assert!(
        world
            .refused(ONE, &BondLedger::withdrawCall {})
            .contains("not before")
    );
    world.pass(1);
    world.done(ONE, &BondLedger::withdrawCall {});
    assert_eq!(
        (world.account(ONE).stake, world.balance(ONE)),
        (900, MONEY - 900)
    );
    assert!(
        world
            .refused(ONE, &BondLedger::withdrawCall {})
            .contains("nothing to do")
    );
    world.done(ONE, &BondLedger::announceWithdrawalCall { amount: 900 });
    world.done(ONE, &BondLedger::cancelWithdrawalCall {});
    world.pass(DELAY);
    assert!(
        world
            .refused(ONE, &BondLedger::withdrawCall {})
            .contains("nothing to do")
    );
    let other = BondLedger::stakeCall { identity: word(9) };
    assert!(
        world
            .try_with(ONE, &other, 5)
            .unwrap_err()
            .text
            .contains("another worker")
    );
    let nobody = BondLedger::stakeCall { identity: word(0) };
    assert!(world.try_with(TWO, &nobody, 5).is_err());
    assert_eq!(world.account(TWO).reputation, 0);
}

#[test]
fn a_part_is_slashed_shared_between_the_protocol_and_those_who_found_out_and_can_be_claimed() {
    let mut world = World::new();
    world.stake(ONE, 1001);
    let mut penalty = slash(1, ONE, 7, 8_000);
    penalty.penalty.beneficiaries = vec![TWO, THREE];
    world.done(SETTLER, &penalty);
    // 80 % of 1001 are 800; half of it for two, 200 each, and the rest for the protocol.
    assert_eq!(world.account(ONE).stake, 201);
    assert_eq!(world.account(ONE).reputation, 30);
    assert_eq!(
        [TWO, THREE, TREASURY].map(|who| world.credit(who)),
        [200, 200, 400]
    );
    let again = world.refused(SETTLER, &penalty);
    assert!(again.contains("settled before"), "{again}");
    let other_words = slash(1, ONE, 8, 10_000);
    assert!(
        world
            .refused(SETTLER, &other_words)
            .contains("settled before")
    );
    let confirm = BondLedger::confirmCall {
        settlement: word(1),
        worker: ONE,
        job: word(7),
        reputation: 5,
    };
    assert!(world.refused(SETTLER, &confirm).contains("settled before"));
    assert!(world.ask(&BondLedger::settledInCall(word(1))) > U256::ZERO);
    assert_eq!(world.ask(&BondLedger::settledInCall(word(2))), U256::ZERO);
    world.done(TWO, &BondLedger::claimCall {});
    assert_eq!((world.balance(TWO), world.credit(TWO)), (MONEY + 200, 0));
    assert!(
        world
            .refused(TWO, &BondLedger::claimCall {})
            .contains("nothing to do")
    );
    // Nobody found it out but the protocol.
    world.done(SETTLER, &slash(2, ONE, 7, 10_000));
    assert_eq!((world.account(ONE).stake, world.credit(TREASURY)), (0, 601));
    let mut own = slash(3, ONE, 7, 10);
    own.penalty.beneficiaries = vec![ONE];
    assert!(world.refused(SETTLER, &own).contains("beneficiaries"));
    assert!(
        world
            .refused(SETTLER, &slash(4, ONE, 7, 10_001))
            .contains("basisPoints")
    );
    assert!(
        world
            .refused(SETTLER, &slash(5, TWO, 7, 10))
            .contains("has no bond")
    );
}

#[test]
fn what_is_locked_for_a_job_is_what_that_job_can_cost_and_nothing_of_it_leaves_before_its_end() {
    let mut world = World::new();
    world.stake(ONE, 1000);
    let until = world.now + 500;
    let lock = |job, amount| crate::world::lock(job, ONE, amount, until);
    world.done(SETTLER, &lock(1, 600));
    assert!(world.refused(SETTLER, &lock(1, 10)).contains("has a lock"));
    assert!(
        world
            .refused(SETTLER, &lock(2, 401))
            .contains("400 are free")
    );
    let announce = |amount| BondLedger::announceWithdrawalCall { amount };
    assert!(world.refused(ONE, &announce(401)).contains("400 are free"));
    world.done(ONE, &announce(300));
    assert!(
        world
            .refused(SETTLER, &lock(2, 101))
            .contains("100 are free")
    );
    // The job's own lock is cut, and the others' is not.
    world.done(SETTLER, &slash(1, ONE, 1, 5_000));
    let account = world.account(ONE);
    assert_eq!(
        (account.stake, account.locked, account.leaving),
        (700, 300, 300)
    );
    // Without a lock, everything that is not locked for others.
    world.done(SETTLER, &slash(2, ONE, 9, 5_000));
    let account = world.account(ONE);
    assert_eq!(
        (account.stake, account.locked, account.leaving),
        (500, 300, 200)
    );
    let release = BondLedger::releaseCall {
        job: word(1),
        worker: ONE,
    };
    assert!(
        world.refused(TWO, &release).contains("not before"),
        "nobody else, as long as it holds"
    );
    world.pass(500);
    world.done(TWO, &release);
    assert_eq!(
        (world.account(ONE).locked, world.bond(ONE, word(1))),
        (0, 0)
    );
    assert!(world.refused(SETTLER, &release).contains("has no lock"));
    world.pass(DELAY);
    world.done(ONE, &BondLedger::withdrawCall {});
    assert_eq!(world.account(ONE).stake, 300);
    for until in [world.now, world.now + 61 * 24 * 3600] {
        let bad = crate::world::lock(3, ONE, 1, until);
        assert!(world.refused(SETTLER, &bad).contains("until"));
    }
}

#[test]
fn a_lock_that_is_used_up_keeps_the_rest_of_the_bond_from_the_same_job() {
    let mut world = World::new();
    world.stake(ONE, 1000);
    let until = world.now + 500;
    world.done(SETTLER, &crate::world::lock(1, ONE, 100, until));
    world.done(SETTLER, &slash(1, ONE, 1, 10_000));
    world.done(SETTLER, &slash(2, ONE, 1, 8_000));
    let account = world.account(ONE);
    assert_eq!((account.stake, account.locked), (900, 0));
    // It ends as every lock does, and only then there can be another.
    let again = crate::world::lock(1, ONE, 100, until);
    assert!(world.refused(SETTLER, &again).contains("has a lock"));
    let release = BondLedger::releaseCall {
        job: word(1),
        worker: ONE,
    };
    world.done(SETTLER, &release);
    world.done(SETTLER, &again);
    assert_eq!(world.account(ONE).locked, 100);
}

#[test]
fn what_is_locked_and_let_go_by_a_name_is_so_once() {
    let mut world = World::new();
    world.stake(ONE, 1000);
    let until = world.now + 500;
    let lock = |settlement, job, amount| BondLedger::lockForCall {
        settlement: word(settlement),
        job: word(job),
        worker: ONE,
        amount,
        until,
    };
    let release = |settlement, job| BondLedger::releaseForCall {
        settlement: word(settlement),
        job: word(job),
        worker: ONE,
    };
    world.done(SETTLER, &lock(1, 1, 600));
    // What is locked already stays as it is, by whatever name.
    world.done(SETTLER, &lock(2, 1, 100));
    assert_eq!(world.bond(ONE, word(1)), 600);
    let again = world.refused(SETTLER, &lock(3, 2, 401));
    assert!(again.contains("400 are free"), "{again}");
    world.done(SETTLER, &lock(3, 2, 400));
    // What the job costs is of its own lock.
    world.done(SETTLER, &slash(4, ONE, 1, 5_000));
    world.done(SETTLER, &release(5, 1));
    let account = world.account(ONE);
    assert_eq!((account.stake, account.locked), (700, 400));
    // Told again it changes nothing, also when it comes after its end.
    for told in [1, 2] {
        let again = world.refused(SETTLER, &lock(told, 1, 100));
        assert!(again.contains("settled before"), "{again}");
    }
    world.done(SETTLER, &release(6, 1));
    assert_eq!(world.account(ONE).locked, 400);
    assert!(
        world
            .refused(TWO, &lock(7, 1, 1))
            .contains("may not settle")
    );
    assert!(
        world
            .refused(ONE, &release(8, 2))
            .contains("may not settle")
    );
}

#[test]
fn reputation_begins_in_the_middle_and_stays_within_its_bounds() {
    let mut world = World::new();
    world.stake(ONE, 1000);
    let confirm = |settlement, reputation| BondLedger::confirmCall {
        settlement: word(settlement),
        worker: ONE,
        job: word(1),
        reputation,
    };
    world.done(SETTLER, &confirm(1, 5));
    assert_eq!(world.account(ONE).reputation, 55);
    world.done(SETTLER, &confirm(2, 100));
    assert_eq!(world.account(ONE).reputation, 100);
    assert!(
        world
            .refused(SETTLER, &confirm(3, 101))
            .contains("reputation")
    );
    for settlement in 10..16 {
        world.done(SETTLER, &slash(settlement, ONE, 1, 0));
    }
    assert_eq!(
        (world.account(ONE).reputation, world.account(ONE).stake),
        (0, 1000)
    );
}

#[test]
fn a_job_may_use_the_network_only_while_it_is_permitted() {
    let mut world = World::new();
    let asked = BondLedger::networkPermittedCall { job: word(5) };
    assert!(!world.ask(&asked));
    let until = world.now + 100;
    world.done(
        SETTLER,
        &BondLedger::permitNetworkCall {
            job: word(5),
            until,
        },
    );
    assert!(world.ask(&asked));
    assert!(!world.ask(&BondLedger::networkPermittedCall { job: word(6) }));
    world.done(OWNER, &BondLedger::setPausedCall { paused_: true });
    assert!(!world.ask(&asked), "while it is paused none may");
    world.done(OWNER, &BondLedger::setPausedCall { paused_: false });
    world.pass(100);
    assert!(!world.ask(&asked), "its time is over");
    let until = world.now + 100;
    world.done(
        SETTLER,
        &BondLedger::permitNetworkCall {
            job: word(5),
            until,
        },
    );
    world.done(SETTLER, &BondLedger::revokeNetworkCall { job: word(5) });
    assert!(!world.ask(&asked));
    let past = BondLedger::permitNetworkCall {
        job: word(5),
        until: world.now,
    };
    assert!(world.refused(SETTLER, &past).contains("until"));
}

#[test]
fn the_owner_hands_over_in_two_steps_and_bounds_hold_for_him_too() {
    let mut world = World::new();
    world.done(OWNER, &BondLedger::proposeOwnerCall { proposed: TWO });
    assert_eq!(world.ask(&BondLedger::ownerCall {}), OWNER);
    assert!(
        world
            .refused(THREE, &BondLedger::acceptOwnershipCall {})
            .contains("not the owner")
    );
    world.done(TWO, &BondLedger::acceptOwnershipCall {});
    assert_eq!(world.ask(&BondLedger::ownerCall {}), TWO);
    assert!(
        world
            .refused(OWNER, &BondLedger::setPausedCall { paused_: true })
            .contains("not the owner")
    );
    let terms = |treasury_, share, delay| BondLedger::setTermsCall {
        treasury_,
        protocolShare_: share,
        withdrawalDelay_: delay,
    };
    for (bad, word) in [
        (terms(Address::ZERO, 1, 1), "treasury"),
        (terms(TREASURY, 10_001, 1), "protocolShare"),
        (terms(TREASURY, 1, 61 * 24 * 3600), "withdrawalDelay"),
    ] {
        assert!(world.refused(TWO, &bad).contains(word));
    }
    // A delay that was announced stays as it was.
    world.stake(ONE, 100);
    world.done(ONE, &BondLedger::announceWithdrawalCall { amount: 100 });
    world.done(TWO, &terms(TREASURY, 10_000, 0));
    assert!(
        world
            .refused(ONE, &BondLedger::withdrawCall {})
            .contains("not before")
    );
    world.pass(DELAY);
    world.done(ONE, &BondLedger::withdrawCall {});
}
