//! Percentiles over a set of times. Nothing is averaged: one slow run must not hide in a mean, nor colour it.

use std::time::Duration;

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Stats {
    pub(super) p50_ms: f64,
    pub(super) p95_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) runs: usize,
}

impl Stats {
    /// `None` of no times.
    pub(super) fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        let at = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).max(1);
            times.get(rank - 1).map(|time| time.as_secs_f64() * 1000.0)
        };
        Some(Self {
            p50_ms: at(50)?,
            p95_ms: at(95)?,
            p99_ms: at(99)?,
            runs: times.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let times = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(
            Stats::of(times),
            Some(Stats {
                p50_ms: 50.0,
                p95_ms: 95.0,
                p99_ms: 99.0,
                runs: 100
            })
        );
        let one = vec![Duration::from_millis(7)];
        assert_eq!(
            Stats::of(one),
            Some(Stats {
                p50_ms: 7.0,
                p95_ms: 7.0,
                p99_ms: 7.0,
                runs: 1
            })
        );
        assert_eq!(Stats::of(Vec::new()), None);
    }
}
