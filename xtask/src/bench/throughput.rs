//! Runs per second with several clients at once, in slices that take turns.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::contestant::{Binary, Contestant};
use super::report::{Report, Throughput};
use super::{Effort, Options};

const CLIENTS: [usize; 2] = [2, 16];

pub(super) fn measure(
    binary: &Binary,
    options: Options,
    report: &mut Report,
) -> Result<(), String> {
    let (slices, slice) = match options.effort {
        Effort::Quick => (2, Duration::from_millis(500)),
        Effort::Full => (5, Duration::from_secs(1)),
    };
    let contestants = binary.contestants(&["/usr/bin/true"], options.privilege);
    for clients in CLIENTS {
        eprintln!("throughput, {clients} clients");
        let mut totals = [(0.0, 0.0); 3];
        for _ in 0..slices {
            for (contestant, (runs, seconds)) in contestants.iter().zip(&mut totals) {
                let (more, time) = one_slice(contestant, clients, slice)?;
                *runs += f64::from(more);
                *seconds += time.as_secs_f64();
            }
        }
        let [bare, bubblewrap, cofferdam] = totals.map(|(runs, seconds)| runs / seconds);
        report.throughput.push(Throughput {
            clients,
            bare,
            bubblewrap,
            cofferdam,
        });
    }
    Ok(())
}

/// How many runs so many clients make, and in which time.
fn one_slice(
    contestant: &Contestant,
    clients: usize,
    slice: Duration,
) -> Result<(u32, Duration), String> {
    let start = Instant::now();
    let runs = flood(clients, slice, || contestant.time_success().map(drop))?;
    let runs = u32::try_from(runs).map_err(|_| format!("{runs} runs in one slice"))?;
    Ok((runs, start.elapsed()))
}

/// Every client starts one run after the other until the slice is over, and each at least one; runs that were started are waited for and counted.
pub(super) fn flood(
    clients: usize,
    slice: Duration,
    one: impl Fn() -> Result<(), String> + Sync,
) -> Result<u64, String> {
    let (runs, start) = (AtomicU64::new(0), Instant::now());
    let client = || {
        loop {
            one()?;
            runs.fetch_add(1, Ordering::Relaxed);
            if start.elapsed() >= slice {
                return Ok::<(), String>(());
            }
        }
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        let ended = clients
            .into_iter()
            .map(|client| client.join().map_err(|_| "a client panicked".to_owned())?);
        ended.collect::<Result<(), String>>()
    })?;
    Ok(runs.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::super::contestant::Privilege;
    use super::*;

    #[test]
    fn every_run_of_every_client_is_counted() {
        let contestant = Contestant::new("bare", Privilege::Own, &["/bin/true"]);
        let (runs, time) = one_slice(&contestant, 3, Duration::from_millis(50)).unwrap();
        assert!(
            runs >= 3 && time >= Duration::from_millis(50),
            "{runs} {time:?}"
        );
        let fails = Contestant::new("bare", Privilege::Own, &["/bin/false"]);
        assert!(one_slice(&fails, 2, Duration::from_secs(60)).is_err());
    }
}
