//! `cargo xtask bench scale`: what a run costs as their number grows: while a long queue is worked off, and beside sandboxes that stand. Writes JSON and a chart.

mod chart;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use super::contestant::{Binary, Privilege};
use super::daemon::{Client, Served};
use super::machine::Machine;
use super::stats::Stats;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    queued: u64,
    /// How many sandboxes stand beside the one that is measured.
    beside: Vec<usize>,
    rounds: usize,
    out: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    #[serde(flatten)]
    machine: Machine,
    queue: Queue,
    beside: Vec<Beside>,
}

/// A queue that was filled while nothing ran, and then worked off.
#[derive(Debug, Serialize)]
struct Queue {
    queued: u64,
    accept_seconds: f64,
    drain_seconds: f64,
    windows: Vec<Window>,
}

/// A part of the queue, in the order in which it was worked off.
#[derive(Debug, Serialize)]
struct Window {
    done: u64,
    ms_per_run: f64,
}

#[derive(Debug, Serialize)]
struct Beside {
    standing: usize,
    #[serde(flatten)]
    stats: Stats,
}

/// The queue is looked at this many times on its way.
const WINDOWS: u64 = 20;
const CLIENTS: u64 = 8;
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
/// What the last part of a queue may cost of what the first ones cost.
const PROMISED_OF_QUEUE: f64 = 1.25;
/// What a run may cost beside as many as are promised, of what it costs alone.
const PROMISED_BESIDE: f64 = 1.5;
const HELP: &str = "bench scale has --quick and --out DIR";

impl Options {
    pub(crate) fn parse(flags: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            queued: 10_000,
            beside: vec![0, 25, 50, 100, 150, 200],
            rounds: 200,
            out: None,
        };
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            match *flag {
                "--quick" => {
                    options.queued = 1000;
                    options.beside = vec![0, 50];
                    options.rounds = 40;
                }
                "--out" => {
                    let dir = flags.next().ok_or("--out: name a directory")?;
                    options.out = Some(PathBuf::from(dir));
                }
                other => return Err(format!("there is no flag `{other}`; {HELP}")),
            }
        }
        Ok(options)
    }
}

/// Measures, prints it and writes it down; fails when the cost grows.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let binary = Binary::build(root, &[])?;
    let report = Report {
        schema: "cofferdam.scale/1",
        machine: Machine::this(),
        queue: queue(&binary, options)?,
        beside: beside(&binary, options)?,
    };
    print!("{report}");
    let out = options.out.clone();
    let out = out.unwrap_or_else(|| root.join("docs/benchmarks"));
    write(&out, &report)?;
    report.kept()
}

fn queue(binary: &Binary, options: &Options) -> Result<Queue, String> {
    let room = (options.queued + 10).to_string();
    let flags = ["--queue", room.as_str(), "--concurrency", "2"];
    let served = Served::start(binary, Privilege::Own, "queue", &flags)?;
    eprintln!("{} runs that wait", options.queued);
    let mut client = served.client()?;
    let held = [hold(&mut client)?, hold(&mut client)?];
    served.await_running(2)?;
    let began = Instant::now();
    let each = options.queued / CLIENTS;
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| scope.spawn(|| submit(&served, each)))
            .collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().map_err(|_| "a client panicked".to_owned())?)
    })?;
    let queued = each * CLIENTS;
    served.await_waiting(queued)?;
    let accept_seconds = began.elapsed().as_secs_f64();
    // The first one was silent for too long.
    let mut client = served.client()?;
    for id in held {
        let (status, answer) = client.ask("DELETE", &format!("/v1/runs/{id}"), None)?;
        if status >= 300 {
            return Err(format!("a run could not be cancelled: {status} {answer}"));
        }
    }
    let began = Instant::now();
    let mut windows = Vec::new();
    let mut since = began;
    for window in 1..=WINDOWS {
        let left = queued - queued * window / WINDOWS;
        let done_before = queued * (window - 1) / WINDOWS;
        while waiting(&mut client)? > left {
            std::thread::sleep(BETWEEN_LOOKS);
        }
        let (now, done) = (Instant::now(), queued - left);
        windows.push(Window {
            done,
            ms_per_run: per_run(now - since, done - done_before),
        });
        since = now;
    }
    let drain_seconds = began.elapsed().as_secs_f64();
    served.end()?;
    Ok(Queue {
        queued,
        accept_seconds,
        drain_seconds,
        windows,
    })
}

fn per_run(time: Duration, runs: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let runs = runs.max(1) as f64;
    time.as_secs_f64() * 1000.0 / runs
}

fn submit(served: &Served, count: u64) -> Result<(), String> {
    let mut client = served.client()?;
    let work = json!({ "command": ["/usr/bin/true"], "wait": false });
    for _ in 0..count {
        let (status, answer) = client.ask("POST", "/v1/runs", Some(&work))?;
        if status != 202 {
            return Err(format!("{work} was answered with {status} {answer}"));
        }
    }
    Ok(())
}

/// A run that goes on until it is cancelled; its id.
fn hold(client: &mut Client) -> Result<String, String> {
    let work = json!({ "command": ["/usr/bin/sleep", "600"], "limits": { "wall_time_ms": 600_000 }, "wait": false });
    let (status, run) = client.ask("POST", "/v1/runs", Some(&work))?;
    let id = run.get("run_id").and_then(Value::as_str);
    let id = id.ok_or_else(|| format!("{work} was answered with {status} {run}"))?;
    Ok(id.to_owned())
}

fn waiting(client: &mut Client) -> Result<u64, String> {
    let (_, health) = client.ask("GET", "/health", None)?;
    let waiting = health.get("queued_executions").and_then(Value::as_u64);
    waiting.ok_or_else(|| format!("/health says {health}"))
}

fn beside(binary: &Binary, options: &Options) -> Result<Vec<Beside>, String> {
    let flags = [
        "--concurrency",
        "220",
        "--queue",
        "300",
        "--overcommit",
        "--pool",
        "4",
    ];
    let served = Served::start(binary, Privilege::Own, "beside", &flags)?;
    let mut client = served.client()?;
    let work = json!({ "command": ["/usr/bin/true"] });
    let (mut standing, mut found) = (0, Vec::new());
    for &wanted in &options.beside {
        for _ in standing..wanted {
            hold(&mut client)?;
        }
        standing = wanted;
        served.await_running(u64::try_from(wanted).unwrap_or(u64::MAX))?;
        eprintln!("{} runs beside {wanted} sandboxes", options.rounds);
        let mut times = Vec::new();
        // The first ones fill the pool.
        for round in 0..options.rounds + 10 {
            let began = Instant::now();
            client.run(&work)?;
            if round >= 10 {
                times.push(began.elapsed());
            }
        }
        let stats = Stats::of(times).ok_or("no round was measured")?;
        found.push(Beside { standing, stats });
    }
    served.end()?;
    Ok(found)
}

impl Report {
    /// The last part of the queue beside the median of the first quarter, and a run beside most sandboxes beside one alone.
    fn growths(&self) -> Option<(f64, f64)> {
        let windows = &self.queue.windows;
        let mut first: Vec<f64> = windows
            .iter()
            .take(windows.len() / 4)
            .map(|window| window.ms_per_run)
            .collect();
        first.sort_by(f64::total_cmp);
        let first = first.get(first.len() / 2)?;
        let (alone, most) = (self.beside.first()?, self.beside.last()?);
        Some((
            windows.last()?.ms_per_run / first,
            most.stats.p50_ms / alone.stats.p50_ms,
        ))
    }

    fn kept(&self) -> Result<(), String> {
        let (queue, beside) = self.growths().ok_or("nothing was measured")?;
        match queue <= PROMISED_OF_QUEUE && beside <= PROMISED_BESIDE {
            true => Ok(()),
            false => Err(format!(
                "the cost of a run grows: {queue:.2} times over the queue (at most {PROMISED_OF_QUEUE}), {beside:.2} times beside other sandboxes (at most {PROMISED_BESIDE})"
            )),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Queue {
            queued,
            accept_seconds,
            drain_seconds,
            windows,
        } = &self.queue;
        writeln!(f, "{}\n", self.machine)?;
        writeln!(
            f,
            "{queued} runs were accepted in {accept_seconds:.1} s and worked off in {drain_seconds:.1} s"
        )?;
        writeln!(f, "  {:>9} {:>11}", "done", "ms for each")?;
        for Window { done, ms_per_run } in windows {
            writeln!(f, "  {done:9} {ms_per_run:11.2}")?;
        }
        writeln!(f, "\n  {:>9} {:>9} {:>9}", "beside", "p50 ms", "p95 ms")?;
        for Beside { standing, stats } in &self.beside {
            writeln!(
                f,
                "  {standing:9} {:9.2} {:9.2}",
                stats.p50_ms, stats.p95_ms
            )?;
        }
        if let Some((queue, beside)) = self.growths() {
            writeln!(
                f,
                "\nthe end of the queue costs {queue:.2} times its beginning; a run beside the most sandboxes {beside:.2} times one alone"
            )?;
        }
        Ok(())
    }
}

fn write(out: &Path, report: &Report) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", out.display());
    std::fs::create_dir_all(out).map_err(failed)?;
    let json = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
    std::fs::write(out.join("scale.json"), json + "\n").map_err(failed)?;
    std::fs::write(out.join("scale.svg"), chart::draw(report)).map_err(failed)?;
    println!("written: scale.json and scale.svg in {}", out.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(costs: &[f64], beside: &[u64]) -> Report {
        let windows = (1..).zip(costs);
        let stats = |ms| Stats::of(vec![Duration::from_millis(ms)]).unwrap();
        Report {
            schema: "cofferdam.scale/1",
            machine: Machine::this(),
            queue: Queue {
                queued: 100,
                accept_seconds: 1.0,
                drain_seconds: 1.0,
                windows: windows
                    .map(|(done, &ms_per_run)| Window { done, ms_per_run })
                    .collect(),
            },
            beside: beside
                .iter()
                .enumerate()
                .map(|(standing, &ms)| Beside {
                    standing,
                    stats: stats(ms),
                })
                .collect(),
        }
    }

    #[test]
    fn a_cost_that_grows_is_a_broken_promise() {
        let flat = [2.0; 20];
        assert!(report(&flat, &[3, 4]).kept().is_ok());
        assert!(report(&flat, &[3, 6]).kept().is_err());
        let mut slower = flat;
        slower[19] = 3.0;
        assert!(report(&slower, &[3, 4]).kept().is_err());
        assert!(report(&[], &[]).kept().is_err());
    }

    #[test]
    fn the_chart_has_a_line_for_each_measurement() {
        let svg = chart::draw(&report(&[2.0; 20], &[3, 4]));
        assert_eq!(svg.matches("<polyline").count(), 3);
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn flags_are_read_and_unknown_ones_refused() {
        let quick = Options::parse(&["--quick", "--out", "/tmp/x"]).unwrap();
        assert_eq!((quick.queued, quick.rounds), (1000, 40));
        for bad in [&["--fast"][..], &["--out"]] {
            assert!(Options::parse(bad).is_err(), "{bad:?}");
        }
    }
}
