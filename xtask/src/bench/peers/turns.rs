//! Taking turns: round-robin, so that whatever else the machine does hits every contestant alike. Who is slow sits some rounds out: the same rounds for all would take hours.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::peer::Peer;
use super::report::{Pace, Row, Throughput};
use crate::bench::stats::Stats;

const WARM_UP: usize = 3;
/// Slower than this is slow.
const SLOW: Duration = Duration::from_millis(40);
const SLOW_EVERY: usize = 5;
const SLICES: u32 = 3;

/// How long one run takes.
pub(super) fn latency(peers: &mut [Peer], pause_ms: u64, rounds: usize) -> Result<Pace, String> {
    let pause = Duration::from_millis(pause_ms);
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); peers.len()];
    let mut last = vec![Duration::ZERO; peers.len()];
    for round in 0..WARM_UP + rounds {
        for ((peer, times), last) in peers.iter_mut().zip(&mut times).zip(&mut last) {
            if *last > SLOW && round >= WARM_UP && !(round - WARM_UP).is_multiple_of(SLOW_EVERY) {
                continue;
            }
            sleep(pause);
            *last = peer.time()?;
            if round >= WARM_UP {
                times.push(*last);
            }
        }
    }
    let stats: Vec<Stats> = times.into_iter().filter_map(Stats::of).collect();
    let bare = stats.first().map_or(f64::NAN, |stats| stats.p50_ms);
    let rows = peers.iter().zip(stats).map(|(peer, stats)| Row {
        name: peer.name,
        to_bare: stats.p50_ms / bare,
        stats,
    });
    Ok(Pace {
        pause_ms,
        rows: rows.collect(),
    })
}

/// How many runs many clients get, and what of the machine's CPUs one run costs: all that was busy meanwhile, whoever it was busy for.
pub(super) fn throughput(
    peers: &mut [Peer],
    clients: usize,
    slice: Duration,
) -> Result<Vec<Throughput>, String> {
    let mut totals = vec![(0_u64, Duration::ZERO, 0.0_f64); peers.len()];
    for _ in 0..SLICES {
        for (peer, (runs, time, busy)) in peers.iter_mut().zip(&mut totals) {
            let before = busy_seconds()?;
            let start = Instant::now();
            *runs += peer.flood(clients, slice / SLICES)?;
            *time += start.elapsed();
            *busy += busy_seconds()? - before;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "counts of runs are small")]
    let rows = peers
        .iter()
        .zip(totals)
        .map(|(peer, (runs, time, busy))| Throughput {
            name: peer.name,
            runs_per_second: runs as f64 / time.as_secs_f64(),
            cpu_ms_per_run: busy * 1000.0 / runs.max(1) as f64,
        });
    Ok(rows.collect())
}

/// CPU time of the whole machine that was not idle, since it started.
fn busy_seconds() -> Result<f64, String> {
    let text = std::fs::read_to_string("/proc/stat").map_err(|error| error.to_string())?;
    busy_in(&text).ok_or_else(|| "/proc/stat is not understood".to_owned())
}

/// user, nice and system, then, after idle and iowait, irq and softirq, in hundredths of seconds.
fn busy_in(stat: &str) -> Option<f64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let numbers: Option<Vec<f64>> = line.split_whitespace().map(|n| n.parse().ok()).collect();
    let [user, nice, system, _, _, irq, softirq, ..] = numbers?[..] else {
        return None;
    };
    Some((user + nice + system + irq + softirq) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_is_what_is_neither_idle_nor_waiting() {
        let stat = "cpu  100 20 30 999 888 4 6 77 0 0\ncpu0 1 2 3 4\n";
        assert_eq!(busy_in(stat), Some(1.6));
        assert_eq!(busy_in("nonsense"), None);
        assert!(busy_seconds().unwrap() > 0.0);
    }
}
