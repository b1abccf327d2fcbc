//! What HTTP adds to a run, one client at a time. The bare run is the same run: from the beginning of its sandbox to its end, as its own record has it. What is
//! left of the client's time is the way there and back: connection, checks, queue, a thread, the answer.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::contestant::Binary;
use super::super::report::Report;
use super::super::stats::Stats;
use super::super::{Effort, Options};
use super::served::Served;

const PROMISED_MS: f64 = 2.0;
const WARM_UP: usize = 20;

pub(super) fn measure(
    binary: &Binary,
    options: Options,
    report: &mut Report,
) -> Result<(), String> {
    let rounds = match options.effort {
        Effort::Quick => 200,
        Effort::Full => 1000,
    };
    eprintln!("the daemon, {rounds} runs one after the other");
    let served = Served::start(binary, options.privilege, "overhead", &[])?;
    let bare = binary.run("cofferdam run", options.privilege, &[], &["/usr/bin/true"]);
    bare.try_once()?;
    let mut client = served.client()?;
    let work = json!({ "command": ["/usr/bin/true"] });
    let (mut whole, mut added, mut processes) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..WARM_UP + rounds {
        let began = Instant::now();
        let run = client.run(&work)?;
        let took = began.elapsed();
        let process = bare.time_success()?;
        if round >= WARM_UP {
            whole.push(took);
            added.push(took.saturating_sub(own_time(&run)?));
            processes.push(process);
        }
    }
    served.end()?;
    let stats = |times| Stats::of(times).ok_or("no round was measured");
    let (whole, added, processes) = (stats(whole)?, stats(added)?, stats(processes)?);
    report.figure("a run by POST /v1/runs, p50", whole.p50_ms, " ms");
    report.figure("a run by POST /v1/runs, p95", whole.p95_ms, " ms");
    report.figure("the same by `cofferdam run`, p50", processes.p50_ms, " ms");
    report.figure("what HTTP adds to the bare run, p50", added.p50_ms, " ms");
    report.promise(
        "what HTTP adds to the bare run, p95",
        added.p95_ms,
        PROMISED_MS,
        " ms",
    );
    Ok(())
}

fn own_time(run: &Value) -> Result<Duration, String> {
    let at = |field: &str| {
        let text = run.get(field).and_then(Value::as_str);
        text.and_then(|text| text.parse::<Timestamp>().ok())
            .ok_or_else(|| format!("a run without {field}: {run}"))
    };
    let took = at("ended_at")?.duration_since(at("started_at")?);
    Duration::try_from(took).map_err(|_| format!("a run that ended before it began: {run}"))
}
