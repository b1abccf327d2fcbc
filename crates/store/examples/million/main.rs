//! Makes a history of a million runs and measures what it takes to search it. Fails when any kind of question takes more than 50 ms at the 95th percentile.
//!
//! `cargo run --release -p cofferdam-store --example million [-- --runs N] [--json] [--verify] [--dir PATH]`
//!
//! With `--dir`, the history is made there, kept, and used again the next time. Every question is asked on one open connection, and on a connection that is opened for it, as a
//! command would.

mod cases;
mod generate;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cofferdam_store::{DataDir, History, StoreError, audit};
use serde_json::{Value, json};

const PROMISE: Duration = Duration::from_millis(50);
const KEPT: usize = 40;
const FRESH: usize = 20;

struct Arguments {
    runs: usize,
    format: Format,
    chain: Chain,
    dir: Option<PathBuf>,
}

#[derive(PartialEq, Eq)]
enum Format {
    Table,
    Json,
}

#[derive(PartialEq, Eq)]
enum Chain {
    Verify,
    Leave,
}

struct Figures {
    name: &'static str,
    found: usize,
    p50: Duration,
    p95: Duration,
    max: Duration,
    fresh_p50: Duration,
    fresh_p95: Duration,
    fresh_max: Duration,
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(wrong) => {
            let _ = writeln!(io::stderr(), "{wrong}");
            return ExitCode::from(2);
        }
    };
    match measure(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Result<Arguments, String> {
    let mut found = Arguments {
        runs: 1_000_000,
        format: Format::Table,
        chain: Chain::Leave,
        dir: None,
    };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--json" => found.format = Format::Json,
            "--verify" => found.chain = Chain::Verify,
            "--runs" => {
                let number = given.next().and_then(|number| number.parse().ok());
                found.runs = number.ok_or("--runs: write a number after it")?;
            }
            "--dir" => found.dir = Some(given.next().ok_or("--dir: write a path after it")?.into()),
            other => return Err(format!("`{other}` is not an argument")),
        }
    }
    Ok(found)
}

fn measure(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let temporary = tempfile::tempdir()?;
    let path = arguments.dir.as_deref().unwrap_or(temporary.path());
    let dir = DataDir::at(path);
    let mut history = History::open(&dir)?;
    let begun = Instant::now();
    if history.stats()?.runs == 0 {
        generate::fill(&mut history, arguments.runs)?;
    }
    let filled = begun.elapsed();
    drop(history);

    let history = History::open(&dir)?;
    let landmarks = cases::Landmarks::find(&history)?;
    let mut figures = Vec::new();
    for case in cases::all(&landmarks) {
        figures.push(measure_case(&dir, &history, &case)?);
    }
    let other = other_figures(&history, arguments)?;
    let kept = figures
        .iter()
        .all(|case| case.p95 <= PROMISE && case.fresh_p95 <= PROMISE);
    match arguments.format {
        Format::Table => print_table(&figures, &other, filled)?,
        Format::Json => print_json(&figures, &other, filled)?,
    }
    Ok(kept)
}

fn measure_case(
    dir: &DataDir,
    history: &History,
    case: &cases::Case,
) -> Result<Figures, StoreError> {
    let mut found = 0;
    let mut kept = Vec::with_capacity(KEPT);
    for turn in 0..KEPT {
        let query = (case.query)(turn);
        let begun = Instant::now();
        let page = history.list(&query)?;
        kept.push(begun.elapsed());
        found = found.max(page.runs.len());
    }
    let mut fresh = Vec::with_capacity(FRESH);
    for turn in 0..FRESH {
        let query = (case.query)(turn);
        let begun = Instant::now();
        History::open(dir)?.list(&query)?;
        fresh.push(begun.elapsed());
    }
    kept.sort();
    fresh.sort();
    Ok(Figures {
        name: case.name,
        found,
        p50: percentile(&kept, 50),
        p95: percentile(&kept, 95),
        max: percentile(&kept, 100),
        fresh_p50: percentile(&fresh, 50),
        fresh_p95: percentile(&fresh, 95),
        fresh_max: percentile(&fresh, 100),
    })
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(rank).copied().unwrap_or_default()
}

/// What has no promise: how long the rest takes, once each.
fn other_figures(
    history: &History,
    arguments: &Arguments,
) -> Result<Vec<(String, Duration)>, StoreError> {
    let mut figures = Vec::new();
    let mut time = |name: String, work: &dyn Fn() -> Result<(), StoreError>| {
        let begun = Instant::now();
        work()?;
        figures.push((name, begun.elapsed()));
        Ok::<(), StoreError>(())
    };
    for (name, query) in cases::counts() {
        time(format!("count: {name}"), &|| {
            history.count(&query).map(drop)
        })?;
    }
    let (name, query) = cases::unindexed();
    time(format!("list: {name}"), &|| history.list(&query).map(drop))?;
    time("stats".to_owned(), &|| history.stats().map(drop))?;
    time("resolve latest~1000".to_owned(), &|| {
        history.resolve("latest~1000").map(drop)
    })?;
    if arguments.chain == Chain::Verify {
        time("audit: verify".to_owned(), &|| {
            let report = audit::verify(history)?;
            for finding in &report.findings {
                let _ = writeln!(io::stderr(), "{finding}");
            }
            Ok(())
        })?;
    }
    Ok(figures)
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 100_000.0).round() / 100.0
}

fn print_table(
    figures: &[Figures],
    other: &[(String, Duration)],
    filled: Duration,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "made in {:.1} s; figures in ms", filled.as_secs_f64())?;
    writeln!(
        out,
        "{:<44} {:>5} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9}",
        "question", "found", "p50", "p95", "max", "fresh p50", "p95", "max"
    )?;
    for case in figures {
        let over = case.p95.max(case.fresh_p95) > PROMISE;
        writeln!(
            out,
            "{:<44} {:>5} {:>8.2} {:>8.2} {:>8.2} {:>9.2} {:>9.2} {:>9.2}{}",
            case.name,
            case.found,
            milliseconds(case.p50),
            milliseconds(case.p95),
            milliseconds(case.max),
            milliseconds(case.fresh_p50),
            milliseconds(case.fresh_p95),
            milliseconds(case.fresh_max),
            if over { "  OVER" } else { "" }
        )?;
    }
    for (name, took) in other {
        writeln!(out, "{name:<44} {:>14.2}", milliseconds(*took))?;
    }
    Ok(())
}

fn print_json(
    figures: &[Figures],
    other: &[(String, Duration)],
    filled: Duration,
) -> io::Result<()> {
    let cases: Vec<Value> = figures
        .iter()
        .map(|case| {
            json!({
                "question": case.name,
                "found": case.found,
                "p50_ms": milliseconds(case.p50),
                "p95_ms": milliseconds(case.p95),
                "max_ms": milliseconds(case.max),
                "fresh_p50_ms": milliseconds(case.fresh_p50),
                "fresh_p95_ms": milliseconds(case.fresh_p95),
                "fresh_max_ms": milliseconds(case.fresh_max),
            })
        })
        .collect();
    let other: serde_json::Map<String, Value> = other
        .iter()
        .map(|(name, took)| (name.clone(), json!(milliseconds(*took))))
        .collect();
    let document = json!({
        "promise_ms": milliseconds(PROMISE),
        "made_in_s": filled.as_secs_f64(),
        "questions": cases,
        "without_promise_ms": other,
    });
    writeln!(io::stdout(), "{document:#}")
}
