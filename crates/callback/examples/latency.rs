//! How long a result takes from the outbox to a peer on loopback. Prints the figures, and fails when the 95th percentile breaks the promise of 20 ms.
//!
//! `cargo run --release -p cofferdam-callback --example latency [MESSAGES] [DIRECTORY]`
#![allow(clippy::print_stdout, reason = "it is a program of its own")]

use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_callback::message::{Metrics, ResultReport, ResultStatus};
use cofferdam_callback::{Bearer, ControlPlane, Courier, Settings};
use cofferdam_store::{DataDir, Outbox};
use jiff::Timestamp;

const PROMISE: Duration = Duration::from_millis(20);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let messages: usize = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let temporary = tempfile::tempdir()?;
    let place = arguments
        .next()
        .map_or_else(|| temporary.path().to_owned(), Into::into);
    let (arrived, arrivals) = mpsc::channel();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let plane = ControlPlane::new(
        &format!("http://{}", listener.local_addr()?),
        ControlPlane::PREFIX,
        Some("plane"),
    )?;
    thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let arrived = arrived.clone();
            thread::spawn(move || drop(serve(&connection, &arrived)));
        }
    });
    let outbox = Outbox::open(&DataDir::at(place))?;
    let tokens = Arc::new(|_: &str| Bearer::new("token"));
    let courier = Courier::start(outbox.clone(), tokens, Settings::default())?;

    // One after another, with pauses, as results come.
    let (mut enqueue, mut transit) = (Vec::new(), Vec::new());
    for n in 0..messages {
        let message = plane.result(&format!("exec_{n}"), &report())?;
        let began = Instant::now();
        outbox.enqueue(message, Timestamp::now())?;
        let enqueued = Instant::now();
        let at: Instant = arrivals.recv_timeout(Duration::from_secs(10))?;
        enqueue.push(enqueued - began);
        transit.push(at.saturating_duration_since(enqueued));
        thread::sleep(Duration::from_millis(2));
    }
    show("enqueue (on the disk)", &mut enqueue);
    let p95 = show("enqueued to arrived, one at a time", &mut transit);

    // All at once, from eight threads.
    let began = Instant::now();
    thread::scope(|scope| {
        for worker in 0..8 {
            let (outbox, plane) = (&outbox, &plane);
            scope.spawn(move || {
                for n in 0..messages / 8 {
                    let message = plane.result(&format!("burst_{worker}_{n}"), &report());
                    let _ = message.map(|message| outbox.enqueue(message, Timestamp::now()));
                }
            });
        }
    });
    let enqueued = began.elapsed();
    for _ in 0..(messages / 8) * 8 {
        arrivals.recv_timeout(Duration::from_secs(60))?;
    }
    let count = u32::try_from((messages / 8) * 8)?;
    println!(
        "burst of {count} from 8 threads: enqueued at {:.0}/s, delivered at {:.0}/s",
        f64::from(count) / enqueued.as_secs_f64(),
        f64::from(count) / began.elapsed().as_secs_f64(),
    );
    courier.stop(Duration::from_secs(5));
    if p95 > PROMISE {
        return Err(format!("p95 {p95:?} is above {PROMISE:?}").into());
    }
    Ok(())
}

fn show(what: &str, times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    let at = |percent: usize| {
        times
            .get((times.len() * percent / 100).min(times.len() - 1))
            .copied()
            .unwrap_or_default()
    };
    println!(
        "{what}: p50 {:?}, p95 {:?}, p99 {:?}",
        at(50),
        at(95),
        at(99)
    );
    at(95)
}

fn report() -> ResultReport {
    ResultReport {
        status: ResultStatus::Success,
        stdout: "x".repeat(2000),
        stderr: String::new(),
        exit_code: 0,
        execution_time: Duration::from_millis(12),
        return_value: None,
        metrics: Metrics {
            duration: Duration::from_millis(12),
            cpu_time: None,
            peak_memory_bytes: None,
            io_read_bytes: None,
            io_write_bytes: None,
        },
        artifacts: Vec::new(),
    }
}

/// Says when each request had arrived whole, and answers it.
fn serve(mut connection: &TcpStream, arrived: &mpsc::Sender<Instant>) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut reader = BufReader::new(connection);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().map_err(std::io::Error::other)?;
            }
            if line.is_empty() {
                break;
            }
        }
        reader.read_exact(&mut vec![0; length])?;
        let _ = arrived.send(Instant::now());
        connection.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")?;
    }
}
