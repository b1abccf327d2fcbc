//! Jobs that go well, and those that cannot be done.

use cofferdam_contract::canonical::Digest;
use cofferdam_contract::request::BackendName;
use cofferdam_contract::rules::Offence;
use cofferdam_fleet::class::Class;
use cofferdam_fleet::coordinator::{Coordinator, Trust};
use cofferdam_fleet::judge;
use cofferdam_fleet::model::{Carried, EndOutcome, Settings, SlotEnd, WorkerState};
use cofferdam_fleet::{
    Accepted, Address, Drain, Errand, Fleet, FleetError, LocalLedger, Submission, scope_of,
};
use cofferdam_testkit::nats::Nats;
use serde_json::json;

use crate::world::{
    FILES, Key, Manner, PATIENCE, calm, connect, ended, hand, payload, quick, runtime, submit,
    submit_as, until,
};

#[test]
fn three_replicas_go_to_three_workers_and_agree() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let _hands = ["a", "b", "c"].map(|name| hand(&nats, name, Manner::Honest));
        let sealed = payload("a sum", json!({}));
        assert_eq!(submit(&fleet, &sealed, 3).await.unwrap(), Accepted::Now);
        let record = ended(&fleet, &sealed).await;
        let end = record.end.unwrap();
        assert_eq!(end.outcome, EndOutcome::Agreed);
        let mut workers = end.workers;
        workers.sort();
        assert_eq!(workers, ["a", "b", "c"]);
        for name in ["a", "b", "c"] {
            let standing = LocalLedger::new(&fleet).standing(name).await.unwrap();
            assert_eq!((standing.reputation, standing.confirmed), (55, 1));
        }
        // The same payload again is the same job, and nothing runs twice.
        assert_eq!(submit(&fleet, &sealed, 3).await.unwrap(), Accepted::Before);
        let status = fleet.status().await.unwrap();
        assert_eq!((status.results, status.jobs_open), (3, 0));
        until("all are ready", || async {
            fleet.status().await.unwrap().workers_ready == 3
        })
        .await;
        // A worker writes that it has answered when its answer is there, and may be counted already.
        until("all say that they have answered", || async {
            let events = fleet.events(&record.job).await.unwrap();
            let answered = events.iter().filter(|event| event.what == "answered");
            answered.count() == 3
        })
        .await;
        let events = fleet.events(&record.job).await.unwrap();
        let count = |what: &str| events.iter().filter(|event| event.what == what).count();
        assert_eq!(
            (count("taken"), count("answered"), count("ended")),
            (3, 3, 1)
        );
        assert!(events.iter().any(|event| event.logs == ["a line"]));
    });
}

#[test]
fn another_payload_under_the_same_id_is_refused() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let one = payload("one", json!({"payload_id": "SAME"}));
        let other = payload("other", json!({"payload_id": "SAME"}));
        assert_eq!(submit(&fleet, &one, 1).await.unwrap(), Accepted::Now);
        assert_eq!(submit(&fleet, &one, 1).await.unwrap(), Accepted::Before);
        let refused = submit(&fleet, &other, 1).await;
        assert!(
            matches!(refused, Err(FleetError::OtherPayload { .. })),
            "{refused:?}"
        );
        assert_eq!(fleet.status().await.unwrap().queues[0].waiting, 1);
    });
}

#[test]
fn what_is_too_large_for_a_message_lies_in_the_object_store() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let _hand = hand(&nats, "a", Manner::Honest);
        let input = "i".repeat(2 << 20);
        let task = json!({"kind": "command", "argv": ["/bin/true"], "stdin": input});
        let sealed = payload(
            "writes 3000000",
            json!({"task": task, "max_output_size_kb": 4096}),
        );
        submit(&fleet, &sealed, 1).await.unwrap();
        let record = ended(&fleet, &sealed).await;
        assert_eq!(
            record.end.as_ref().unwrap().outcome,
            EndOutcome::Agreed,
            "{record:?}"
        );
        let mut coordinator = Coordinator::new(&fleet, Trust::FirstUse);
        let envelope = coordinator.answer(&record).await.unwrap().unwrap();
        let envelope: serde_json::Value = serde_json::from_slice(&envelope).unwrap();
        assert_eq!(
            envelope["output"]["stdout"].as_str().unwrap().len(),
            3_000_000
        );
    });
}

#[test]
fn a_tenant_with_much_work_does_not_keep_another_waiting() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let many: Vec<_> = (0..8).map(|_| payload("takes 20", json!({}))).collect();
        for sealed in &many {
            submit_as(&fleet, sealed, 1, "much", false).await.unwrap();
        }
        let one = payload("takes 20", json!({}));
        submit_as(&fleet, &one, 1, "little", false).await.unwrap();
        let _hand = hand(&nats, "a", Manner::Honest);
        let said = async |sealed: &cofferdam_contract::seal::Sealed| {
            let events = fleet.events(&sealed.payload().payload_id).await.unwrap();
            let answered = events.iter().find(|event| event.what == "answered");
            answered.map(|event| event.at)
        };
        let answered = async |sealed: &cofferdam_contract::seal::Sealed| {
            until("it says that it has answered", || async {
                said(sealed).await.is_some()
            })
            .await;
            said(sealed).await.unwrap()
        };
        ended(&fleet, &one).await;
        for sealed in &many {
            ended(&fleet, sealed).await;
        }
        let last = many.last().unwrap();
        let mut before = 0;
        for sealed in &many {
            before += usize::from(answered(sealed).await < answered(&one).await);
        }
        assert!(before <= 2, "{before} of the others were first");
        assert!(answered(last).await > answered(&one).await);
    });
}

#[test]
fn work_waits_for_a_worker_that_can_hold_its_limits() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let small = hand(&nats, "small", Manner::Honest);
        let sealed = payload("much memory", json!({"max_memory_mb": 2048}));
        let fits = payload("little memory", json!({}));
        submit(&fleet, &sealed, 1).await.unwrap();
        submit(&fleet, &fits, 1).await.unwrap();
        ended(&fleet, &fits).await;
        assert_eq!(small.runs(), 1, "and not the other");
        let status = fleet.status().await.unwrap();
        let waiting: Vec<u64> = status.queues.iter().map(|queue| queue.waiting).collect();
        assert_eq!((waiting.iter().sum::<u64>(), status.jobs_open), (1, 1));
    });
}

#[test]
fn what_nobody_can_do_is_laid_aside_with_the_reason_and_can_be_done_again() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let refusing = hand(&nats, "no", Manner::Refuses);
        until("it is ready", || async {
            fleet.status().await.unwrap().workers_ready == 1
        })
        .await;
        let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(20);
        let sealed = payload("never", json!({"deadline": soon.to_string()}));
        submit(&fleet, &sealed, 1).await.unwrap();
        let record = ended(&fleet, &sealed).await;
        let end = record.end.unwrap();
        assert_eq!(end.outcome, EndOutcome::Failed);
        let reason = end.reason.unwrap();
        assert!(
            reason.contains("no refused: there is no room") && reason.contains("deadline"),
            "{reason}"
        );
        let dead = fleet.dead_letters(&record.job).await.unwrap();
        assert_eq!(dead.len(), 1);
        assert_eq!(refusing.runs(), 1, "who has refused is not asked again");
        assert!(
            LocalLedger::new(&fleet)
                .standings()
                .await
                .unwrap()
                .is_empty(),
            "no offence"
        );
        drop(refusing);
        assert!(
            matches!(
                fleet.requeue(&record.job).await,
                Err(FleetError::Unfit { .. })
            ),
            "its deadline has passed"
        );
        assert!(matches!(
            fleet.requeue("NONE").await,
            Err(FleetError::NoSuchJob { .. })
        ));
        // One that was started too often has its deadline before it.
        let other = connect(
            &nats,
            Some(Settings {
                max_starts: 1,
                ..quick()
            }),
        )
        .await;
        let sealed = payload("takes 60000", json!({}));
        submit(&other, &sealed, 1).await.unwrap();
        let first = hand(&nats, "dies", Manner::Honest);
        until("it runs", || async { first.runs() == 1 }).await;
        drop(first);
        let _second = hand(&nats, "lives", Manner::Honest);
        let record = ended(&other, &sealed).await;
        assert_eq!(record.end.unwrap().outcome, EndOutcome::Failed);
        assert_eq!(other.dead_letters(&record.job).await.unwrap().len(), 1);
        other.requeue(&record.job).await.unwrap();
        assert!(other.job_record(&record.job).await.unwrap().end.is_none());
    });
}

#[test]
fn a_worker_that_is_drained_finishes_and_takes_nothing_new() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let worker = hand(&nats, "a", Manner::Honest);
        let first = payload("takes 700", json!({}));
        submit(&fleet, &first, 1).await.unwrap();
        until("it runs", || async { worker.runs() == 1 }).await;
        fleet.drain("a", Drain::Yes).await.unwrap();
        let state = async || fleet.workers().await.unwrap()[0].advert.state;
        until("it drains", || async {
            state().await == WorkerState::Draining
        })
        .await;
        let second = payload("later", json!({}));
        submit(&fleet, &second, 1).await.unwrap();
        assert_eq!(
            ended(&fleet, &first).await.end.unwrap().outcome,
            EndOutcome::Agreed
        );
        assert_eq!(worker.runs(), 1);
        fleet.drain("a", Drain::No).await.unwrap();
        assert_eq!(
            ended(&fleet, &second).await.end.unwrap().outcome,
            EndOutcome::Agreed
        );
        worker.drain();
        until("it says so", || async {
            state().await == WorkerState::Stopped
        })
        .await;
        let unknown = fleet.drain("nobody", Drain::Yes).await;
        assert!(matches!(unknown, Err(FleetError::NoSuchWorker { .. })));
    });
}

#[test]
fn a_server_that_is_not_there_and_a_stream_that_is_not_ours_are_told() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let nobody = Address {
            url: "nats://127.0.0.1:1".into(),
            ..Address::default()
        };
        let error = Fleet::connect(&nobody, None).await.unwrap_err();
        assert!(error.to_string().contains("nats-server -js"), "{error}");
        let client = async_nats::connect(nats.url()).await.unwrap();
        let context = async_nats::jetstream::new(client);
        let theirs = async_nats::jetstream::stream::Config {
            name: "COFFERDAM_WORK".into(),
            subjects: vec!["theirs.>".into()],
            ..Default::default()
        };
        context.create_stream(theirs).await.unwrap();
        let address = Address {
            url: nats.url(),
            ..Address::default()
        };
        let error = Fleet::connect(&address, None).await.unwrap_err();
        assert!(matches!(error, FleetError::WrongStream { .. }), "{error}");
        let gone = Address {
            credentials: Some("/no/such/file".into()),
            ..address
        };
        let error = Fleet::connect(&gone, None).await.unwrap_err();
        assert!(error.to_string().contains("--nats-creds"), "{error}");
    });
}

#[test]
fn what_is_gone_from_the_object_store_is_no_server_that_is_away() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let task =
            json!({"kind": "command", "argv": ["/bin/true"], "stdin": "i".repeat(200 << 10)});
        let large = || payload("anything", json!({"task": task}));
        // An answer whose envelope was never put there: its worker is blamed, and the job goes on.
        let (answered, canceled, done) = (large(), large(), large());
        submit(&fleet, &answered, 1).await.unwrap();
        let job = &answered.payload().payload_id;
        let liar = Key::of("liar");
        let nowhere = Carried::Object {
            name: format!("{job}.nowhere"),
            bytes: 10,
            sha256: Digest::of(b"nothing"),
        };
        let subject = format!("cofferdam.result.{job}.0.liar");
        let lie = judge::published(&subject, nowhere, None, None, &liar);
        let client = async_nats::connect(nats.url()).await.unwrap();
        let context = async_nats::jetstream::new(client);
        let lie = serde_json::to_vec(&lie).unwrap();
        context
            .publish(subject, lie.into())
            .await
            .unwrap()
            .await
            .unwrap();
        let trust = Trust::Listed(vec![
            ("liar".into(), liar.0.public_key()),
            ("a".into(), Key::of("a").0.public_key()),
        ]);
        let mut coordinator = Coordinator::new(&fleet, trust);
        assert!(coordinator.tend(job).await.unwrap().is_none());
        let standing = LocalLedger::new(&fleet).standing("liar").await.unwrap();
        assert_eq!(standing.offences.get(&Offence::MalformedResult), Some(&1));
        // A payload that is gone: all others are seen to, and it ends when it is canceled.
        submit(&fleet, &canceled, 1).await.unwrap();
        let gone = &canceled.payload().payload_id;
        fleet
            .release(&fleet.job_record(gone).await.unwrap())
            .await
            .unwrap();
        let (open, troubles) = coordinator.tend_all().await.unwrap();
        assert_eq!((open, troubles.len()), (2, 1), "{troubles:?}");
        assert!(
            matches!(troubles[0], FleetError::Damaged { .. }),
            "{troubles:?}"
        );
        fleet.cancel(gone).await.unwrap();
        let end = ended(&fleet, &canceled).await.end.unwrap();
        assert_eq!(end.outcome, EndOutcome::Canceled);
        // What has ended and was removed is not done again, and an answer that is gone is not waited for.
        let _hand = hand(&nats, "a", Manner::Honest);
        submit(&fleet, &done, 1).await.unwrap();
        let mut record = ended(&fleet, &done).await;
        assert_eq!(record.end.as_ref().unwrap().outcome, EndOutcome::Agreed);
        fleet.release(&record).await.unwrap();
        let again = fleet.requeue(&record.job).await;
        assert!(matches!(again, Err(FleetError::Unfit { .. })), "{again:?}");
        for slot in &mut record.slots {
            if let Some(SlotEnd::Valid { sequence, .. }) = &mut slot.end {
                *sequence = 1 << 40;
            }
        }
        let lost = coordinator.verified(&record).await;
        assert!(matches!(lost, Err(FleetError::Damaged { .. })), "{lost:?}");
    });
}

#[test]
fn an_answer_with_many_files_fits_into_a_message_and_one_that_does_not_is_no_answer() {
    let Some(nats) = Nats::start_with("max_payload: 140000") else {
        return;
    };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let _hand = hand(&nats, "a", Manner::LeavesFiles);
        let request = "what was asked";
        let sealed = payload(&scope_of(request.as_bytes()), json!({}));
        // A long name makes for few files.
        let job = "j".repeat(200);
        let errand = Errand {
            submission: Submission {
                sealed: &sealed,
                class: Class::of(&sealed, BackendName::Native),
                tenant: "t",
                replicas: 1,
                audited: false,
            },
            job: &job,
            request: request.to_owned(),
        };
        fleet.submit_errand(errand).await.unwrap();
        let mut coordinator = Coordinator::new(&fleet, Trust::FirstUse);
        let record = tokio::time::timeout(PATIENCE, coordinator.wait_for(&job)).await;
        let record = record.unwrap().unwrap();
        assert_eq!(record.end.as_ref().unwrap().outcome, EndOutcome::Agreed);
        let published = coordinator.verified(&record).await.unwrap().unwrap();
        let files = fleet.files_of(&published).await.unwrap();
        assert_eq!(files.len(), FILES);
        assert!(serde_json::to_vec(&files).unwrap().len() > 140_000);
        assert!(fleet.fetch_exactly(&files[FILES - 1], 64).await.is_ok());
        // They go with the job, and the list too.
        fleet.release(&record).await.unwrap();
        for gone in [
            &files[0],
            &files[FILES - 1],
            published.files.as_ref().unwrap(),
        ] {
            let fetched = fleet.fetch_at_most(gone, 1 << 20).await;
            assert!(
                matches!(fetched, Err(FleetError::Damaged { .. })),
                "{fetched:?}"
            );
        }
    });
    let Some(nats) = Nats::start_with("max_payload: 16384") else {
        return;
    };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let worker = hand(&nats, "a", Manner::Honest);
        let sealed = payload("writes 20000", json!({}));
        submit(&fleet, &sealed, 1).await.unwrap();
        let end = ended(&fleet, &sealed).await.end.unwrap();
        let reason = end.reason.unwrap();
        assert_eq!((end.outcome, worker.runs()), (EndOutcome::Failed, 1));
        assert!(
            reason.contains("the server takes 16384 at once"),
            "{reason}"
        );
    });
}
