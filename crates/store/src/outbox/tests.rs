//! The outbox, with a clock of its own.

mod bounds;
mod files;
mod model;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::Duration;

use jiff::{Timestamp, ToSpan as _};
use rusqlite::Connection;

use super::*;
use crate::data_dir::DataDir;
use crate::error::StoreError;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap_or_else(|error| unreachable_dir(&error)),
        }
    }

    fn data_dir(&self) -> DataDir {
        DataDir::at(self.dir.path().join("data"))
    }

    fn open(&self) -> Outbox {
        self.open_with(Limits::default())
    }

    fn open_with(&self, limits: Limits) -> Outbox {
        Outbox::open_with(&self.data_dir(), limits).unwrap_or_else(|error| unopened(&error))
    }
}

#[allow(clippy::panic, reason = "a helper of tests")]
fn unreachable_dir(error: &std::io::Error) -> tempfile::TempDir {
    panic!("{error}")
}

#[allow(clippy::panic, reason = "a helper of tests")]
fn unopened(error: &StoreError) -> Outbox {
    panic!("{error}")
}

const LEASE: Duration = Duration::from_secs(60);

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + (1_800_000_000 + second).seconds()
}

fn message(run: &str, kind: Kind, key: &str) -> Message {
    Message {
        run: run.to_owned(),
        kind,
        url: format!("http://cp.example/{run}"),
        idempotency_key: key.to_owned(),
        body: format!("{{\"key\":\"{key}\"}}").into_bytes(),
        authorization: Some("plane".to_owned()),
        trace: Some(TraceHeaders {
            parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
            state: Some("a=1".to_owned()),
        }),
        peer: Peer::ControlPlane,
    }
}

fn retry(at: Timestamp) -> Retry {
    Retry {
        why: "answered 500".to_owned(),
        at,
        peer_until: None,
    }
}

#[test]
fn what_came_in_comes_out_whole_and_once() {
    let place = Place::new();
    let outbox = place.open();
    let sent = message("r", Kind::Result, "r");
    let enqueued = outbox.enqueue(sent.clone(), at(0)).unwrap();
    let delivery = outbox.next_due(at(0), LEASE).unwrap().unwrap();
    assert_eq!(
        delivery,
        Delivery {
            id: enqueued.id(),
            run: sent.run,
            kind: sent.kind,
            url: sent.url,
            idempotency_key: sent.idempotency_key,
            authorization: sent.authorization,
            peer: sent.peer,
            trace: sent.trace,
            body: sent.body,
            created: at(0),
            attempt: 1,
            peer_failures: 0,
        }
    );
    assert_eq!(outbox.next_due(at(1), LEASE).unwrap(), None);
    outbox.delivered(&delivery, "200", at(1)).unwrap();
    assert_eq!(outbox.next_due(at(1000), LEASE).unwrap(), None);
    assert_eq!(outbox.body(delivery.id).unwrap(), None);
    let figures = outbox.figures(at(2)).unwrap();
    assert_eq!(
        (figures.waiting, figures.waiting_bytes, figures.delivered),
        (0, 0, 1)
    );
}

#[test]
fn the_same_key_to_the_same_url_is_the_same_message_also_after_delivery() {
    let place = Place::new();
    let outbox = place.open();
    let first = outbox
        .enqueue(message("r", Kind::Result, "k"), at(0))
        .unwrap();
    let mut other_body = message("r", Kind::Result, "k");
    other_body.body = b"other".to_vec();
    let again = outbox.enqueue(other_body.clone(), at(1)).unwrap();
    assert_eq!(again, Enqueued::Known(first.id()));
    let delivery = outbox.next_due(at(1), LEASE).unwrap().unwrap();
    outbox.delivered(&delivery, "200", at(1)).unwrap();
    assert_eq!(
        outbox.enqueue(other_body.clone(), at(2)).unwrap(),
        Enqueued::Known(first.id())
    );
    other_body.url = "http://client.example/".to_owned();
    assert!(matches!(
        outbox.enqueue(other_body, at(2)).unwrap(),
        Enqueued::New(_)
    ));
}

#[test]
fn a_run_keeps_its_order_and_holds_up_no_other() {
    let place = Place::new();
    let outbox = place.open();
    for (run, key) in [("a", "a1"), ("a", "a2"), ("b", "b1"), ("a", "a3")] {
        outbox
            .enqueue(message(run, Kind::Status, key), at(0))
            .unwrap();
    }
    let a1 = outbox.next_due(at(0), LEASE).unwrap().unwrap();
    let b1 = outbox.next_due(at(0), LEASE).unwrap().unwrap();
    assert_eq!(
        (a1.idempotency_key.as_str(), b1.idempotency_key.as_str()),
        ("a1", "b1")
    );
    assert_eq!(outbox.next_due(at(1), LEASE).unwrap(), None);
    outbox.failed(&a1, &retry(at(30)), at(1)).unwrap();
    outbox.delivered(&b1, "200", at(1)).unwrap();
    assert_eq!(outbox.next_due(at(29), LEASE).unwrap(), None);
    assert_eq!(outbox.next_due_at().unwrap(), Some(at(30)));
    let a1 = outbox.next_due(at(30), LEASE).unwrap().unwrap();
    assert_eq!((a1.idempotency_key.as_str(), a1.attempt), ("a1", 2));
    outbox.given_up(&a1, "answered 404", None, at(31)).unwrap();
    let a2 = outbox.next_due(at(31), LEASE).unwrap().unwrap();
    assert_eq!(a2.idempotency_key, "a2");
    outbox.delivered(&a2, "200", at(31)).unwrap();
    assert_eq!(
        outbox
            .next_due(at(31), LEASE)
            .unwrap()
            .unwrap()
            .idempotency_key,
        "a3"
    );
}

#[test]
fn a_client_that_is_gone_does_not_hold_up_the_control_plane() {
    let place = Place::new();
    let outbox = place.open();
    let mut hook = message("r", Kind::Result, "r");
    hook.url = "http://gone.example/hook".to_owned();
    hook.peer = Peer::Client;
    hook.authorization = None;
    outbox.enqueue(hook, at(0)).unwrap();
    outbox
        .enqueue(message("r", Kind::Result, "r"), at(0))
        .unwrap();
    let gone = outbox.next_due(at(0), LEASE).unwrap().unwrap();
    let silent = Retry {
        peer_until: Some(at(100)),
        ..retry(at(100))
    };
    outbox.failed(&gone, &silent, at(0)).unwrap();
    assert_eq!(
        outbox
            .next_due_to(Some(Peer::Client), at(0), LEASE)
            .unwrap(),
        None
    );
    assert_eq!(
        outbox.next_due_at_to(Some(Peer::Client)).unwrap(),
        Some(at(100))
    );
    let other = outbox.next_due(at(0), LEASE).unwrap().unwrap();
    assert_eq!(other.url, "http://cp.example/r");
}

#[test]
fn heartbeats_wait_for_nothing_and_do_not_queue_up() {
    let place = Place::new();
    let outbox = place.open();
    outbox
        .enqueue(message("r", Kind::Status, "s"), at(0))
        .unwrap();
    let status = outbox.next_due(at(0), LEASE).unwrap().unwrap();
    for beat in 0..5 {
        let beat_key = format!("h{beat}");
        outbox
            .enqueue(message("r", Kind::Heartbeat, &beat_key), at(beat))
            .unwrap();
    }
    assert_eq!(outbox.figures(at(5)).unwrap().waiting, 2);
    let beat = outbox.next_due(at(5), LEASE).unwrap().unwrap();
    assert_eq!(beat.idempotency_key, "h4");
    outbox.delivered(&beat, "200", at(5)).unwrap();
    outbox
        .enqueue(message("r", Kind::Heartbeat, "refused"), at(5))
        .unwrap();
    let beat = outbox.next_due(at(5), LEASE).unwrap().unwrap();
    outbox.given_up(&beat, "404", None, at(5)).unwrap();
    assert_eq!(outbox.figures(at(5)).unwrap().given_up, 0);
    outbox
        .enqueue(message("r", Kind::Heartbeat, "late"), at(6))
        .unwrap();
    assert_eq!(outbox.next_due(at(21), LEASE).unwrap(), None);
    assert_eq!(outbox.figures(at(21)).unwrap().waiting, 1);
    outbox
        .enqueue(message("r", Kind::Heartbeat, "last"), at(22))
        .unwrap();
    outbox
        .enqueue(message("r", Kind::Result, "r"), at(22))
        .unwrap();
    outbox.delivered(&status, "200", at(22)).unwrap();
    let result = outbox.next_due(at(22), LEASE).unwrap().unwrap();
    assert_eq!(result.kind, Kind::Result);
    assert_eq!(outbox.next_due(at(22), LEASE).unwrap(), None);
}

#[test]
fn a_lease_ends_and_a_late_failure_changes_nothing() {
    let place = Place::new();
    let outbox = place.open();
    outbox
        .enqueue(message("r", Kind::Result, "r"), at(0))
        .unwrap();
    let first = outbox.next_due(at(0), LEASE).unwrap().unwrap();
    assert_eq!(outbox.next_due(at(59), LEASE).unwrap(), None);
    let second = outbox.next_due(at(60), LEASE).unwrap().unwrap();
    assert_eq!((second.id, second.attempt), (first.id, 2));
    outbox.failed(&first, &retry(at(61)), at(61)).unwrap();
    outbox.given_up(&first, "404", None, at(61)).unwrap();
    assert_eq!(outbox.next_due(at(62), LEASE).unwrap(), None);
    // But what was delivered was delivered.
    outbox.delivered(&first, "200", at(62)).unwrap();
    outbox.failed(&second, &retry(at(63)), at(63)).unwrap();
    assert_eq!(outbox.next_due(at(999), LEASE).unwrap(), None);
}

#[test]
fn what_a_dead_taker_had_is_due_at_once_and_what_a_living_one_has_is_not() {
    let place = Place::new();
    let (alive, dead) = (place.open(), place.open());
    for key in ["1", "2"] {
        alive
            .enqueue(message(key, Kind::Result, key), at(0))
            .unwrap();
    }
    let kept = alive.next_due(at(0), LEASE).unwrap().unwrap();
    let lost = dead.next_due(at(0), LEASE).unwrap().unwrap();
    let other = place.open();
    assert_eq!(other.take_back_from_the_dead(at(1)).unwrap(), 0);
    drop(dead);
    assert_eq!(other.take_back_from_the_dead(at(1)).unwrap(), 1);
    let again = other.next_due(at(1), LEASE).unwrap().unwrap();
    assert_eq!((again.id, again.attempt), (lost.id, 2));
    assert_ne!(again.id, kept.id);
    assert_eq!(other.next_due(at(1), LEASE).unwrap(), None);
}

#[test]
fn a_silent_peer_is_tried_with_one_message_and_its_return_frees_all() {
    let place = Place::new();
    let outbox = place.open();
    for n in 0..5 {
        let run = format!("r{n}");
        outbox
            .enqueue(message(&run, Kind::Result, &run), at(0))
            .unwrap();
    }
    let first = outbox.next_due(at(0), LEASE).unwrap().unwrap();
    let silent = Retry {
        peer_until: Some(at(10)),
        ..retry(at(1000))
    };
    outbox.failed(&first, &silent, at(0)).unwrap();
    assert_eq!(outbox.next_due(at(9), LEASE).unwrap(), None);
    assert_eq!(outbox.next_due_at().unwrap(), Some(at(10)));
    let probe = outbox.next_due(at(10), LEASE).unwrap().unwrap();
    assert_eq!(probe.peer_failures, 1);
    assert_eq!(outbox.next_due(at(10), LEASE).unwrap(), None);
    outbox.delivered(&probe, "200", at(11)).unwrap();
    let mut keys = BTreeSet::new();
    while let Some(delivery) = outbox.next_due(at(11), LEASE).unwrap() {
        keys.insert(delivery.idempotency_key);
    }
    assert_eq!(
        keys.len(),
        4,
        "the one that failed first does not wait its thousand seconds: {keys:?}"
    );
}

#[test]
fn a_clock_that_goes_back_makes_nothing_wait_longer() {
    let place = Place::new();
    let outbox = place.open();
    outbox
        .enqueue(message("r", Kind::Result, "r"), at(100_000))
        .unwrap();
    let delivery = outbox.next_due(at(100_000), LEASE).unwrap().unwrap();
    let silent = Retry {
        peer_until: Some(at(100_010)),
        ..retry(at(100_010))
    };
    outbox.failed(&delivery, &silent, at(100_000)).unwrap();
    // A day back.
    let back = 100_000 - 86_400;
    assert_eq!(outbox.next_due(at(back), LEASE).unwrap(), None);
    assert_eq!(outbox.next_due_at().unwrap(), Some(at(back + 10)));
    let again = outbox.next_due(at(back + 10), LEASE).unwrap().unwrap();
    assert_eq!((again.attempt, again.created), (2, at(back)));
    // A second back is a clock that is being kept right: nothing moves.
    outbox
        .failed(&again, &retry(at(back + 20)), at(back + 10))
        .unwrap();
    assert_eq!(outbox.next_due(at(back + 9), LEASE).unwrap(), None);
    assert_eq!(outbox.next_due_at().unwrap(), Some(at(back + 20)));
}

#[test]
fn many_threads_and_two_openings_lose_nothing_and_take_each_once() {
    let place = Place::new();
    let boxes = [place.open(), place.open()];
    thread::scope(|scope| {
        for worker in 0..8 {
            let outbox = &boxes[worker % 2];
            scope.spawn(move || {
                for n in 0..25 {
                    let key = format!("{worker}-{n}");
                    outbox
                        .enqueue(message(&key, Kind::Result, &key), at(0))
                        .unwrap();
                }
            });
        }
    });
    let taken: Vec<String> = thread::scope(|scope| {
        let takers: Vec<_> = (0..8)
            .map(|worker| {
                let outbox = &boxes[worker % 2];
                scope.spawn(move || {
                    let mut keys = Vec::new();
                    while let Some(delivery) = outbox.next_due(at(0), LEASE).unwrap() {
                        keys.push(delivery.idempotency_key.clone());
                        outbox.delivered(&delivery, "200", at(0)).unwrap();
                    }
                    keys
                })
            })
            .collect();
        takers
            .into_iter()
            .flat_map(|taker| taker.join().unwrap())
            .collect()
    });
    assert_eq!(taken.len(), 200);
    assert_eq!(taken.into_iter().collect::<BTreeSet<_>>().len(), 200);
}

#[test]
fn one_who_waits_is_woken_by_what_comes_in() {
    let place = Place::new();
    let outbox = place.open();
    let seen = outbox.rung();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| outbox.wait(seen, Duration::from_secs(60)));
        outbox
            .enqueue(message("r", Kind::Result, "r"), at(0))
            .unwrap();
        waiting.join().unwrap();
    });
    // It rang since: no wait at all.
    outbox.wait(seen, Duration::from_secs(60));
}
