//! What waits for a collector is bounded, whatever the collector does.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use cofferdam_observe::{Endpoint, Kind, Ratio, Span, SpanClock, Status, Tracer};

fn span(tracer: &Tracer) -> Span {
    let (context, parent) = tracer.enter(None);
    let clock = SpanClock::start();
    Span {
        context,
        parent,
        name: "one of many".into(),
        kind: Kind::Internal,
        began: clock.began(),
        ended: clock.at(Instant::now()),
        attributes: Vec::new(),
        status: Status::Unset,
    }
}

#[test]
fn the_oldest_spans_go_when_there_is_no_room_and_nobody_waits() {
    // It takes connections and never says anything.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let tracer = Tracer::start(Endpoint::parse(&url).unwrap(), "test", Ratio::ALL).unwrap();
    let (count, room, batch) = (6000, 4096, 512);
    let began = Instant::now();
    for _ in 0..count {
        tracer.record(span(&tracer));
    }
    // The collector lets each request wait for ten seconds.
    assert!(began.elapsed() < Duration::from_secs(60));
    let figures = tracer.figures().unwrap();
    let dropped = usize::try_from(figures.dropped).unwrap();
    // At most one batch is on its way, and was taken out at any moment.
    let waiting = figures.waiting;
    assert!((room - batch..=room).contains(&waiting), "{figures:?}");
    assert!(
        (count - batch..=count).contains(&(waiting + dropped)),
        "{figures:?}"
    );
    let began = Instant::now();
    tracer.stop(Duration::from_millis(200));
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn without_a_collector_nothing_is_kept() {
    let tracer = Tracer::off();
    tracer.record(span(&tracer));
    assert_eq!(tracer.figures(), None);
    tracer.stop(Duration::from_secs(60));
}
