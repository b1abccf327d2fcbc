//! The daemon: what HTTP adds to a run, how soon a known answer comes, what waiting clients cost, what it weighs when nothing happens, how soon a report arrives, and that load leaves
//! nothing behind.

mod http;
mod interpreters;
mod known;
mod overhead;
mod report;
mod served;
mod soak;
mod trouble;
mod waiting;

use std::path::Path;

use super::Options;
use super::contestant::Binary;
use super::report::Report;
pub(super) use http::Client;
pub(super) use served::Served;

const PROMISED_IDLE_MB: f64 = 30.0;

pub(super) fn measure(
    root: &Path,
    binary: &Binary,
    options: Options,
    report: &mut Report,
) -> Result<(), String> {
    overhead::measure(binary, options, report)?;
    known::measure(binary, options, report)?;
    interpreters::measure(root, binary, options, report)?;
    idle(binary, options, report)?;
    waiting::measure(binary, options, report)?;
    report::measure(root, options, report)?;
    soak::measure(binary, options, report)
}

/// After it has had something to do: a daemon that has done nothing is no daemon.
fn idle(binary: &Binary, options: Options, report: &mut Report) -> Result<(), String> {
    eprintln!("the daemon, idle");
    let served = Served::start(binary, options.privilege, "idle", &[])?;
    let mut client = served.client()?;
    for _ in 0..50 {
        client.run(&serde_json::json!({ "command": ["/usr/bin/true"] }))?;
    }
    drop(client);
    served.await_idle()?;
    let rss = served.rss_mb()?;
    report.promise(
        "the daemon's memory when idle",
        rss,
        PROMISED_IDLE_MB,
        " MB",
    );
    served.end()
}
