//! An answer that is known already, from the request to the last byte of its answer.

use std::time::Instant;

use serde_json::{Value, json};

use super::super::contestant::Binary;
use super::super::report::Report;
use super::super::stats::Stats;
use super::super::{Effort, Options};
use super::served::Served;

const PROMISED_MS: f64 = 1.0;

pub(super) fn measure(
    binary: &Binary,
    options: Options,
    report: &mut Report,
) -> Result<(), String> {
    let rounds = match options.effort {
        Effort::Quick => 500,
        Effort::Full => 3000,
    };
    eprintln!("the daemon, {rounds} known answers one after the other");
    let served = Served::start(binary, options.privilege, "known", &[])?;
    let mut client = served.client()?;
    let command = json!({ "command": ["date", "+%s%N"], "pure": true });
    let code = json!({ "language": "python", "code": "print(6 * 7)", "pure": true });
    for (what, work) in [
        ("a known answer of a command", command),
        ("a known answer of Python", code),
    ] {
        client.run(&work)?;
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let began = Instant::now();
            let run = client.run(&work)?;
            times.push(began.elapsed());
            if run.get("cached").is_none_or(Value::is_null) {
                return Err(format!("this was run again: {run}"));
            }
        }
        let times = Stats::of(times).ok_or("no round was measured")?;
        report.promise(format!("{what}, p50"), times.p50_ms, PROMISED_MS, " ms");
        report.figure(format!("{what}, p95"), times.p95_ms, " ms");
        report.figure(format!("{what}, p99"), times.p99_ms, " ms");
    }
    served.end()
}
