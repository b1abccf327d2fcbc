//! Several couriers over one outbox.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_callback::courier::Stopped;
use cofferdam_callback::{Courier, Policy};
use cofferdam_store::DataDir;
use cofferdam_store::outbox::{Kind, Message, Outbox};
use jiff::Timestamp;

use crate::fixture::{Bench, policy, to_client, tokens};
use crate::peer::{Peer, Reply};

#[test]
fn each_message_arrives_once_and_in_the_order_of_its_run() {
    // Some fail at first, at random places.
    let peer = Peer::new(|n, _| Reply::Status(if n % 17 == 3 { 500 } else { 200 }));
    let mut bench = Bench::new().unwrap();
    bench.settings.clock = Arc::new(Timestamp::now);
    bench.settings.schedule.first = vec![Duration::from_millis(1)];
    bench.settings.schedule.then = Duration::from_millis(5);
    bench.settings.look_every = Duration::from_millis(20);
    let dir = DataDir::at(bench.dir.path());
    let couriers: Vec<Courier> = (0..3)
        .map(|_| {
            Courier::start(
                Outbox::open(&dir).unwrap(),
                tokens(),
                bench.settings.clone(),
            )
            .unwrap()
        })
        .collect();
    for n in 0..150 {
        let run = format!("r{}", n % 15);
        bench.bring(
            &peer.url(),
            &run,
            Kind::Status,
            &format!("{run}:{}", n / 15),
        );
    }
    let failing =
        |seen: &[crate::peer::Seen]| seen.iter().filter(|request| !request.accepted).count();
    let mut seen = peer.wait_for(150);
    while seen.len() - failing(&seen) < 150 {
        seen = peer.wait_for(seen.len() + 1);
    }
    for courier in couriers {
        assert_eq!(courier.stop(Duration::from_secs(10)), Stopped::Finished);
    }
    let mut accepted: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for request in peer.seen().iter().filter(|request| request.accepted) {
        let (run, nth) = request.key().split_once(':').unwrap();
        accepted
            .entry(run.to_owned())
            .or_default()
            .push(nth.parse().unwrap());
    }
    assert_eq!(accepted.len(), 15);
    for (run, order) in accepted {
        assert_eq!(order, (0..10).collect::<Vec<_>>(), "{run}");
    }
}

#[test]
fn a_message_leaves_as_soon_as_it_has_come() {
    let peer = Peer::new(|_, _| Reply::Status(200));
    let mut bench = Bench::new().unwrap();
    bench.settings.clock = Arc::new(Timestamp::now);
    // Only the bell can wake it in time.
    bench.settings.look_every = Duration::from_secs(60);
    let courier = Courier::start_with(bench.carrier(), bench.settings.clone()).unwrap();
    for n in 0..5 {
        bench.bring(&peer.url(), "r", Kind::Status, &format!("s{n}"));
        peer.wait_for(n + 1);
    }
    assert_eq!(courier.stop(Duration::from_secs(10)), Stopped::Finished);
}

#[test]
fn clients_that_never_answer_do_not_hold_up_the_control_plane() {
    let mute = Peer::new(|_, _| Reply::Never);
    let plane = Peer::new(|_, _| Reply::Status(200));
    let mut bench = Bench::new().unwrap();
    bench.settings.clock = Arc::new(Timestamp::now);
    bench.settings.policy = Policy {
        allow_loopback: true,
        ..policy(&["*"])
    };
    bench.settings.timeouts.read = Duration::from_secs(60);
    bench.settings.timeouts.whole = Duration::from_secs(60);
    for n in 0..20 {
        let message = Message {
            run: format!("client{n}"),
            idempotency_key: format!("client{n}"),
            ..to_client(&mute.url())
        };
        bench.outbox.enqueue(message, bench.now()).unwrap();
    }
    let courier = Courier::start_with(bench.carrier(), bench.settings.clone()).unwrap();
    mute.wait_for(bench.settings.client_threads);
    for n in 0..20 {
        bench.bring(
            &plane.url(),
            &format!("r{n}"),
            Kind::Result,
            &format!("r{n}"),
        );
    }
    plane.wait_for(20);
    assert_eq!(mute.seen().len(), bench.settings.client_threads);
    assert_eq!(courier.stop(Duration::from_millis(10)), Stopped::BrokenOff);
}
