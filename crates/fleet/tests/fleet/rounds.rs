//! Rounds of chance: workers crash and come back, the server is killed and started again, submitters die in the middle. Every job that was accepted ends, once, and what is held for
//! workers adds up.

use std::time::Duration;

use cofferdam_contract::rules::Rules;
use cofferdam_contract::seal::Sealed;
use cofferdam_fleet::coordinator::{Coordinator, Trust};
use cofferdam_fleet::model::{EndOutcome, Settings, SlotEnd};
use cofferdam_fleet::{Fleet, LocalLedger};
use cofferdam_testkit::Chance;
use cofferdam_testkit::nats::Nats;
use serde_json::json;

use crate::world::{Hand, Manner, PATIENCE, connect, hand, payload, quick, runtime, submit};

#[test]
fn everything_accepted_ends_exactly_once_whatever_dies_meanwhile() {
    for chance in Chance::rounds() {
        let Some(nats) = Nats::start() else { return };
        runtime().block_on(one_round(nats, chance));
    }
}

async fn one_round(mut nats: Nats, mut chance: Chance) {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    // Whoever is slow for a moment loses what it has, and nothing else: with an hour of quarantine for each, nobody would be left.
    let rules = Rules::read(json!({"actions": {
        "STALL": {"quarantine_seconds": 0},
        "CRASH": {"quarantine_seconds": 0},
    }}));
    let settings = Settings {
        rules: rules.unwrap(),
        ..quick()
    };
    let fleet = connect(&nats, Some(settings)).await;
    let mut hands: Vec<Option<Hand>> = NAMES
        .map(|name| Some(hand(&nats, name, Manner::Honest)))
        .into();
    let mut jobs: Vec<(Sealed, u32)> = Vec::new();
    for _ in 0..12 {
        let sealed = payload(&format!("takes {}", chance.below(400)), json!({}));
        let replicas = u32::try_from(1 + chance.below(2)).unwrap();
        let dies = chance.below(4) == 0;
        if dies {
            // A submitter that dies somewhere in the middle, and one that comes back with the same payload.
            let soon = Duration::from_millis(chance.below(6));
            let _ = tokio::time::timeout(soon, submit(&fleet, &sealed, replicas)).await;
        }
        accepted(&fleet, &sealed, replicas).await;
        jobs.push((sealed, replicas));
        match chance.below(6) {
            0 => {
                let place = usize::try_from(chance.below(4)).unwrap();
                hands[place] = None;
            }
            1 => {
                nats.kill();
                nats.again();
            }
            _ => {}
        }
        for (place, hand_of) in hands.iter_mut().enumerate() {
            if hand_of.is_none() && chance.below(2) == 0 {
                *hand_of = Some(hand(&nats, NAMES[place], Manner::Honest));
            }
        }
        tokio::time::sleep(Duration::from_millis(chance.below(120))).await;
    }
    // Whoever was hit hard enough to be excluded everywhere has a colleague.
    let _more = ["e", "f", "g", "h"].map(|name| hand(&nats, name, Manner::Honest));
    // Two that coordinate do not decide twice.
    let mut coordinators = [(); 2].map(|()| Coordinator::new(&fleet, Trust::FirstUse));
    let deadline = std::time::Instant::now() + 2 * PATIENCE;
    loop {
        let [one, other] = &mut coordinators;
        let (one, other) = tokio::join!(one.tend_all(), other.tend_all());
        if matches!((one, other), (Ok((0, _)), Ok((0, _))))
            && fleet
                .status()
                .await
                .is_ok_and(|status| status.jobs_open == 0)
        {
            break;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "{:#?}",
            fleet.jobs().await
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    check(&fleet, &jobs).await;
}

async fn accepted(fleet: &Fleet, sealed: &Sealed, replicas: u32) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while submit(fleet, sealed, replicas).await.is_err() {
        assert!(std::time::Instant::now() < deadline, "nothing is accepted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn check(fleet: &Fleet, jobs: &[(Sealed, u32)]) {
    let mut confirmed = 0;
    for (sealed, replicas) in jobs {
        let record = fleet
            .job_record(&sealed.payload().payload_id)
            .await
            .unwrap();
        let end = record.end.as_ref().unwrap();
        assert_eq!(end.outcome, EndOutcome::Agreed, "{record:#?}");
        assert!(record.settled);
        let is_valid = |end: &Option<SlotEnd>| matches!(end, Some(SlotEnd::Valid { .. }));
        let valid = record
            .slots
            .iter()
            .filter(|slot| is_valid(&slot.end))
            .count();
        assert_eq!(
            valid,
            usize::try_from(*replicas).unwrap(),
            "one answer for each replica"
        );
        let mut workers = end.workers.clone();
        workers.sort();
        workers.dedup();
        assert_eq!(workers.len(), valid, "each by another worker");
        confirmed += u64::from(*replicas);
    }
    let standings = LocalLedger::new(fleet).standings().await.unwrap();
    let counted: u64 = standings
        .iter()
        .map(|(_, standing)| standing.confirmed)
        .sum();
    assert_eq!(counted, confirmed, "every answer counts once");
}
