//! Workers that give no sign of life.

use cofferdam_contract::rules::Offence;
use cofferdam_fleet::LocalLedger;
use cofferdam_fleet::coordinator::{Coordinator, Trust};
use cofferdam_fleet::model::{ClaimState, EndOutcome};
use cofferdam_testkit::nats::Nats;
use serde_json::json;

use crate::world::{Manner, connect, ended, hand, payload, quick, runtime, submit, until};

#[test]
fn a_worker_that_stalls_loses_its_work_to_another_and_is_held_to_account() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(quick())).await;
        let dies = hand(&nats, "dies", Manner::Honest);
        let sealed = payload("takes 60000", json!({}));
        submit(&fleet, &sealed, 1).await.unwrap();
        let job = sealed.payload().payload_id.clone();
        let mut coordinator = Coordinator::new(&fleet, Trust::FirstUse);
        let beats = async || {
            let record = fleet.job_record(&job).await.unwrap();
            match fleet.claims(&record).await.unwrap().first() {
                Some((_, claim)) => match &claim.state {
                    ClaimState::Held { beats, .. } => *beats,
                    _ => 0,
                },
                None => 0,
            }
        };
        until("it lives", || async { beats().await >= 2 }).await;
        assert!(coordinator.tend(&job).await.unwrap().is_none());
        drop(dies);
        // The supervisor alone takes it away: nobody else is there.
        let mut taken = false;
        let deadline = std::time::Instant::now() + crate::world::PATIENCE;
        while !taken {
            assert!(std::time::Instant::now() < deadline);
            coordinator.tend(&job).await.unwrap();
            let record = fleet.job_record(&job).await.unwrap();
            taken = fleet.claims(&record).await.unwrap()[0].1.state == ClaimState::Free;
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let standing = LocalLedger::new(&fleet).standing("dies").await.unwrap();
        assert_eq!(
            standing.offences.get(&Offence::Stall),
            Some(&1),
            "{standing:?}"
        );
        let record = fleet.job_record(&job).await.unwrap();
        assert_eq!(fleet.claims(&record).await.unwrap()[0].1.excluded, ["dies"]);
        // It does not get it back, in whatever life.
        let again = hand(&nats, "dies", Manner::Honest);
        let other = hand(&nats, "other", Manner::Honest);
        until("another has it", || async { other.runs() == 1 }).await;
        assert_eq!(again.runs(), 0);
    });
}

#[test]
fn work_is_taken_over_without_a_coordinator_and_the_late_answer_is_recognised() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(quick())).await;
        let dies = hand(&nats, "dies", Manner::Hangs);
        let sealed = payload("anything", json!({}));
        submit(&fleet, &sealed, 1).await.unwrap();
        until("it runs", || async { dies.runs() == 1 }).await;
        drop(dies);
        let other = hand(&nats, "other", Manner::Honest);
        until("another runs it", || async { other.runs() == 1 }).await;
        let record = ended(&fleet, &sealed).await;
        let end = record.end.unwrap();
        assert_eq!(
            (end.outcome, end.workers),
            (EndOutcome::Agreed, vec!["other".to_owned()])
        );
        let status = fleet.status().await.unwrap();
        assert_eq!((status.results, status.jobs_open), (1, 0));
    });
}
