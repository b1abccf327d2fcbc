//! The library as somebody calls it, one run for each line of standard input, so that a benchmark can take turns with it:
//! `cargo run --release -p cofferdam-engine --example paced -- cold|warm PROGRAM…`. A line `run` is answered with the nanoseconds that it took; `flood CLIENTS MILLISECONDS` with
//! the number of runs that as many threads came to.

#![allow(clippy::print_stdout, reason = "a program that prints figures")]

use std::error::Error;
use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cofferdam_contract::request::{Grant, Request};
use cofferdam_engine::host::Host;
use cofferdam_engine::interpreter::Interpreter;
use cofferdam_engine::pipeline::{self, Evidence, Streams};
use cofferdam_engine::pool::{Pool, PoolBounds, Private};
use cofferdam_store::DataDir;

struct Library {
    argv: Vec<String>,
    host: Arc<Host>,
    /// Where sandboxes stand ready, for `warm`.
    pool: Option<Pool>,
}

const MOST_CLIENTS: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let way = args.next().unwrap_or_default();
    let argv: Vec<String> = args.collect();
    if argv.is_empty() {
        return Err("name a program: paced cold|warm PROGRAM…".into());
    }
    let host = Arc::new(Host::detect());
    let place = std::env::temp_dir().join(format!("paced-{}", std::process::id()));
    let pool = match way.as_str() {
        "cold" => None,
        "warm" => {
            let bounds = PoolBounds::of_runs(host.cpus.len());
            let dir = DataDir::at(place);
            let interpreters = vec![Interpreter::python()];
            let pool = Pool::start(Arc::clone(&host), dir, bounds, interpreters);
            Some(pool.ok_or("no sandbox can wait here")?)
        }
        other => return Err(format!("`{other}` is neither cold nor warm").into()),
    };
    let library = Library { argv, host, pool };
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["run"] => println!("{}", library.run()?.as_nanos()),
            ["flood", clients, millis] => {
                let clients = clients.parse::<usize>()?.min(MOST_CLIENTS);
                let slice = Duration::from_millis(millis.parse()?);
                println!("{}", library.flood(clients, slice)?);
            }
            _ => return Err(format!("`{line}` is not understood").into()),
        }
        std::io::stdout().flush()?;
    }
    Ok(())
}

impl Library {
    fn run(&self) -> Result<Duration, String> {
        let began = Instant::now();
        let request = Request::command(&self.argv);
        let pool = self.pool.as_ref();
        let seat =
            pool.and_then(|pool| pool.seat_or_build(&request, Evidence::Ending, Private::Nothing));
        let streams = Streams::kept(1 << 20);
        let grant = Grant::new(request).map_err(|error| error.to_string())?;
        let record = pipeline::run_in(seat.into(), grant, streams, &self.host);
        let record = record.map_err(|error| error.to_string())?;
        match record.exit_code {
            Some(0) => Ok(began.elapsed()),
            _ => Err(format!("{:?}", record.ending)),
        }
    }

    fn flood(&self, clients: usize, slice: Duration) -> Result<u64, String> {
        let (count, began) = (AtomicU64::new(0), Instant::now());
        std::thread::scope(|scope| {
            let client = || {
                while began.elapsed() < slice {
                    self.run()?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<(), String>(())
            };
            let all: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
            let ended = all
                .into_iter()
                .map(|one| one.join().map_err(|_| "a client panicked".to_owned())?);
            ended.collect::<Result<(), String>>()
        })?;
        Ok(count.load(Ordering::Relaxed))
    }
}
