//! What keeping a run costs it: the same run with and without history, in turns; and what taking the journals in costs, shared by the runs that wrote them.

use std::time::Instant;

use super::contestant::Binary;
use super::report::Report;
use super::stats::Stats;
use super::{Effort, Options};

/// Of a run that keeps nothing.
const PROMISED_SHARE: f64 = 0.10;
const WARM_UP: usize = 5;

pub(super) fn measure(
    binary: &Binary,
    options: Options,
    report: &mut Report,
) -> Result<(), String> {
    let rounds = match options.effort {
        Effort::Quick => 150,
        Effort::Full => 600,
    };
    eprintln!("history, {rounds} rounds");
    let program = ["/usr/bin/true"];
    let kept = binary.run("cofferdam", options.privilege, &[], &program);
    let not_kept = binary.run(
        "cofferdam --no-history",
        options.privilege,
        &["--no-history"],
        &program,
    );
    kept.try_once()?;
    not_kept.try_once()?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..WARM_UP + rounds {
        let (a, b) = (kept.time_success()?, not_kept.time_success()?);
        if round >= WARM_UP {
            with.push(a);
            without.push(b);
        }
    }
    let p50 = |times| Stats::of(times).map_or(f64::NAN, |stats| stats.p50_ms);
    let (with, without) = (p50(with), p50(without));
    let adoption = adoption_ms_per_run(binary, options)?;
    report.figure("a run that keeps nothing, p50", without, " ms");
    report.figure("a run that is kept, p50", with, " ms");
    report.figure("taking its journal in, its share of many", adoption, " ms");
    report.promise(
        "history, as a share of a run that keeps nothing",
        (with - without + adoption) / without,
        PROMISED_SHARE,
        "",
    );
    Ok(())
}

/// The first look at history takes all journals in, the second finds nothing to do.
fn adoption_ms_per_run(binary: &Binary, options: Options) -> Result<f64, String> {
    let list = binary.verb(options.privilege, &["runs", "list", "--limit", "1"]);
    let waiting = binary.journals()?;
    let start = Instant::now();
    list.time_success()?;
    let first = start.elapsed();
    let second = list.time_success()?;
    if waiting == 0 {
        return Err("no run of the benchmark left a journal".to_owned());
    }
    let taken = first.saturating_sub(second).as_secs_f64() * 1000.0;
    Ok(taken / waiting as f64)
}
