//! Load for a while, with all that can go wrong, and what the daemon holds before and after it. First as many runs as fill everything that is bounded by number: results that are remembered,
//! files that are used again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use super::super::Options;
use super::super::contestant::Binary;
use super::super::report::Report;
use super::http::Client;
use super::served::{Holdings, Served};
use super::trouble::Trouble;

/// Four rounds in five are a run: several times the results that are remembered, until the allocator and the database's cache have what they keep.
const WARM_UP_ROUNDS: usize = 6000;
const CLIENTS: usize = 4;
/// Memory is given back in pages and the allocator keeps some of them. A leak of a single KB in each run would show as more than this within seconds.
const PROMISED_GROWTH_MB: f64 = 4.0;
/// Idle connections and threads come and go.
const PROMISED_FEW: f64 = 4.0;

pub(super) fn measure(
    binary: &Binary,
    options: Options,
    report: &mut Report,
) -> Result<(), String> {
    eprintln!("the daemon under load, {WARM_UP_ROUNDS} rounds to warm up");
    let served = Served::start(binary, options.privilege, "soak", &[])?;
    let trouble = Trouble::new(binary, options.privilege, &served)?;
    let rounds = AtomicUsize::new(0);
    let count = || rounds.load(Ordering::Relaxed);
    load(&served, &trouble, &rounds, || count() < WARM_UP_ROUNDS)?;
    served.await_idle()?;
    let before = served.holdings()?;
    let warm = count();
    eprintln!("the daemon under load, {:?}", options.soak());
    let began = Instant::now();
    load(&served, &trouble, &rounds, || {
        began.elapsed() < options.soak()
    })?;
    let seconds = began.elapsed().as_secs_f64();
    served.await_idle()?;
    let after = served.holdings()?;
    served.end()?;
    #[allow(
        clippy::cast_precision_loss,
        reason = "a count of rounds; a double holds it far beyond any real one"
    )]
    let done = (count() - warm) as f64;
    report.figure("soak, seconds", seconds, " s");
    report.figure("soak, rounds", done, "");
    report.figure("soak, memory afterwards", after.rss_mb, " MB");
    promise(report, before, after);
    Ok(())
}

fn promise(report: &mut Report, before: Holdings, after: Holdings) {
    let growth = after.rss_mb - before.rss_mb;
    report.promise("soak, growth of memory", growth, PROMISED_GROWTH_MB, " MB");
    let counts = [
        (
            "descriptors",
            before.descriptors,
            after.descriptors,
            PROMISED_FEW,
        ),
        ("threads", before.threads, after.threads, PROMISED_FEW),
        ("control groups", before.groups, after.groups, 0.0),
        ("journals that wait", before.journals, after.journals, 0.0),
        ("workspaces", before.workspaces, after.workspaces, 0.0),
    ];
    for (what, before, after, promised) in counts {
        let grown = i32::try_from(after.saturating_sub(before)).unwrap_or(i32::MAX);
        report.promise(
            format!("soak, growth of {what}"),
            f64::from(grown),
            promised,
            "",
        );
    }
}

/// Clients that take turns with every kind of request until told otherwise. Every answer must be right.
fn load(
    served: &Served,
    trouble: &Trouble,
    rounds: &AtomicUsize,
    goes_on: impl Fn() -> bool + Sync,
) -> Result<(), String> {
    let client = |number: usize| {
        let mut client = served.client()?;
        let mut turn = number;
        while goes_on() {
            match turn % 5 {
                0 => drop(client.run(&json!({ "command": ["/usr/bin/true"] }))?),
                1 => with_files(&mut client)?,
                2 => watched(&mut client, served)?,
                3 => looked_at(&mut client)?,
                _ => trouble.make(turn / 5, &mut client, served)?,
            }
            turn += 1;
            rounds.fetch_add(1, Ordering::Relaxed);
        }
        Ok::<(), String>(())
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = &client;
                scope.spawn(move || client(number))
            })
            .collect();
        let ended = clients
            .into_iter()
            .map(|client| client.join().map_err(|_| "a client panicked".to_owned())?);
        ended.collect::<Result<(), String>>()
    })
}

/// A workspace, a file in, a file out.
fn with_files(client: &mut Client) -> Result<(), String> {
    let work = json!({
        "command": ["/bin/sh", "-c", "cat given > made; cat made"],
        "files": [{ "path": "given", "content": "x".repeat(10_000) }],
    });
    let run = client.run(&work)?;
    let (status, _) = client.ask("GET", &format!("/v1/runs/{}/artifacts", id(&run)?), None)?;
    expect(status, 200, "artifacts")
}

/// Not waited for, but watched to its end, on a connection of its own that goes away.
fn watched(client: &mut Client, served: &Served) -> Result<(), String> {
    let work = json!({ "command": ["/bin/echo", "x"], "wait": false });
    let (status, run) = client.ask("POST", "/v1/runs", Some(&work))?;
    // 200 where it has ended already.
    if status != 200 {
        expect(status, 202, "a run that is not waited for")?;
    }
    let mut watcher = Client::connect(served.address())?;
    watcher.send("GET", &format!("/v1/runs/{}/events", id(&run)?), None)?;
    let (status, events) = watcher.receive()?;
    expect(status, 200, "events")?;
    if String::from_utf8_lossy(&events).contains("event: end") {
        Ok(())
    } else {
        Err("events without an end".to_owned())
    }
}

/// What those do who only look, and those who send nonsense.
fn looked_at(client: &mut Client) -> Result<(), String> {
    let (status, _) = client.ask("GET", "/v1/runs?limit=20", None)?;
    expect(status, 200, "the list")?;
    let (status, _) = client.ask("POST", "/v1/runs", Some(&json!({ "command": 1 })))?;
    expect(status, 400, "nonsense")?;
    let (status, _) = client.ask("GET", "/metrics", None)?;
    expect(status, 200, "the metrics")
}

fn id(run: &Value) -> Result<&str, String> {
    let id = run.get("run_id").and_then(Value::as_str);
    id.ok_or_else(|| format!("a run without an id: {run}"))
}

fn expect(status: u16, wanted: u16, what: &str) -> Result<(), String> {
    if status == wanted {
        Ok(())
    } else {
        Err(format!("{what}: answered with {status}"))
    }
}
