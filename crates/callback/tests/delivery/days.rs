//! Days without a peer, in a moment.

use std::time::Duration;

use cofferdam_store::outbox::{Kind, Standing};

use crate::fixture::{Bench, why};
use crate::peer::{Reply, Reserved};

#[test]
fn after_a_day_without_the_peer_everything_arrives_in_order_within_half_a_minute() {
    let bench = Bench::new().unwrap();
    let nobody = Reserved::new().unwrap();
    let url = nobody.url();
    for n in 0..60 {
        let run = format!("r{}", n % 20);
        bench.bring(&url, &run, Kind::Status, &format!("{run}-{}", n / 20));
    }
    let carrier = bench.carrier();
    let (mut attempts, mut passed) = (0, Duration::ZERO);
    while passed < Duration::from_secs(25 * 3600) {
        let told = why(carrier.deliver_one().unwrap());
        assert!(told.starts_with("retry: "), "{told}");
        attempts += 1;
        passed += bench.advance_to_next();
    }
    // One every half minute, for all of them together.
    assert!((2900..3100).contains(&attempts), "{attempts}");
    assert_eq!(bench.list(Standing::Waiting).len(), 60);

    let peer = nobody.open(|_, _| Reply::Status(200)).unwrap();
    while carrier.deliver_one().unwrap().is_some() {}
    assert_eq!(
        bench.list(Standing::Delivered).len(),
        60,
        "with no further wait"
    );
    for run in 0..20 {
        let run = format!("r{run}-");
        let keys: Vec<String> = peer
            .seen()
            .iter()
            .map(|seen| seen.key().to_owned())
            .filter(|key| key.starts_with(&run))
            .collect();
        assert_eq!(
            keys,
            [format!("{run}0"), format!("{run}1"), format!("{run}2")]
        );
    }
    assert_eq!(peer.seen().len(), 60);
}

#[test]
fn after_a_week_a_message_is_given_up_and_kept() {
    let bench = Bench::new().unwrap();
    let nobody = Reserved::new().unwrap();
    bench.bring(&nobody.url(), "r", Kind::Result, "r");
    let carrier = bench.carrier();
    let (mut told, mut passed, mut longest) = (String::new(), Duration::ZERO, Duration::ZERO);
    while !told.starts_with("given up") {
        told = why(carrier.deliver_one().unwrap());
        let wait = bench.advance_to_next();
        longest = longest.max(wait);
        passed += wait;
        assert!(passed < Duration::from_secs(8 * 86_400));
    }
    assert!(told.contains("not delivered in 7 days"), "{told}");
    assert!(passed >= Duration::from_secs(7 * 86_400), "{passed:?}");
    assert_eq!(bench.list(Standing::GivenUp).len(), 1);
}

#[test]
fn a_clock_that_jumps_years_ahead_loses_nothing() {
    let bench = Bench::new().unwrap();
    let nobody = Reserved::new().unwrap();
    bench.bring(&nobody.url(), "r", Kind::Result, "r");
    bench.advance(Duration::from_secs(56 * 365 * 86_400));
    let carrier = bench.carrier();
    assert!(why(carrier.deliver_one().unwrap()).starts_with("retry: "));
    let _peer = nobody.open(|_, _| Reply::Status(200)).unwrap();
    bench.advance_to_next();
    assert_eq!(why(carrier.deliver_one().unwrap()), "delivered: 200");
}
