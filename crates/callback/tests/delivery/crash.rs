//! A process that brings messages and delivers them is killed, again and again, in the middle of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cofferdam_callback::courier::Stopped;
use cofferdam_callback::{Courier, Settings};
use cofferdam_store::DataDir;
use cofferdam_store::outbox::{Kind, Outbox};
use jiff::Timestamp;

use crate::fixture::{message, tokens};
use crate::peer::{Peer, Reply};

const PLACE: &str = "COFFERDAM_TEST_CRASH_DIR";
const RUNS: usize = 4;
const ROUNDS: usize = 6;
/// Of one process; those after it have to deliver what it did not.
const MOST: usize = 500;

/// This same binary, as the process that is to be killed.
fn start(dir: &Path, url: &str, generation: usize) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args([
            "--exact",
            "crash::the_process_that_is_killed",
            "--nocapture",
        ])
        .env(PLACE, dir)
        .env("COFFERDAM_TEST_URL", url)
        .env("COFFERDAM_TEST_GENERATION", generation.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
}

/// Does nothing unless the test below started it. It brings messages, and says of each that it was taken; a line on its input ends it in order.
#[test]
fn the_process_that_is_killed() {
    let Some(dir) = std::env::var_os(PLACE) else {
        return;
    };
    let url = std::env::var("COFFERDAM_TEST_URL").unwrap();
    let generation = std::env::var("COFFERDAM_TEST_GENERATION").unwrap();
    let outbox = Outbox::open(&DataDir::at(dir)).unwrap();
    let settings = Settings {
        look_every: Duration::from_millis(50),
        ..Settings::default()
    };
    let courier = Courier::start(outbox.clone(), tokens(), settings).unwrap();
    if generation == ROUNDS.to_string() {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        assert_eq!(courier.stop(Duration::from_secs(60)), Stopped::Finished);
        return;
    }
    for n in 0..MOST {
        let run = format!("run{}", n % RUNS);
        let key = format!("{run}:{generation}:{n:06}");
        outbox
            .enqueue(message(&url, &run, Kind::Status, &key), Timestamp::now())
            .unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "taken {key}").unwrap();
        out.flush().unwrap();
    }
    // Whoever started it kills it.
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn kill_9_loses_nothing_and_changes_no_key() {
    let dir = tempfile::tempdir().unwrap();
    // When this many requests have come, the peer takes the next one and never answers.
    let hang_at = Arc::new(AtomicUsize::new(usize::MAX));
    let hang = Arc::clone(&hang_at);
    let peer = Peer::new(move |n, _| {
        if n == hang.load(Ordering::Acquire) {
            Reply::Never
        } else {
            Reply::Status(200)
        }
    });
    let mut taken = BTreeSet::new();
    for generation in 0..ROUNDS {
        let goal = peer.seen().len() + 7 + 3 * generation;
        hang_at.store(goal, Ordering::Release);
        let mut child = start(dir.path(), &peer.url(), generation).unwrap();
        peer.wait_for(goal + 1);
        child.kill().unwrap();
        child.wait().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        // The last line may be half.
        let lines: Vec<String> = said.map_while(Result::ok).collect();
        let whole = |line: &String| {
            line.strip_prefix("taken ")
                .filter(|key| key.len() == "run0:0:000000".len())
                .map(str::to_owned)
        };
        taken.extend(lines.iter().filter_map(whole));
    }
    hang_at.store(usize::MAX, Ordering::Release);
    let mut last = start(dir.path(), &peer.url(), ROUNDS).unwrap();
    let outbox = Outbox::open(&DataDir::at(dir.path())).unwrap();
    let limit = Instant::now() + Duration::from_secs(150);
    while outbox.figures(Timestamp::now()).unwrap().waiting > 0 {
        assert!(
            Instant::now() < limit,
            "{:?}",
            outbox.figures(Timestamp::now())
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    last.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(last.wait().unwrap().success());
    check(&peer, &taken);
}

fn check(peer: &Peer, taken: &BTreeSet<String>) {
    let seen = peer.seen();
    let accepted: BTreeSet<String> = seen
        .iter()
        .filter(|request| request.accepted)
        .map(|request| request.key().to_owned())
        .collect();
    let lost: Vec<&String> = taken.difference(&accepted).collect();
    assert!(taken.len() >= ROUNDS, "{} were taken", taken.len());
    assert_eq!(
        lost,
        Vec::<&String>::new(),
        "of {} that were taken",
        taken.len()
    );
    for request in &seen {
        assert_eq!(
            request.body,
            format!("{{\"key\":\"{}\"}}", request.key()).into_bytes(),
            "a key and its message belong together"
        );
    }
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for request in seen.iter() {
        *times.entry(request.key()).or_default() += 1;
    }
    // With every kill at most what each of the four threads had in hand is sent again.
    let again: usize = times.values().map(|times| times - 1).sum();
    assert!((1..=4 * ROUNDS).contains(&again), "{again} were sent again");
    // In the order in which they were first accepted.
    for run in 0..RUNS {
        let prefix = format!("run{run}:");
        let mut order: Vec<&str> = Vec::new();
        for request in seen
            .iter()
            .filter(|request| request.accepted && request.key().starts_with(&prefix))
        {
            if !order.contains(&request.key()) {
                order.push(request.key());
            }
        }
        assert!(order.is_sorted(), "{prefix}: {order:?}");
    }
}
