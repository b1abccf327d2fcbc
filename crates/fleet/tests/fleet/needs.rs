//! Work that not everybody can do, and trouble that is not everybody's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cofferdam_contract::canonical::Digest;
use cofferdam_fleet::FleetError;
use cofferdam_fleet::coordinator::{Coordinator, Trust};
use cofferdam_fleet::model::{EndOutcome, Enforcement, Settings};
use cofferdam_fleet::public::{Bonds, Decided, Part};
use cofferdam_store::bundle::PublicKey;
use cofferdam_testkit::nats::Nats;
use serde_json::json;

use crate::world::{
    Manner, calm, connect, ended, hand, hand_with, payload, runtime, submit, until,
};

#[test]
fn a_payload_that_asks_for_a_gpu_waits_for_a_worker_that_gives_one_and_says_so() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let sealed = payload("echo card", json!({"gpus": "0"}));
        submit(&fleet, &sealed, 1).await.unwrap();
        let job = &sealed.payload().payload_id;
        let waits = async || {
            let jobs = fleet.jobs().await.unwrap();
            let found = jobs.into_iter().find(|summary| summary.job == *job);
            found.unwrap().waits.unwrap_or_default()
        };
        assert_eq!(waits().await, "no worker is ready");
        let without = hand(&nats, "without", Manner::Honest);
        until("it says why", || async {
            waits().await.contains("missing: a GPU")
        })
        .await;
        // Others have their turn meanwhile, and the worker without one never takes it.
        let plain = payload("echo plain", json!({}));
        submit(&fleet, &plain, 1).await.unwrap();
        assert_eq!(
            ended(&fleet, &plain).await.end.unwrap().workers,
            ["without"]
        );
        let _with = hand_with(&nats, "with", Manner::Honest, 1);
        let record = ended(&fleet, &sealed).await;
        assert!(record.class.contains(".gpu."), "{}", record.class);
        let end = record.end.unwrap();
        assert_eq!(
            (end.outcome, end.workers),
            (EndOutcome::Agreed, vec!["with".to_owned()])
        );
        assert_eq!(without.runs(), 1);
        assert_eq!(waits().await, "", "it waits for nothing any more");
    });
}

/// Bonds that cannot be told of one job, for a while.
#[derive(Debug)]
struct Picky {
    job: Digest,
    is_broken: AtomicBool,
    told: Mutex<Vec<String>>,
}

impl Picky {
    fn tell(&self, what: &str, part: &Part) -> Result<(), String> {
        if part.job == self.job && self.is_broken.load(Ordering::SeqCst) {
            return Err("the disk is full".to_owned());
        }
        let mut told = self.told.lock().unwrap();
        told.push(format!("{what} {}", part.worker));
        Ok(())
    }

    fn has(&self, what: &str) -> bool {
        self.told.lock().unwrap().iter().any(|told| told == what)
    }
}

impl Bonds for Picky {
    fn unfit(&self, _: Option<&str>, _: &PublicKey, _: u32) -> Result<Option<String>, String> {
        Ok(None)
    }

    fn bind(&self, part: &Part) -> Result<(), String> {
        self.tell("bind", part)
    }

    fn take(&self, decided: &[Decided]) -> Result<(), String> {
        decided
            .iter()
            .try_for_each(|one| self.tell("take", &one.part))
    }

    fn free(&self, parts: &[Part]) -> Result<(), String> {
        parts.iter().try_for_each(|part| self.tell("free", part))
    }
}

#[test]
fn trouble_with_one_job_keeps_no_other_waiting_and_ends_with_its_cause() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let settings = Settings {
            enforcement: Enforcement::Public {
                chain_id: 1,
                contract: "0x0".to_owned(),
                minimum_bond: "1".to_owned(),
                job_bond: "1".to_owned(),
            },
            ..calm()
        };
        let fleet = connect(&nats, Some(settings)).await;
        let troubled = payload("takes 600000", json!({}));
        let bonds = Arc::new(Picky {
            job: troubled.digest(),
            is_broken: AtomicBool::new(true),
            told: Mutex::default(),
        });
        let mut coordinator = Coordinator::new(&fleet, Trust::FirstUse);
        coordinator = coordinator.with_bonds(Arc::clone(&bonds) as Arc<dyn Bonds>);
        let busy = hand(&nats, "busy", Manner::Honest);
        submit(&fleet, &troubled, 1).await.unwrap();
        until("it is taken", || async { busy.runs() == 1 }).await;
        let other = payload("echo other", json!({}));
        submit(&fleet, &other, 1).await.unwrap();
        let _free = hand(&nats, "free", Manner::Honest);
        let deadline = std::time::Instant::now() + crate::world::PATIENCE;
        loop {
            assert!(
                std::time::Instant::now() < deadline,
                "the other does not end"
            );
            let (open, troubles) = coordinator.tend_all().await.unwrap();
            assert!(troubles.len() <= 1, "{troubles:?}");
            for trouble in &troubles {
                assert!(matches!(trouble, FleetError::Talk { .. }), "{trouble}");
                assert!(
                    trouble.to_string().contains("the disk is full"),
                    "{trouble}"
                );
            }
            if (open, troubles.len()) == (1, 1) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let job = |sealed: &cofferdam_contract::seal::Sealed| sealed.payload().payload_id.clone();
        let record = fleet.job_record(&job(&other)).await.unwrap();
        assert_eq!(record.end.unwrap().outcome, EndOutcome::Agreed);
        assert!(bonds.has("take free") && bonds.has("free free"));
        // Nobody was blamed for what we could not write down.
        let record = fleet.job_record(&job(&troubled)).await.unwrap();
        assert!(
            record.end.is_none() && record.entries.is_empty(),
            "{record:#?}"
        );
        // When the cause has gone, the job is seen to like any other.
        bonds.is_broken.store(false, Ordering::SeqCst);
        let (open, troubles) = coordinator.tend_all().await.unwrap();
        assert_eq!((open, troubles.len()), (1, 0), "{troubles:?}");
        assert!(bonds.has("bind busy"));
        fleet.cancel(&job(&troubled)).await.unwrap();
        let name = job(&troubled);
        let waited = coordinator.wait_for(&name);
        let record = tokio::time::timeout(crate::world::PATIENCE, waited).await;
        let end = record.unwrap().unwrap().end.unwrap();
        assert_eq!(end.outcome, EndOutcome::Canceled);
        assert!(bonds.has("free busy"), "what was bound is let go");
    });
}
