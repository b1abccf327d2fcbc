//! WebAssembly: a run of a module that has been compiled before, in this process, in turns with bubblewrap's start of a program that prints the same; and what counting instructions
//! costs.

use std::path::Path;

use serde_json::Value;

use super::contestant::Contestant;
use super::report::Report;
use super::{Effort, Options};
use crate::process::{cargo, read};

const PROMISED_MS: f64 = 0.2;
const PROMISED_OF_BUBBLEWRAP: f64 = 0.05;
/// What the module prints.
const LIKE_PROGRAM: [&str; 2] = ["/usr/bin/echo", "hello"];

pub(super) fn measure(root: &Path, options: Options, report: &mut Report) -> Result<(), String> {
    eprintln!("WebAssembly");
    let rounds = match options.effort {
        Effort::Quick => "300",
        Effort::Full => "2000",
    };
    let bubblewrap = Contestant::bubblewrap(options.privilege, &LIKE_PROGRAM);
    bubblewrap.try_once()?;
    let package = ["run", "--release", "--package", "cofferdam-wasm"];
    let printed = read(
        cargo(root)
            .args(package)
            .args(["--example", "start", "--", rounds])
            .args(bubblewrap.words()),
    )?;
    let figures: Value =
        serde_json::from_str(&printed).map_err(|error| format!("example start: {error}"))?;
    let figure = |name: &str| {
        let value = figures.get(name).and_then(Value::as_f64);
        value.ok_or_else(|| format!("example start: no figure `{name}` in {figures}"))
    };
    report.promise(
        "a run of a compiled module, from the call to its output and record, p50",
        figure("start_p50_ms")?,
        PROMISED_MS,
        " ms",
    );
    report.figure("the same, p95", figure("start_p95_ms")?, " ms");
    let (ours, theirs) = (figure("start_in_turns_p50_ms")?, figure("command_p50_ms")?);
    report.promise(
        "the same in turns with bubblewrap, p50",
        ours,
        PROMISED_MS,
        " ms",
    );
    report.figure("bubblewrap's echo to its first output, p50", theirs, " ms");
    report.promise(
        "a run of a compiled module, of bubblewrap's echo",
        ours / theirs,
        PROMISED_OF_BUBBLEWRAP,
        "",
    );
    let paused = figure("start_after_20ms_p50_ms")?;
    report.figure("the same after 20 ms of quiet, p50", paused, " ms");
    let exact = figure("start_counted_p50_ms")?;
    report.figure("a deterministic run of it, p50", exact, " ms");
    let (free, counted) = (figure("work_ms")?, figure("work_counted_ms")?);
    report.figure("a sieve, by the clock", free, " ms");
    report.figure(
        "the same with instructions counted",
        counted / free,
        " times",
    );
    Ok(())
}
