//! More work than there is room for: everybody gets an answer, nothing that was taken on is lost, and those who only look are served at once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cofferdam_testkit::{Way, host};
use serde_json::{Value, json};

use crate::client;
use crate::daemon::Daemon;

const AT_ONCE: usize = 2;
const WAITING: usize = 10;
/// Ten times as many as fit.
const CLIENTS: usize = 10 * (AT_ONCE + WAITING);
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn ten_times_its_capacity_loses_nothing_and_leaves_health_quick() {
    let host = host!();
    let (at_once, waiting) = (AT_ONCE.to_string(), WAITING.to_string());
    let args = [
        "--concurrency",
        &at_once,
        "--queue",
        &waiting,
        "--grace",
        "1s",
    ];
    let daemon = Daemon::start(&host, Way::all()[0], &args);
    let address = daemon.address;
    let (refused, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (slowest, ids) = std::thread::scope(|scope| {
        let looking = scope.spawn(|| slowest_health(address, &over));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let refused = &refused;
                scope.spawn(move || insist(address, number, refused))
            })
            .collect();
        let clients = clients.into_iter().map(|client| client.join().unwrap());
        let ids: BTreeMap<String, usize> = clients.zip(0..).collect();
        over.store(true, Ordering::Relaxed);
        (looking.join().unwrap(), ids)
    });
    assert_eq!(ids.len(), CLIENTS, "two clients got the same run");
    assert!(
        refused.load(Ordering::Relaxed) > CLIENTS,
        "nobody had to wait"
    );
    assert!(slowest < Duration::from_secs(8), "/health took {slowest:?}");

    // Every run is history, once, with the output of its own client.
    for (id, number) in &ids {
        let run = daemon.until(&format!("/v1/runs/{id}"), |run| run["state"] == "ended");
        assert_eq!(run["stdout"]["data"], format!("{number}\n"), "{run}");
    }
    let listed = listed(&daemon);
    assert_eq!(listed.len(), CLIENTS);
    assert!(listed.iter().all(|run| run["status"] == "success"));
    daemon.end();
}

/// Sends it until it is taken; the id of its run. Every second client does not wait for the end.
fn insist(address: SocketAddr, number: usize, refused: &AtomicUsize) -> String {
    let script = format!("sleep 0.05; echo {number}");
    let work = json!({"command": ["sh", "-c", script], "wait": number.is_multiple_of(2)});
    let until = Instant::now() + PATIENCE;
    loop {
        let reply = client::ask(address, "POST", "/v1/runs", &[], Some(&work)).unwrap();
        let told = reply.json();
        if reply.status != 503 {
            assert!([200, 202].contains(&reply.status), "{told}");
            return told["run_id"].as_str().unwrap().to_owned();
        }
        assert_eq!(told["error_code"], "queue.full");
        assert!(reply.header("retry-after").is_some());
        refused.fetch_add(1, Ordering::Relaxed);
        assert!(Instant::now() < until, "never taken");
        // A client that insists more than it was asked to.
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn slowest_health(address: SocketAddr, over: &AtomicBool) -> Duration {
    let mut slowest = Duration::ZERO;
    while !over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let reply = client::ask(address, "GET", "/health", &[], None).unwrap();
        slowest = slowest.max(began.elapsed());
        assert_eq!(reply.json()["status"], "healthy");
        assert!(reply.json()["queued_executions"].as_u64() <= u64::try_from(WAITING).ok());
        std::thread::sleep(Duration::from_millis(5));
    }
    slowest
}

fn listed(daemon: &Daemon<'_>) -> Vec<Value> {
    let mut all = Vec::new();
    let mut before = String::new();
    loop {
        let page = daemon.get(&format!("/v1/runs?limit=50{before}")).json();
        all.extend(page["runs"].as_array().unwrap().iter().cloned());
        match page["next"].as_str() {
            Some(next) => before = format!("&before={next}"),
            None => return all,
        }
    }
}
