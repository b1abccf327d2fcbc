//! WebAssembly: a run of a module that has been compiled before, in this process, beside bubblewrap's start of a process; and what counting instructions costs.

use std::path::Path;

use serde_json::Value;

use super::contestant::Contestant;
use super::report::Report;
use super::stats::Stats;
use super::{Effort, Options};
use crate::process::{cargo, read};

const PROMISED_MS: f64 = 0.2;
const PROMISED_OF_BUBBLEWRAP: f64 = 0.05;

pub(super) fn measure(root: &Path, options: Options, report: &mut Report) -> Result<(), String> {
    eprintln!("WebAssembly");
    let rounds = match options.effort {
        Effort::Quick => "300",
        Effort::Full => "2000",
    };
    let package = ["run", "--release", "--package", "cofferdam-wasm"];
    let printed = read(
        cargo(root)
            .args(package)
            .args(["--example", "start", "--", rounds]),
    )?;
    let figures: Value =
        serde_json::from_str(&printed).map_err(|error| format!("example start: {error}"))?;
    let figure = |name: &str| {
        let value = figures.get(name).and_then(Value::as_f64);
        value.ok_or_else(|| format!("example start: no figure `{name}` in {figures}"))
    };
    let start = figure("start_p50_ms")?;
    report.promise("a run of a compiled module, p50", start, PROMISED_MS, " ms");
    report.figure("the same, p95", figure("start_p95_ms")?, " ms");
    report.figure(
        "the same after 20 ms of quiet, p50",
        figure("start_after_20ms_p50_ms")?,
        " ms",
    );
    let bubblewrap = Contestant::bubblewrap(options.privilege, &["/usr/bin/true"]);
    bubblewrap.try_once()?;
    let mut times = Vec::new();
    for _ in 0..50 {
        times.push(bubblewrap.time_success()?);
    }
    let walls = Stats::of(times).map_or(f64::NAN, |stats| stats.p50_ms);
    report.promise(
        "a run of a compiled module, of bubblewrap's /usr/bin/true",
        start / walls,
        PROMISED_OF_BUBBLEWRAP,
        "",
    );
    let (free, counted) = (figure("work_ms")?, figure("work_counted_ms")?);
    report.figure("a sieve, by the clock", free, " ms");
    report.figure(
        "the same with instructions counted",
        counted / free,
        " times",
    );
    Ok(())
}
