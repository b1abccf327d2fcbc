//! A fleet: how throughput grows with its workers, for work that waits and for work that computes, and what a job costs the daemon that coordinates it.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::contestant::Binary;
use super::daemon::{Client, Served};
use super::report::Report;
use super::{Effort, Options};

/// Each worker does this many at a time, on a machine of however many CPUs.
const SLOTS: &str = "4";
const SOON: Duration = Duration::from_secs(60);

struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn measure(
    binary: &Binary,
    options: Options,
    report: &mut Report,
) -> Result<(), String> {
    let jobs = match options.effort {
        Effort::Quick => 48,
        Effort::Full => 192,
    };
    let waits = json!({ "command": ["/usr/bin/sleep", "0.5"] });
    let computes = json!({ "command": ["/bin/sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"] });
    for (kind, work) in [("waits 0.5 s", waits), ("computes", computes)] {
        for workers in [1_usize, 2, 4] {
            eprintln!("a fleet of {workers}, work that {kind}");
            let (rate, cpu_ms) = one(binary, options, workers, jobs, &work)?;
            let name = format!("fleet: work that {kind}, {workers} workers of {SLOTS}");
            report.figure(name, rate, " jobs/s");
            let name = format!("fleet: the coordinating daemon's CPU, {kind}, {workers} workers");
            report.figure(name, cpu_ms, " ms a job");
        }
    }
    Ok(())
}

/// Jobs in a second, and milliseconds of the daemon's CPU for each.
fn one(
    binary: &Binary,
    options: Options,
    workers: usize,
    jobs: usize,
    work: &Value,
) -> Result<(f64, f64), String> {
    let name = format!("fleet-{workers}-{}", work.to_string().len());
    let (_server, url) = server(&binary.directory(&format!("nats-{name}"))?)?;
    let data = binary.directory(&format!("workers-{name}"))?;
    let data = data.to_string_lossy();
    let mut guests = Vec::new();
    for number in 0..workers {
        let worker = format!("w{number}");
        let words = [
            "--data-dir",
            &*data,
            "worker",
            "--nats",
            &url,
            "--slots",
            SLOTS,
            "--name",
            &worker,
        ];
        let started = binary.verb(options.privilege, &words).command().spawn();
        guests.push(Guest(
            started.map_err(|error| format!("a worker: {error}"))?,
        ));
    }
    let served = Served::start(
        binary,
        options.privilege,
        &name,
        &["--fleet", &url, "--queue", "1000"],
    )?;
    // Everybody has begun to work before it counts.
    together(&served, work, workers * 8)?;
    let (began, before) = (Instant::now(), served.cpu()?);
    together(&served, work, jobs)?;
    let (took, cpu) = (began.elapsed(), served.cpu()?.saturating_sub(before));
    served.end()?;
    #[allow(clippy::cast_precision_loss, reason = "hundreds")]
    let jobs = jobs as f64;
    Ok((jobs / took.as_secs_f64(), cpu.as_secs_f64() * 1000.0 / jobs))
}

/// All of them at once, each on a connection of its own, until all have ended well.
fn together(served: &Served, work: &Value, jobs: usize) -> Result<(), String> {
    std::thread::scope(|scope| {
        let each: Vec<_> = (0..jobs)
            .map(|_| {
                scope.spawn(|| {
                    let mut client: Client = served.client()?;
                    client.run(work).map(drop)
                })
            })
            .collect();
        each.into_iter().try_for_each(|one| {
            one.join()
                .unwrap_or_else(|_| Err("a client failed".to_owned()))
        })
    })
}

fn server(dir: &Path) -> Result<(Guest, String), String> {
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|free| free.local_addr())
        .map_err(|error| format!("no port: {error}"))?
        .port();
    let mut command = Command::new("nats-server");
    command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"]);
    command.arg(dir).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn();
    let server = Guest(child.map_err(|error| format!("nats-server: {error}"))?);
    let last = Instant::now() + SOON;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if Instant::now() > last {
            return Err("nats-server does not answer".to_owned());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok((server, format!("nats://127.0.0.1:{port}")))
}

impl Served {
    /// What the daemon has used.
    fn cpu(&self) -> Result<Duration, String> {
        let path = format!("/proc/{}/stat", self.pid());
        let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let fields = text
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_whitespace());
        let ticks: u64 = fields
            .into_iter()
            .flatten()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        let each = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_millis(ticks.saturating_mul(1000) / each))
    }
}
