//! Workers that lie are caught, held to account once, and replaced.

use cofferdam_contract::canonical::Digest;
use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::replicas::Outcome;
use cofferdam_contract::request::BackendName;
use cofferdam_contract::rules::Offence;
use cofferdam_fleet::class::Class;
use cofferdam_fleet::coordinator::{Coordinator, Trust};
use cofferdam_fleet::model::{Carried, EndOutcome};
use cofferdam_fleet::{Accepted, Errand, FleetError, LocalLedger, Submission, scope_of};
use cofferdam_testkit::nats::Nats;
use jiff::Timestamp;
use serde_json::json;

use crate::world::{
    Key, Manner, calm, connect, ended, hand, payload, runtime, submit, submit_as, until,
};

#[test]
fn an_answer_that_does_not_hold_is_rejected_its_worker_quarantined_and_another_asked() {
    for (manner, offence) in [
        (Manner::ForgesProof, Offence::BadProof),
        (Manner::OtherPayload, Offence::WrongPayload),
        (Manner::OthersName, Offence::WrongPayload),
        (Manner::Replays, Offence::Replay),
        (Manner::Oversize, Offence::OutputTooLarge),
        (Manner::Garbage, Offence::MalformedResult),
    ] {
        let Some(nats) = Nats::start() else { return };
        runtime().block_on(async {
            let fleet = connect(&nats, Some(calm())).await;
            let liar = hand(&nats, "liar", manner);
            let sealed = payload("anything", json!({}));
            submit(&fleet, &sealed, 1).await.unwrap();
            until("it has lied", || async { liar.runs() == 1 }).await;
            let _honest = hand(&nats, "honest", Manner::Honest);
            let record = ended(&fleet, &sealed).await;
            let end = record.end.unwrap();
            assert_eq!(
                (end.outcome, end.workers),
                (EndOutcome::Agreed, vec!["honest".into()]),
                "{manner:?}"
            );
            let ledger = LocalLedger::new(&fleet);
            let standing = ledger.standing("liar").await.unwrap();
            assert_eq!(
                standing.offences.get(&offence),
                Some(&1),
                "{manner:?}: {standing:?}"
            );
            assert!(standing.is_quarantined(Timestamp::now()) && standing.reputation == 30);
            let out = ledger.quarantined(Timestamp::now()).await.unwrap();
            assert_eq!(out, ["liar"]);
            let lifted = ledger.lift("liar", "a test").await.unwrap();
            assert!(!lifted.is_quarantined(Timestamp::now()) && lifted.entries.len() == 2);
            let nobody = ledger.lift("nobody", "").await;
            assert!(matches!(nobody, Err(FleetError::NoSuchWorker { .. })));
        });
    }
}

#[test]
fn a_run_beyond_its_limits_that_is_not_admitted_is_no_quarantine_and_no_answer() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let over = hand(&nats, "over", Manner::OverLimits);
        let sealed = payload("anything", json!({}));
        submit(&fleet, &sealed, 1).await.unwrap();
        until("it ran", || async { over.runs() == 1 }).await;
        let _honest = hand(&nats, "honest", Manner::Honest);
        let record = ended(&fleet, &sealed).await;
        assert_eq!(record.end.unwrap().workers, ["honest"]);
        let standing = LocalLedger::new(&fleet).standing("over").await.unwrap();
        assert_eq!(standing.offences.get(&Offence::RuntimeViolation), Some(&1));
        assert_eq!(standing.quarantined_until, None);
    });
}

#[test]
fn the_minority_is_named_and_a_tie_fails_without_blame() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let _hands = [("a", Manner::Honest), ("liar", Manner::Lies)]
            .map(|(name, manner)| hand(&nats, name, manner));
        let ledger = LocalLedger::new(&fleet);
        let tie = payload("a tie", json!({}));
        submit(&fleet, &tie, 2).await.unwrap();
        let end = ended(&fleet, &tie).await.end.unwrap();
        assert_eq!((end.outcome, end.answer), (EndOutcome::Disputed, None));
        assert!(
            ledger.standings().await.unwrap().is_empty(),
            "nobody is blamed"
        );
        let _third = hand(&nats, "b", Manner::Honest);
        let sealed = payload("a majority", json!({}));
        submit(&fleet, &sealed, 3).await.unwrap();
        let end = ended(&fleet, &sealed).await.end.unwrap();
        assert_eq!(end.outcome, EndOutcome::Agreed);
        let agreement = end.agreement.unwrap();
        assert_eq!(
            (agreement.outcome, agreement.required),
            (Outcome::Resolved, 2)
        );
        let named: Vec<&String> = agreement
            .minority
            .iter()
            .map(|place| &end.workers[*place])
            .collect();
        assert_eq!(named, ["liar"]);
        let standing = ledger.standing("liar").await.unwrap();
        assert_eq!(
            standing.offences.get(&Offence::FailedVerification),
            Some(&1)
        );
        assert!(standing.is_quarantined(Timestamp::now()));
    });
}

#[test]
fn a_check_that_does_not_agree_asks_a_third_who_says_who_lied() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let _hands = [
            ("a", Manner::Honest),
            ("b", Manner::Honest),
            ("liar", Manner::Lies),
        ]
        .map(|(name, manner)| hand(&nats, name, manner));
        until("all are there", || async {
            fleet.status().await.unwrap().workers_ready == 3
        })
        .await;
        // Until the liar is one of the two that are asked first.
        for _ in 0..20 {
            let sealed = payload("takes 100", json!({}));
            submit_as(&fleet, &sealed, 1, "t", true).await.unwrap();
            let record = ended(&fleet, &sealed).await;
            let end = record.end.unwrap();
            assert_eq!(end.outcome, EndOutcome::Agreed, "{end:?}");
            assert_ne!(end.workers[end.agreement.unwrap().majority[0]], "liar");
            if record.replicas == 3 {
                let standing = LocalLedger::new(&fleet).standing("liar").await.unwrap();
                assert_eq!(
                    standing.offences.get(&Offence::FailedVerification),
                    Some(&1)
                );
                return;
            }
        }
        panic!("the liar was never asked");
    });
}

#[test]
fn a_name_belongs_to_the_key_it_was_first_seen_with_and_strangers_count_for_nothing() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let ledger = LocalLedger::new(&fleet);
        let first = Key::of("x").0.public_key().to_string();
        let other = Key::of("y").0.public_key().to_string();
        assert_eq!(ledger.pinned("x", None).await.unwrap(), None);
        assert_eq!(
            ledger.pinned("x", Some(&first)).await.unwrap(),
            Some(first.clone())
        );
        assert_eq!(ledger.pinned("x", Some(&other)).await.unwrap(), Some(first));
        // With a list, whoever is not on it does not count, and cannot be blamed either.
        let stranger = hand(&nats, "stranger", Manner::Honest);
        let sealed = payload("anything", json!({}));
        submit(&fleet, &sealed, 1).await.unwrap();
        until("it ran", || async { stranger.runs() == 1 }).await;
        drop(stranger);
        let _known = hand(&nats, "known", Manner::Honest);
        let trust = Trust::Listed(vec![("known".into(), Key::of("known").0.public_key())]);
        let mut coordinator = Coordinator::new(&fleet, trust);
        let job = &sealed.payload().payload_id;
        let record = tokio::time::timeout(crate::world::PATIENCE, coordinator.wait_for(job)).await;
        let record = record.unwrap().unwrap();
        assert_eq!(record.end.unwrap().workers, ["known"]);
        assert!(
            ledger
                .standing("stranger")
                .await
                .unwrap()
                .offences
                .is_empty()
        );
    });
}

#[test]
fn what_a_request_answers_beside_its_output_is_compared_too() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let request = "what was asked";
        let sealed = payload(&scope_of(request.as_bytes()), json!({}));
        let _hands = [
            ("a", Manner::Honest),
            ("b", Manner::Honest),
            ("liar", Manner::OtherAnswer),
        ]
        .map(|(name, manner)| hand(&nats, name, manner));
        let errand = Errand {
            submission: Submission {
                sealed: &sealed,
                class: Class::of(&sealed, BackendName::Native),
                tenant: "t",
                replicas: 3,
                audited: false,
            },
            job: "compared",
            request: request.to_owned(),
        };
        fleet.submit_errand(errand).await.unwrap();
        let mut coordinator = Coordinator::new(&fleet, Trust::FirstUse);
        let waited = tokio::time::timeout(crate::world::PATIENCE, coordinator.wait_for("compared"));
        let end = waited.await.unwrap().unwrap().end.unwrap();
        assert_eq!(end.outcome, EndOutcome::Agreed);
        let agreement = end.agreement.unwrap();
        let named = agreement.minority.iter().map(|place| &end.workers[*place]);
        assert_eq!(named.collect::<Vec<_>>(), ["liar"]);
        let standing = LocalLedger::new(&fleet).standing("liar").await.unwrap();
        assert_eq!(
            standing.offences.get(&Offence::FailedVerification),
            Some(&1)
        );
    });
}

#[test]
fn an_answer_that_another_coordinator_let_pass_is_checked_again_by_whom_one_trusts_oneself() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let _stranger = hand(&nats, "stranger", Manner::Honest);
        let sealed = payload("anything", json!({}));
        submit(&fleet, &sealed, 1).await.unwrap();
        // One without a list takes the word of anybody.
        let record = ended(&fleet, &sealed).await;
        assert_eq!(record.end.as_ref().unwrap().outcome, EndOutcome::Agreed);
        let listed =
            |name: &str, key: &str| Trust::Listed(vec![(name.into(), Key::of(key).0.public_key())]);
        for (trust, holds) in [
            (Trust::FirstUse, true),
            (listed("stranger", "stranger"), true),
            (listed("known", "known"), false),
            (listed("stranger", "another"), false),
        ] {
            let mut coordinator = Coordinator::new(&fleet, trust.clone());
            let verified = coordinator.verified(&record).await;
            match holds {
                true => assert!(verified.unwrap().is_some(), "{trust:?}"),
                false => assert_eq!(
                    verified.unwrap_err().code(),
                    ErrorCode::EnvelopeInvalid,
                    "{trust:?}"
                ),
            }
        }
    });
}

#[test]
fn the_record_of_a_request_is_the_one_that_was_signed_for_and_the_request_the_one_that_was_sealed()
{
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let request = "what was asked";
        let sealed = payload(&scope_of(request.as_bytes()), json!({}));
        let submitted = |job: &'static str, request: &str| Errand {
            submission: Submission {
                sealed: &sealed,
                class: Class::of(&sealed, BackendName::Native),
                tenant: "t",
                replicas: 1,
                audited: false,
            },
            job,
            request: request.to_owned(),
        };
        let mut coordinator = Coordinator::new(&fleet, Trust::FirstUse);
        let ledger = LocalLedger::new(&fleet);
        for (job, name, manner) in [
            ("one", "other", Manner::OtherRecord),
            ("two", "none", Manner::NoRecord),
        ] {
            let liar = hand(&nats, name, manner);
            fleet.submit_errand(submitted(job, request)).await.unwrap();
            until("it has lied", || async { liar.runs() == 1 }).await;
            let honest = hand(&nats, "honest", Manner::Honest);
            let waited = tokio::time::timeout(crate::world::PATIENCE, coordinator.wait_for(job));
            let record = waited.await.unwrap().unwrap();
            assert_eq!(record.end.as_ref().unwrap().workers, ["honest"], "{name}");
            let standing = ledger.standing(name).await.unwrap();
            assert_eq!(
                standing.offences.get(&Offence::MalformedResult),
                Some(&1),
                "{name}"
            );
            let published = coordinator.verified(&record).await.unwrap().unwrap();
            assert!(published.more.is_some());
            drop((liar, honest));
        }
        // The same name again is the same job; a request that nobody sealed is run by nobody.
        let again = fleet.submit_errand(submitted("one", "another")).await;
        assert_eq!(again.unwrap(), Accepted::Before);
        let honest = hand(&nats, "honest", Manner::Honest);
        fleet
            .submit_errand(submitted("three", "what nobody sealed"))
            .await
            .unwrap();
        let waited = tokio::time::timeout(crate::world::PATIENCE, coordinator.wait_for("three"));
        let end = waited.await.unwrap().unwrap().end.unwrap();
        assert_eq!(end.outcome, EndOutcome::Failed);
        let reason = end.reason.unwrap();
        assert!(reason.contains("not what was submitted"), "{reason}");
        assert_eq!(honest.runs(), 0);
    });
}

#[test]
fn a_file_has_as_many_bytes_as_it_is_said_to_have() {
    let Some(nats) = Nats::start() else { return };
    runtime().block_on(async {
        let fleet = connect(&nats, Some(calm())).await;
        let client = async_nats::connect(nats.url()).await.unwrap();
        let context = async_nats::jetstream::new(client);
        let objects = context.get_object_store("cofferdam_objects").await.unwrap();
        let contents = b"twelve bytes";
        let put = objects.put("job.file", &mut contents.as_slice()).await;
        put.unwrap();
        let carried = Carried::Object {
            name: "job.file".into(),
            bytes: 1,
            sha256: Digest::of(contents),
        };
        let right = fleet.fetch_exactly(&carried, 12).await.unwrap();
        assert_eq!(right, contents);
        for bytes in [0, 1, 11, 13, u64::MAX] {
            let wrong = fleet.fetch_exactly(&carried, bytes).await;
            assert!(
                matches!(wrong, Err(FleetError::Damaged { .. })),
                "{bytes}: {wrong:?}"
            );
        }
    });
}
