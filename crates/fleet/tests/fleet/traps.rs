//! What others write into the places that all of them share, and what is left there by those that went away.

use async_nats::jetstream;
use cofferdam_contract::canonical::Digest;
use cofferdam_fleet::coordinator::{Coordinator, Trust};
use cofferdam_fleet::model::{Carried, EndOutcome, JobRecord, Settings, SlotEnd};
use cofferdam_fleet::{Accepted, FleetError};
use cofferdam_testkit::nats::Nats;
use data_encoding::BASE64URL;
use futures_util::StreamExt as _;
use serde_json::json;

use crate::world::{
    Manner, PATIENCE, calm, connect, ended, hand, payload, runtime, submit, submit_as, until,
};

const OBJECTS: &str = "cofferdam_objects";

async fn context(nats: &Nats) -> jetstream::Context {
    jetstream::new(async_nats::connect(nats.url()).await.unwrap())
}

/// The names of what is in the object store, and which writing of it that is.
async fn objects(nats: &Nats) -> Vec<(String, String)> {
    let store = context(nats).await.get_object_store(OBJECTS).await.unwrap();
    let listed: Vec<_> = store.list().await.unwrap().collect().await;
    let named = listed.into_iter().map(|info| {
        let info = info.unwrap();
        (info.name, info.nuid)
    });
    named.collect()
}

#[test]
fn an_object_that_is_described_and_never_comes_or_points_to_itself_is_not_waited_for() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let context = context(&nats).await;
        let carried = Carried::Object {
            name: "job.trap".into(),
            bytes: 10,
            sha256: Digest::of(b"nothing"),
        };
        let meta = |nuid: &str, options: serde_json::Value| {
            json!({"name": "job.trap", "bucket": OBJECTS, "nuid": nuid, "size": 10, "chunks": 1, "options": options})
                .to_string()
        };
        let to_itself = json!({"link": {"name": "job.trap", "bucket": OBJECTS}});
        for trap in [
            meta("nothing", json!(null)),
            meta("nothing", to_itself),
            meta(">", json!(null)),
            "no description".to_owned(),
        ] {
            let subject = format!("$O.{OBJECTS}.M.{}", BASE64URL.encode(b"job.trap"));
            let put = context.publish(subject, trap.clone().into()).await;
            put.unwrap().await.unwrap();
            let fetched = tokio::time::timeout(PATIENCE, fleet.fetch_at_most(&carried, 1 << 20));
            let fetched = fetched.await.unwrap();
            assert!(
                matches!(fetched, Err(FleetError::Damaged { .. })),
                "{trap}: {fetched:?}"
            );
        }
    });
}

#[test]
fn the_same_payload_again_does_not_take_what_is_there_from_whoever_reads_it() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let task =
            json!({"kind": "command", "argv": ["/bin/true"], "stdin": "i".repeat(200 << 10)});
        let sealed = payload("anything", json!({"task": task}));
        submit(&fleet, &sealed, 1).await.unwrap();
        let before = objects(&nats).await;
        assert_eq!(before.len(), 1);
        assert_eq!(submit(&fleet, &sealed, 1).await.unwrap(), Accepted::Before);
        assert_eq!(objects(&nats).await, before);
    });
}

#[test]
fn a_job_that_was_forgotten_runs_when_it_is_submitted_again_and_one_that_was_canceled_never() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let worker = hand(&nats, "a", Manner::Honest);
        let sealed = payload("anything", json!({}));
        for round in 1..=2 {
            assert_eq!(submit(&fleet, &sealed, 1).await.unwrap(), Accepted::Now);
            let record = ended(&fleet, &sealed).await;
            assert_eq!(record.end.unwrap().outcome, EndOutcome::Agreed);
            assert_eq!(worker.runs(), round);
            fleet.forget(&record.job).await.unwrap();
        }
        // Too large for this worker: it lies in the queue.
        let large = payload("anything", json!({"max_memory_mb": 2048}));
        submit(&fleet, &large, 1).await.unwrap();
        let job = &large.payload().payload_id;
        fleet.cancel(job).await.unwrap();
        let end = ended(&fleet, &large).await.end.unwrap();
        assert_eq!(end.outcome, EndOutcome::Canceled);
        fleet.forget(job).await.unwrap();
        let status = fleet.status().await.unwrap();
        let waiting: u64 = status.queues.iter().map(|queue| queue.waiting).sum();
        assert_eq!(waiting, 0, "{:?}", status.queues);
    });
}

#[test]
fn tenants_whose_names_look_the_same_have_a_queue_each() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let _hand = hand(&nats, "a", Manner::Honest);
        for tenant in ["a.b", "a-2Eb"] {
            let sealed = payload("anything", json!({}));
            submit_as(&fleet, &sealed, 1, tenant, false).await.unwrap();
            let end = ended(&fleet, &sealed).await.end.unwrap();
            assert_eq!(end.outcome, EndOutcome::Agreed, "{tenant}");
        }
    });
}

#[test]
fn a_queue_follows_the_settings_of_its_fleet() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        for seconds in [10, 20] {
            let settings = Settings {
                heartbeat_timeout_ms: seconds * 1000,
                ..calm()
            };
            let fleet = connect(&nats, Some(settings)).await;
            submit(&fleet, &payload("anything", json!({})), 1)
                .await
                .unwrap();
            let work = context(&nats).await.get_stream("COFFERDAM_WORK").await;
            let queues: Vec<_> = work.unwrap().consumers().collect().await;
            let waits: Vec<u64> = queues
                .into_iter()
                .map(|queue| queue.unwrap().config.ack_wait.as_secs())
                .collect();
            assert_eq!(waits, [seconds]);
        }
    });
}

#[test]
fn a_worker_that_could_not_write_its_claim_has_a_part_in_another_slot() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let sealed = payload("anything", json!({}));
        submit(&fleet, &sealed, 1).await.unwrap();
        let claims = context(&nats).await;
        let claims = claims.get_key_value("cofferdam_claims").await.unwrap();
        let taken = format!("{}.by.a", sealed.payload().payload_id);
        claims.put(taken, "7".into()).await.unwrap();
        let _hand = hand(&nats, "a", Manner::Honest);
        let end = ended(&fleet, &sealed).await.end.unwrap();
        assert_eq!(
            (end.outcome, end.workers),
            (EndOutcome::Agreed, vec!["a".to_owned()])
        );
    });
}

#[test]
fn an_answer_that_counted_and_was_made_away_with_is_asked_of_another() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let _first = hand(&nats, "a", Manner::Honest);
        let sealed = payload("writes 300000", json!({"max_output_size_kb": 4096}));
        submit(&fleet, &sealed, 2).await.unwrap();
        let job = sealed.payload().payload_id.clone();
        let is_valid = |record: &JobRecord| {
            let ends = record.slots.iter().map(|slot| &slot.end);
            ends.flatten()
                .any(|end| matches!(end, SlotEnd::Valid { .. }))
        };
        let coordinator = tokio::sync::Mutex::new(Coordinator::new(&fleet, Trust::FirstUse));
        until("one has answered", || async {
            coordinator.lock().await.tend(&job).await.unwrap();
            is_valid(&fleet.job_record(&job).await.unwrap())
        })
        .await;
        let store = context(&nats)
            .await
            .get_object_store(OBJECTS)
            .await
            .unwrap();
        for (name, _) in objects(&nats).await {
            store.delete(name).await.unwrap();
        }
        let _others = ["b", "c"].map(|name| hand(&nats, name, Manner::Honest));
        let record = ended(&fleet, &sealed).await;
        let end = record.end.unwrap();
        let mut workers = end.workers;
        workers.sort();
        assert_eq!(
            (end.outcome, workers),
            (EndOutcome::Agreed, vec!["b".to_owned(), "c".to_owned()])
        );
        assert!(
            record.entries.iter().all(|held| held.worker != "a"),
            "nobody knows who it was"
        );
    });
}
