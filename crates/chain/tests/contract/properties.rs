//! Whatever anybody does in whatever order: no money is made or lost, and nothing leaves its bounds.

use alloy_primitives::Address;
use cofferdam_chain::BondLedger;
use proptest::prelude::*;

use crate::world::{OWNER, SETTLER, TREASURY, WORKERS, World, identity, lock, word};

#[derive(Debug, Clone)]
enum Step {
    Stake(usize, u128),
    Announce(usize, u128),
    Cancel(usize),
    Withdraw(usize),
    Claim(usize),
    Lock(usize, u64, u128),
    /// By a name, as the last two.
    LockFor(usize, u64, u128, u64),
    Release(usize, u64),
    ReleaseFor(usize, u64, u64),
    Slash {
        who: usize,
        job: u64,
        settlement: u64,
        basis_points: u16,
        reputation: u8,
        shares: usize,
    },
    Confirm {
        who: usize,
        settlement: u64,
        reputation: u8,
    },
    Pause(bool),
    Pass(u64),
    Terms(u16),
}

const JOBS: u64 = 3;

fn step() -> impl Strategy<Value = Step> {
    let who = 0..WORKERS.len();
    let wei = 0u128..2_000;
    prop_oneof![
        4 => (who.clone(), wei.clone()).prop_map(|(who, wei)| Step::Stake(who, wei)),
        3 => (who.clone(), wei.clone()).prop_map(|(who, wei)| Step::Announce(who, wei)),
        1 => who.clone().prop_map(Step::Cancel),
        3 => who.clone().prop_map(Step::Withdraw),
        // The treasury claims too.
        2 => (0..WORKERS.len() + 1).prop_map(Step::Claim),
        3 => (who.clone(), 0..JOBS, wei.clone()).prop_map(|(who, job, wei)| Step::Lock(who, job, wei)),
        3 => (who.clone(), 0..JOBS, wei, 0u64..20).prop_map(|(who, job, wei, name)| Step::LockFor(who, job, wei, name)),
        2 => (who.clone(), 0..JOBS, 0u64..20).prop_map(|(who, job, name)| Step::ReleaseFor(who, job, name)),
        2 => (who.clone(), 0..JOBS).prop_map(|(who, job)| Step::Release(who, job)),
        5 => (who.clone(), 0..JOBS, 0u64..20, 0u16..=10_000, any::<u8>(), 0usize..4).prop_map(
            |(who, job, settlement, basis_points, reputation, shares)| Step::Slash {
                who, job, settlement, basis_points, reputation, shares,
            }
        ),
        2 => (who, 0u64..20, 0u8..=100).prop_map(|(who, settlement, reputation)| Step::Confirm { who, settlement, reputation }),
        1 => any::<bool>().prop_map(Step::Pause),
        3 => (0u64..1500).prop_map(Step::Pass),
        1 => (0u16..=10_000).prop_map(Step::Terms),
    ]
}

/// True where it was done.
fn play(world: &mut World, step: &Step) -> bool {
    let of = |who: usize| WORKERS[who];
    let done = match *step {
        Step::Stake(who, wei) => world.try_with(
            of(who),
            &BondLedger::stakeCall {
                identity: identity(of(who)),
            },
            wei,
        ),
        Step::Announce(who, amount) => {
            world.try_call(of(who), &BondLedger::announceWithdrawalCall { amount })
        }
        Step::Cancel(who) => world.try_call(of(who), &BondLedger::cancelWithdrawalCall {}),
        Step::Withdraw(who) => world.try_call(of(who), &BondLedger::withdrawCall {}),
        Step::Claim(who) => {
            let who = WORKERS.get(who).copied().unwrap_or(TREASURY);
            world.try_call(who, &BondLedger::claimCall {})
        }
        Step::Lock(who, job, amount) => {
            let until = world.now + 700;
            world.try_call(SETTLER, &lock(job, of(who), amount, until))
        }
        Step::LockFor(who, job, amount, settlement) => {
            let call = BondLedger::lockForCall {
                settlement: word(settlement),
                job: word(job),
                worker: of(who),
                amount,
                until: world.now + 700,
            };
            world.try_call(SETTLER, &call)
        }
        Step::ReleaseFor(who, job, settlement) => {
            let call = BondLedger::releaseForCall {
                settlement: word(settlement),
                job: word(job),
                worker: of(who),
            };
            world.try_call(SETTLER, &call)
        }
        Step::Release(who, job) => world.try_call(
            of(who),
            &BondLedger::releaseCall {
                job: word(job),
                worker: of(who),
            },
        ),
        Step::Slash {
            who,
            job,
            settlement,
            basis_points,
            reputation,
            shares,
        } => {
            let others: Vec<Address> = WORKERS
                .into_iter()
                .filter(|other| *other != of(who))
                .collect();
            let penalty = BondLedger::Penalty {
                settlement: word(settlement),
                worker: of(who),
                job: word(job),
                basisPoints: basis_points,
                reason: 1,
                reputation,
                evidence: word(0),
                beneficiaries: others.into_iter().cycle().take(shares).collect(),
            };
            world.try_call(SETTLER, &BondLedger::slashCall { penalty })
        }
        Step::Confirm {
            who,
            settlement,
            reputation,
        } => {
            let call = BondLedger::confirmCall {
                settlement: word(settlement),
                worker: of(who),
                job: word(0),
                reputation,
            };
            world.try_call(SETTLER, &call)
        }
        Step::Pause(paused_) => world.try_call(OWNER, &BondLedger::setPausedCall { paused_ }),
        Step::Pass(seconds) => {
            world.pass(seconds);
            return true;
        }
        Step::Terms(share) => {
            let call = BondLedger::setTermsCall {
                treasury_: TREASURY,
                protocolShare_: share,
                withdrawalDelay_: 500,
            };
            world.try_call(OWNER, &call)
        }
    };
    done.is_ok()
}

/// Everything that could be counted wrong.
#[derive(Debug, Clone, PartialEq)]
struct Books {
    accounts: Vec<BondLedger::Account>,
    credits: Vec<u128>,
    held: u128,
    everything: u128,
}

fn books(world: &mut World) -> Books {
    let ledger = world.ledger;
    let accounts: Vec<_> = WORKERS.map(|worker| world.account(worker)).into();
    let credits: Vec<u128> = WORKERS
        .into_iter()
        .chain([TREASURY])
        .map(|who| world.credit(who))
        .collect();
    let held = world.balance(ledger);
    let people = WORKERS.into_iter().chain([OWNER, SETTLER, TREASURY]);
    let everything = held + people.map(|who| world.balance(who)).sum::<u128>();
    Books {
        accounts,
        credits,
        held,
        everything,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_money_is_made_or_lost_and_nothing_leaves_its_bounds(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        let mut before = books(&mut world);
        let everything = before.everything;
        let mut settled = std::collections::BTreeSet::new();
        for step in steps {
            let was_paused = world.ask(&BondLedger::pausedCall {});
            let done = play(&mut world, &step);
            let after = books(&mut world);
            prop_assert_eq!(after.everything, everything, "{:?}", step);
            let stakes: u128 = after.accounts.iter().map(|account| account.stake).sum();
            prop_assert_eq!(after.held, stakes + after.credits.iter().sum::<u128>(), "{:?}", step);
            for (worker, account) in WORKERS.into_iter().zip(&after.accounts) {
                let locks: u128 = (0..JOBS).map(|job| world.bond(worker, word(job))).sum();
                prop_assert_eq!(locks, account.locked);
                prop_assert!(account.locked + account.leaving <= account.stake, "{:?} {:?}", step, account);
                prop_assert!(account.reputation <= 100);
            }
            if !done || was_paused && !matches!(step, Step::Pause(_)) {
                prop_assert_eq!(&after, &before, "{:?} was refused or the contract paused", step);
            }
            if let Step::Slash { who, settlement, .. } = step {
                // Once for each name, and never more than there was.
                let is_new = settled.insert(settlement);
                prop_assert!(!done || is_new);
                if !done && is_new { settled.remove(&settlement); }
                let lost = before.accounts[who].stake - after.accounts[who].stake;
                prop_assert!(lost <= before.accounts[who].stake);
                prop_assert_eq!(after.held, before.held, "a penalty moves shares, not money");
            }
            let named = match step {
                Step::Confirm { settlement, .. }
                | Step::LockFor(.., settlement)
                | Step::ReleaseFor(.., settlement) => Some(settlement),
                _ => None,
            };
            if let Some(settlement) = named.filter(|_| done) {
                prop_assert!(settled.insert(settlement), "{:?}", step);
            }
            before = after;
        }
    }
}
