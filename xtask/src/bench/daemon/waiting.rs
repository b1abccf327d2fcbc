//! What a client costs that waits: for its turn, or for the next event of a run.

use serde_json::{Value, json};

use super::super::Options;
use super::super::contestant::Binary;
use super::super::report::Report;
use super::http::Client;
use super::served::Served;

/// As many as the daemon's connections allow, with room for those who look.
const CLIENTS: u32 = 1000;
const PROMISED_KB: f64 = 100.0;
const FLAGS: [&str; 6] = ["--concurrency", "1", "--queue", "1100", "--grace", "1s"];

pub(super) fn measure(
    binary: &Binary,
    options: Options,
    report: &mut Report,
) -> Result<(), String> {
    raise_descriptors()?;
    eprintln!("{CLIENTS} clients that wait for their turn");
    let served = Served::start(binary, options.privilege, "turns", &FLAGS)?;
    occupy(&served)?;
    let before = served.rss_mb()?;
    let work = json!({ "command": ["/usr/bin/true"] });
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = served.client()?;
        client.send("POST", "/v1/runs", Some(&work))?;
        clients.push(client);
    }
    served.await_waiting(u64::from(CLIENTS))?;
    promise(report, "a client that waits for its turn", before, &served)?;
    drop(clients);
    served.await_waiting(0)?;
    served.end()?;

    eprintln!("{CLIENTS} clients that wait for events");
    let served = Served::start(binary, options.privilege, "events", &FLAGS)?;
    let path = format!("/v1/runs/{}/events", occupy(&served)?);
    let before = served.rss_mb()?;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = served.client()?;
        client.send("GET", &path, None)?;
        clients.push(client);
    }
    for client in &mut clients {
        let (status, _) = client.head()?;
        if status != 200 {
            return Err(format!("{path} was answered with {status}"));
        }
    }
    promise(report, "a client that waits for events", before, &served)?;
    drop(clients);
    served.end()
}

/// A run that takes the only place; its id.
fn occupy(served: &Served) -> Result<String, String> {
    let mut client: Client = served.client()?;
    // What the first ones bring into memory is not the clients'.
    for _ in 0..20 {
        client.run(&json!({ "command": ["/usr/bin/true"] }))?;
    }
    let work = json!({ "command": ["/usr/bin/sleep", "600"], "limits": { "wall_time_ms": 600_000 }, "wait": false });
    let (status, run) = client.ask("POST", "/v1/runs", Some(&work))?;
    let id = run.get("run_id").and_then(Value::as_str);
    let id = id.ok_or_else(|| format!("{work} was answered with {status} {run}"))?;
    served.await_running(1)?;
    Ok(id.to_owned())
}

fn promise(report: &mut Report, what: &str, before: f64, served: &Served) -> Result<(), String> {
    let growth = (served.rss_mb()? - before) * 1000.0;
    let each = growth / f64::from(CLIENTS);
    report.promise(format!("memory of {what}"), each, PROMISED_KB, " KB");
    Ok(())
}

/// Each client is a socket of ours too.
fn raise_descriptors() -> Result<(), String> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).map_err(|error| format!("RLIMIT_NOFILE: {error}"))
}
