//! What peers answer, and what follows from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cofferdam_callback::Bearer;
use cofferdam_callback::client::Timeouts;
use cofferdam_callback::courier::{Carrier, Courier, Stopped};
use cofferdam_store::outbox::{Kind, Standing};

use crate::fixture::{Bench, patient, short, why};
use crate::peer::{Peer, Reply};

/// One message to a peer that always replies so.
fn one(reply: Reply) -> (Bench, Peer, String) {
    one_within(patient(), reply)
}

fn one_within(timeouts: Timeouts, reply: Reply) -> (Bench, Peer, String) {
    let peer = Peer::new(move |_, _| reply.clone());
    let mut bench = Bench::new().unwrap_or_else(|error| unreachable!("{error}"));
    bench.settings.timeouts = timeouts;
    bench.bring(&peer.url(), "r", Kind::Result, "r");
    let told = bench
        .carrier()
        .deliver_one()
        .map_or_else(|error| error.to_string(), why);
    (bench, peer, told)
}

#[test]
fn a_request_is_what_the_protocol_says() {
    let (_, peer, told) = one(Reply::Status(201));
    assert_eq!(told, "delivered: 201");
    let seen = peer.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].line, "POST /executions/r/result HTTP/1.1");
    assert_eq!(seen[0].body, br#"{"key":"r"}"#);
    let header = |name: &str| seen[0].headers.get(name).map(String::as_str);
    assert_eq!(header("idempotency-key"), Some("r"));
    assert_eq!(header("authorization"), Some("Bearer t0ken"));
    assert_eq!(header("content-type"), Some("application/json"));
    assert_eq!(header("content-length"), Some("11"));
    assert_eq!(header("transfer-encoding"), None);
}

#[test]
fn what_the_peer_has_is_delivered() {
    for status in [200, 201, 202, 204, 409] {
        let reply = match status {
            204 => Reply::Raw(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()),
            _ => Reply::Status(status),
        };
        let (bench, _, told) = one(reply);
        assert_eq!(told, format!("delivered: {status}"));
        assert_eq!(bench.outbox.figures(bench.now()).unwrap().waiting, 0);
    }
}

#[test]
fn what_it_refuses_for_good_is_given_up_and_kept_with_its_answer() {
    for status in [400, 403, 404, 410, 413, 422] {
        let body = "x".repeat(5000);
        let raw = format!("HTTP/1.1 {status} No\r\nContent-Length: 5000\r\n\r\n{body}");
        let (bench, _, told) = one(Reply::Raw(raw.into_bytes()));
        assert!(
            told.starts_with(&format!("given up: answered {status}: xxx")),
            "{told}"
        );
        let kept = bench.list(Standing::GivenUp);
        assert_eq!(kept.len(), 1);
        assert!(
            kept[0]
                .outcome
                .as_ref()
                .is_some_and(|text| text.len() < 1100)
        );
        assert_eq!(
            bench.outbox.body(kept[0].id).unwrap(),
            Some(br#"{"key":"r"}"#.to_vec())
        );
    }
}

#[test]
fn what_may_pass_is_tried_again_with_the_same_key_until_it_does() {
    for status in [500, 501, 502, 503, 504, 401, 408, 429, 301, 307] {
        let peer = Peer::new(move |n, _| Reply::Status(if n < 7 { status } else { 201 }));
        let bench = Bench::new().unwrap();
        bench.bring(&peer.url(), "r", Kind::Result, "r");
        let carrier = bench.carrier();
        let mut waits = Vec::new();
        while bench.outbox.figures(bench.now()).unwrap().waiting > 0 {
            let told = why(carrier.deliver_one().unwrap());
            let expected = format!("retry: answered {status}");
            assert!(
                told.starts_with(&expected) || told == "delivered: 201",
                "{told}"
            );
            waits.push(bench.advance_to_next().as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 10, 30, 30, 0], "{status}");
        let seen = peer.seen();
        assert_eq!(seen.len(), 8);
        assert!(
            seen.iter()
                .all(|request| request.key() == "r" && request.body == seen[0].body)
        );
    }
}

#[test]
fn a_peer_that_asks_for_time_gets_it_within_reason() {
    for (asked, given) in [
        ("120", 120),
        ("999999999", 3600),
        ("Fri, 15 Jan 2027 08:01:00 GMT", 60),
        ("0", 1),
        ("soon", 1),
    ] {
        let raw = format!("HTTP/1.1 429 Slow\r\nRetry-After: {asked}\r\nContent-Length: 0\r\n\r\n");
        let (bench, _, _) = one(Reply::Raw(raw.into_bytes()));
        // The clock of the bench begins at 2027-01-15T08:00:00Z.
        assert_eq!(bench.advance_to_next().as_secs(), given, "{asked}");
    }
}

#[test]
fn a_token_is_read_again_for_every_attempt() {
    let peer = Peer::new(|_, seen| {
        let new = seen
            .headers
            .get("authorization")
            .is_some_and(|text| text == "Bearer new2");
        Reply::Status(if new { 200 } else { 401 })
    });
    let bench = Bench::new().unwrap();
    bench.bring(&peer.url(), "r", Kind::Result, "r");
    let read = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&read);
    let tokens = move |name: &str| match count.fetch_add(1, Ordering::AcqRel) {
        0 => Bearer::new("old0"),
        1 => Err(format!("the token `{name}` is being written")),
        n => Bearer::new(&format!("new{n}")),
    };
    let carrier = Carrier::new(bench.outbox.clone(), Arc::new(tokens), &bench.settings);
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(why(carrier.deliver_one().unwrap()));
        bench.advance_to_next();
    }
    assert_eq!(
        told,
        [
            "retry: answered 401: {}",
            "retry: the token `plane` is being written",
            "delivered: 200"
        ]
    );
    assert_eq!(peer.seen().len(), 2, "without a token nothing is sent");
}

#[test]
fn half_an_answer_is_none() {
    let halves: [&[u8]; 6] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"half\":",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 2",
        b"",
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ];
    for half in halves {
        let (bench, _, told) = one(Reply::Raw(half.to_vec()));
        let shown = String::from_utf8_lossy(half);
        assert!(told.starts_with("retry: "), "{shown}: {told}");
        assert_eq!(bench.outbox.figures(bench.now()).unwrap().waiting, 1);
    }
}

#[test]
fn a_slow_peer_costs_no_more_than_the_deadline() {
    let slow_body = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n1".to_vec();
    for reply in [
        Reply::Never,
        Reply::Drip,
        Reply::EndlessHeaders,
        Reply::Stall(slow_body),
    ] {
        let name = format!("{reply:?}");
        let started = Instant::now();
        let (bench, _, told) = one_within(short(), reply);
        assert!(told.starts_with("retry: "), "{name}: {told}");
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "{name}: {:?}",
            started.elapsed()
        );
        assert_eq!(bench.outbox.figures(bench.now()).unwrap().waiting, 1);
    }
}

#[test]
fn ten_megabytes_of_headers_or_body_are_not_read() {
    let mut headers = b"HTTP/1.1 200 OK\r\n".to_vec();
    headers.extend(
        b"X-Filler: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(160_000),
    );
    let (_, _, told) = one(Reply::Raw(headers));
    assert!(told.starts_with("retry: "), "{told}");
    let mut one_header = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
    one_header.extend(vec![b'a'; 10 << 20]);
    let (_, _, told) = one(Reply::Raw(one_header));
    assert!(told.starts_with("retry: "), "{told}");
    // The rest of this body never comes, and is not waited for.
    let mut body = b"HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n".to_vec();
    body.extend(vec![b'a'; 70 << 10]);
    let (_, _, told) = one(Reply::Stall(body));
    assert_eq!(told, "delivered: 200", "the status and 64 KiB are enough");
}

#[test]
fn a_redirect_is_not_followed() {
    let raw = b"HTTP/1.1 307 Elsewhere\r\nLocation: http://169.254.169.254/latest/meta-data/\r\nContent-Length: 0\r\n\r\n";
    let (_, peer, told) = one(Reply::Raw(raw.to_vec()));
    assert_eq!(
        told,
        "retry: answered 307: redirects are not followed (to http://169.254.169.254/latest/meta-data/)"
    );
    assert_eq!(peer.seen().len(), 1);
}

#[test]
fn a_poisoned_message_does_not_hold_up_the_others() {
    let peer = Peer::new(|_, seen| Reply::Status(if seen.key() == "poison" { 500 } else { 200 }));
    let bench = Bench::new().unwrap();
    bench.bring(&peer.url(), "poison", Kind::Result, "poison");
    for n in 0..20 {
        bench.bring(
            &peer.url(),
            &format!("r{n}"),
            Kind::Result,
            &format!("r{n}"),
        );
    }
    let carrier = bench.carrier();
    while carrier.deliver_one().unwrap().is_some() {}
    assert_eq!(
        bench.list(Standing::Delivered).len(),
        20,
        "all at once, without a wait"
    );
    assert_eq!(bench.list(Standing::Waiting).len(), 1);
}

#[test]
fn a_courier_that_stops_brings_what_is_due_and_breaks_off_what_hangs() {
    let peer = Peer::new(|_, _| Reply::Status(200));
    let bench = Bench::new().unwrap();
    let courier = Courier::start_with(bench.carrier(), bench.settings.clone()).unwrap();
    for n in 0..10 {
        bench.bring(&peer.url(), "r", Kind::Status, &format!("s{n}"));
    }
    assert_eq!(courier.stop(Duration::from_secs(10)), Stopped::Finished);
    let keys: Vec<String> = peer
        .seen()
        .iter()
        .map(|seen| seen.key().to_owned())
        .collect();
    assert_eq!(keys, (0..10).map(|n| format!("s{n}")).collect::<Vec<_>>());

    let mute = Peer::new(|_, _| Reply::Never);
    let mut bench = Bench::new().unwrap();
    bench.settings.timeouts.read = Duration::from_secs(60);
    bench.settings.timeouts.whole = Duration::from_secs(60);
    bench.bring(&mute.url(), "r", Kind::Result, "r");
    let courier = Courier::start_with(bench.carrier(), bench.settings.clone()).unwrap();
    mute.wait_for(1);
    let started = Instant::now();
    assert_eq!(courier.stop(Duration::from_millis(50)), Stopped::BrokenOff);
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
    // It is due at once for the next one, and the peer is not to blame. A thread that was not waited for says so itself.
    while bench.outbox.next_due_at().unwrap() != Some(bench.now()) {
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(bench.outbox.figures(bench.now()).unwrap().failing_peers, 0);
}
