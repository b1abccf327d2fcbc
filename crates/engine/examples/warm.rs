//! How long a run takes in a sandbox that stands already, beside one that is built for it and a process without any, in turns:
//! `cargo run --release -p cofferdam-engine --example warm -- [ROUNDS] [PROGRAM…]`.

#![allow(clippy::print_stdout, reason = "a program that prints figures")]

use std::error::Error;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_contract::request::{Grant, Request};
use cofferdam_engine::host::Host;
use cofferdam_engine::interpreter::Interpreter;
use cofferdam_engine::pipeline::{self, Evidence, Streams};
use cofferdam_engine::pool::{Pool, PoolBounds, Private};
use cofferdam_store::DataDir;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let rounds: usize = args.next().map_or(Ok(500), |rounds| rounds.parse())?;
    let mut argv: Vec<String> = args.collect();
    if argv.is_empty() {
        argv.push("/usr/bin/true".to_owned());
    }
    let host = Arc::new(Host::detect());
    let dir = DataDir::at(std::env::temp_dir().join(format!("warm-{}", std::process::id())));
    let python = Interpreter::python();
    let pool = Pool::start(Arc::clone(&host), dir, PoolBounds::of_runs(2), vec![python]);
    let pool = pool.ok_or("no sandbox can wait here")?;
    let (mut bare, mut cold, mut warm) = (Vec::new(), Vec::new(), Vec::new());
    let mut programs = Vec::new();
    for _ in 0..rounds {
        let began = Instant::now();
        let (program, rest) = argv.split_first().ok_or("no program")?;
        let status = Command::new(program)
            .env("PATH", "/usr/bin")
            .args(rest)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()?;
        bare.push(began.elapsed());
        if !status.success() {
            return Err("the program fails".into());
        }
        cold.push(timed(&argv, None, &host)?.0);
        // As if requests came with a pause: a pool is refilled behind a run.
        std::thread::sleep(Duration::from_millis(3));
        let (whole, program) = timed(&argv, Some(&pool), &host)?;
        warm.push(whole);
        programs.push(program);
        std::thread::sleep(Duration::from_millis(3));
    }
    println!("{:?}", pool.figures());
    for (name, times) in [
        ("bare", bare),
        ("cold", cold),
        ("warm", warm),
        ("of it the program", programs),
    ] {
        print(name, times);
    }
    Ok(())
}

/// The whole, and how long the program itself took of it.
fn timed(
    argv: &[String],
    pool: Option<&Pool>,
    host: &Host,
) -> Result<(Duration, Duration), Box<dyn Error>> {
    let began = Instant::now();
    let request = Request::command(argv);
    let seat = pool.and_then(|pool| pool.seat(&request, Evidence::Ending, Private::Nothing));
    let streams = Streams::kept(1 << 20);
    let record = pipeline::run_in(seat.into(), Grant::new(request)?, streams, host)?;
    match record.exit_code {
        Some(0) => Ok((
            began.elapsed(),
            Duration::from_secs_f64(record.usage.wall_ms / 1000.0),
        )),
        _ => Err(format!("{:?}", record.ending).into()),
    }
}

fn print(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| {
        let rank = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(rank).copied().unwrap_or_default().as_secs_f64() * 1000.0
    };
    println!("{name}: p50 {:.3} ms, p95 {:.3} ms", at(50), at(95));
}
