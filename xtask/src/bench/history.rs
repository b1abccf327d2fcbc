//! What keeping a run costs it: the same run with and without history, in turns; and what taking the journals in costs, shared by the runs that wrote them.

use super::contestant::{Binary, Contestant};
use super::report::Report;
use super::stats::Stats;
use super::{Effort, Options};

/// Of a run that keeps nothing.
const PROMISED_SHARE: f64 = 0.10;
const WARM_UP: usize = 5;
/// About as many as there are when a run takes them in.
const ENOUGH: usize = 200;
const MOST_RUNS: usize = 5000;

pub(super) fn measure(
    binary: &Binary,
    options: Options,
    report: &mut Report,
) -> Result<(), String> {
    let rounds = match options.effort {
        Effort::Quick => 400,
        Effort::Full => 1500,
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
    // As it is after a while: journals that were taken in have left files that are used again.
    adoption_ms_per_run(binary, options, &kept)?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..WARM_UP + rounds {
        // In turns also as to who is first.
        let (a, b) = if round % 2 == 0 {
            let a = kept.time_success()?;
            (a, not_kept.time_success()?)
        } else {
            let b = not_kept.time_success()?;
            (kept.time_success()?, b)
        };
        if round >= WARM_UP {
            with.push(a);
            without.push(b);
        }
    }
    let p50 = |times| Stats::of(times).map_or(f64::NAN, |stats| stats.p50_ms);
    let (with, without) = (p50(with), p50(without));
    let adoption = adoption_ms_per_run(binary, options, &kept)?;
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

/// A look at history takes all journals in; the look after it finds nothing to do. Some runs look by themselves, so runs are added until enough are waiting.
fn adoption_ms_per_run(
    binary: &Binary,
    options: Options,
    kept: &Contestant,
) -> Result<f64, String> {
    let list = binary.verb(options.privilege, &["runs", "list", "--limit", "1"]);
    list.time_success()?;
    for _ in 0..MOST_RUNS {
        kept.time_success()?;
        let waiting = binary.journals()?;
        if waiting >= ENOUGH {
            let first = list.time_success()?;
            let second = list.time_success()?;
            let taken = first.saturating_sub(second).as_secs_f64() * 1000.0;
            return Ok(taken / waiting as f64);
        }
    }
    Err("the runs of the benchmark leave too few journals".to_owned())
}
