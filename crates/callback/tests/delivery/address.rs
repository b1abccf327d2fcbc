//! Addresses that a client chose: what is checked is what is connected to.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cofferdam_callback::Policy;
use cofferdam_callback::client::Client;
use cofferdam_callback::courier::Carrier;
use cofferdam_callback::resolve::Lookup;
use cofferdam_store::outbox::{Kind, Standing};

use crate::fixture::{Bench, policy, short, to_client, tokens, why};
use crate::peer::{Peer, Reply};

/// A name that leads to the next of these with every question.
fn names(answers: Vec<Vec<&'static str>>) -> (Lookup, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let lookup: Lookup = Arc::new(move |_: &str, port: u16| {
        let nth = count.fetch_add(1, Ordering::AcqRel);
        let answer = answers
            .get(nth)
            .or(answers.last())
            .cloned()
            .unwrap_or_default();
        let parsed = answer.into_iter().map(|ip| {
            ip.parse()
                .map(|ip| SocketAddr::new(ip, port))
                .map_err(io::Error::other)
        });
        parsed.collect()
    });
    (lookup, asked)
}

fn deliver(bench: &Bench, policy: Policy, lookup: Lookup) -> String {
    let client = Client::new(policy, bench.settings.timeouts).with_lookup(lookup);
    let carrier = Carrier::with_client(bench.outbox.clone(), tokens(), client, &bench.settings);
    carrier
        .deliver_one()
        .map_or_else(|error| error.to_string(), why)
}

#[test]
fn a_name_that_leads_inside_is_refused_when_it_is_connected_to() {
    for inside in [
        "127.0.0.1",
        "::1",
        "10.0.0.1",
        "169.254.169.254",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "fd00::1",
    ] {
        let peer = Peer::new(|_, _| Reply::Status(200));
        let bench = Bench::new().unwrap();
        let url = format!("http://hook.example:{}", peer.port());
        bench.outbox.enqueue(to_client(&url), bench.now()).unwrap();
        // Among others that are harmless.
        let (lookup, _) = names(vec![vec![inside, "1.1.1.1"]]);
        let told = deliver(&bench, policy(&["hook.example"]), lookup);
        assert!(
            told.starts_with("retry: callback URL: `hook.example` leads to "),
            "{inside}: {told}"
        );
        assert_eq!(peer.seen(), []);
    }
}

#[test]
fn it_is_asked_about_five_times_and_then_given_up() {
    let bench = Bench::new().unwrap();
    bench
        .outbox
        .enqueue(to_client("http://hook.example"), bench.now())
        .unwrap();
    let mut told = Vec::new();
    for _ in 0..5 {
        let (lookup, _) = names(vec![vec!["10.0.0.1"]]);
        told.push(deliver(&bench, policy(&["hook.example"]), lookup));
        bench.advance_to_next();
    }
    assert!(
        told[..4].iter().all(|text| text.starts_with("retry: ")),
        "{told:#?}"
    );
    assert!(told[4].starts_with("given up: "), "{told:#?}");
    assert_eq!(bench.list(Standing::GivenUp).len(), 1);
}

#[test]
fn the_address_that_was_checked_is_the_one_that_is_used() {
    let peer = Peer::new(|_, _| Reply::Status(200));
    let bench = Bench::new().unwrap();
    let url = format!("http://hook.example:{}", peer.port());
    bench.outbox.enqueue(to_client(&url), bench.now()).unwrap();
    // The second question would be answered otherwise; there must be none.
    let (lookup, asked) = names(vec![vec!["127.0.0.1"], vec!["169.254.169.254"]]);
    let permitted = Policy {
        allow_loopback: true,
        ..policy(&["hook.example"])
    };
    assert_eq!(deliver(&bench, permitted, lookup), "delivered: 200");
    assert_eq!(asked.load(Ordering::Acquire), 1);
    let seen = peer.seen();
    assert_eq!(
        seen[0].headers.get("host").map(String::as_str),
        Some(&*format!("hook.example:{}", peer.port()))
    );
    assert_eq!(
        seen[0].headers.get("authorization"),
        None,
        "a client's address is shown no token"
    );
}

#[test]
fn an_address_that_is_no_longer_allowed_is_given_up_at_once() {
    let peer = Peer::new(|_, _| Reply::Status(200));
    let bench = Bench::new().unwrap();
    bench
        .outbox
        .enqueue(to_client(&peer.url()), bench.now())
        .unwrap();
    let (lookup, _) = names(vec![]);
    let told = deliver(&bench, Policy::default(), lookup);
    assert!(
        told.starts_with("given up: callback URL: `127.0.0.1:"),
        "{told}"
    );
    assert_eq!(peer.seen(), []);
}

#[test]
fn the_operators_own_address_may_be_anywhere() {
    let peer = Peer::new(|_, _| Reply::Status(200));
    let bench = Bench::new().unwrap();
    bench.bring(
        &format!("http://cp.internal:{}", peer.port()),
        "r",
        Kind::Result,
        "r",
    );
    let (lookup, _) = names(vec![vec!["127.0.0.1"]]);
    assert_eq!(deliver(&bench, Policy::default(), lookup), "delivered: 200");
    // By the system's own lookup too: this binary is static, and names must still be found.
    bench.bring(
        &format!("http://localhost:{}", peer.port()),
        "s",
        Kind::Result,
        "s",
    );
    assert_eq!(
        why(bench.carrier().deliver_one().unwrap()),
        "delivered: 200"
    );
}

#[test]
fn a_name_server_that_says_nothing_is_not_waited_for() {
    let mut bench = Bench::new().unwrap();
    bench.settings.timeouts = short();
    bench.bring("http://cp.internal", "r", Kind::Result, "r");
    let (hang, hung) = std::sync::mpsc::channel::<()>();
    let hung = std::sync::Mutex::new(hung);
    let lookup: Lookup = Arc::new(move |_: &str, _: u16| {
        // Until the test is over.
        let _ = hung.lock().map(|hung| hung.recv());
        Ok(Vec::new())
    });
    let told = deliver(&bench, Policy::default(), lookup);
    assert!(told.starts_with("retry: too slow"), "{told}");
    drop(hang);
}
