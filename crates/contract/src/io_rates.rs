//! How fast disks may be read and written: bytes and operations for each second, each way by itself. Written as `read_bps=10m,write_iops=100`.

use std::fmt;
use std::str::FromStr;

use crate::problem::{Problem, shorten};
use crate::units::Bytes;

/// Rates for each device; what is not set is not bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoRates {
    pub read_bps: Option<u64>,
    pub write_bps: Option<u64>,
    pub read_iops: Option<u64>,
    pub write_iops: Option<u64>,
}

/// A text that is no rates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no rate; write `read_bps=10m`, `write_bps=5m`, `read_iops=100`, `write_iops=50`, or several with commas"
)]
pub struct BadRates {
    pub text: String,
}

impl IoRates {
    pub const EMPTY: Self = Self {
        read_bps: None,
        write_bps: None,
        read_iops: None,
        write_iops: None,
    };
    /// Slower, a program would wait for its own pages longer than anybody watches.
    pub const MIN_BPS: u64 = 4096;
    pub const MAX_BPS: u64 = 1 << 50;
    /// What the kernel of version 1 takes.
    pub const MAX_IOPS: u64 = 1 << 31;

    /// Whether anything that is written is bounded.
    pub const fn bounds_writes(&self) -> bool {
        self.write_bps.is_some() || self.write_iops.is_some()
    }

    /// What is set here, and the rest as in `below`.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        Self {
            read_bps: self.read_bps.or(below.read_bps),
            write_bps: self.write_bps.or(below.write_bps),
            read_iops: self.read_iops.or(below.read_iops),
            write_iops: self.write_iops.or(below.write_iops),
        }
    }

    pub(crate) fn problem(&self) -> Option<Problem> {
        let fix = if *self == Self::EMPTY {
            "names no rate; write one such as `read_bps=10m`".to_owned()
        } else {
            let bad = |rate: Option<u64>, min: u64, max: u64| {
                rate.is_some_and(|rate| rate < min || rate > max)
            };
            let bytes = |rate| bad(rate, Self::MIN_BPS, Self::MAX_BPS);
            let operations = |rate| bad(rate, 1, Self::MAX_IOPS);
            if bytes(self.read_bps) || bytes(self.write_bps) {
                "bytes for each second are between 4 KiB and 1 PiB".to_owned()
            } else if operations(self.read_iops) || operations(self.write_iops) {
                format!(
                    "operations for each second are between 1 and {}",
                    Self::MAX_IOPS
                )
            } else {
                return None;
            }
        };
        Some(Problem::new("disk_io", self, fix))
    }

    fn parts(&self) -> [(&'static str, Option<u64>); 4] {
        [
            ("read_bps", self.read_bps),
            ("write_bps", self.write_bps),
            ("read_iops", self.read_iops),
            ("write_iops", self.write_iops),
        ]
    }
}

/// As it can be read again.
impl fmt::Display for IoRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = self.parts().into_iter();
        let set = set.filter_map(|(name, rate)| Some(format!("{name}={}", rate?)));
        f.write_str(&set.collect::<Vec<_>>().join(","))
    }
}

impl FromStr for IoRates {
    type Err = BadRates;

    fn from_str(text: &str) -> Result<Self, BadRates> {
        let bad = || BadRates {
            text: shorten(text),
        };
        let mut rates = Self::EMPTY;
        for part in text.split(',') {
            let (name, value) = part.trim().split_once('=').ok_or_else(bad)?;
            let bytes = || value.parse::<Bytes>().map(Bytes::get).map_err(|_| bad());
            let count = || match value.bytes().all(|byte| byte.is_ascii_digit()) {
                true => value.parse().map_err(|_| bad()),
                false => Err(bad()),
            };
            let (slot, rate) = match name {
                "read_bps" => (&mut rates.read_bps, bytes()?),
                "write_bps" => (&mut rates.write_bps, bytes()?),
                "read_iops" => (&mut rates.read_iops, count()?),
                "write_iops" => (&mut rates.write_iops, count()?),
                _ => return Err(bad()),
            };
            if slot.replace(rate).is_some() {
                return Err(bad());
            }
        }
        Ok(rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_back_as_they_are_written() {
        let rates: IoRates = "read_bps=10m, write_iops=50".parse().unwrap();
        assert_eq!(rates.read_bps, Some(10 << 20));
        assert_eq!(rates.write_iops, Some(50));
        assert!(rates.bounds_writes() && rates.problem().is_none());
        assert_eq!(rates.to_string().parse(), Ok(rates));
        for bad in [
            "",
            "10m",
            "read_bps",
            "read_bps=",
            "read_bps=x",
            "speed=1",
            "read_iops=1k",
            "read_iops=1,read_iops=2",
            "read_iops=-1",
        ] {
            assert!(bad.parse::<IoRates>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_later_rate_wins_alone() {
        let below: IoRates = "read_bps=1m,write_bps=1m".parse().unwrap();
        let above: IoRates = "write_bps=2m".parse().unwrap();
        assert_eq!(
            above.over(below).to_string(),
            "read_bps=1048576,write_bps=2097152"
        );
    }

    #[test]
    fn rates_out_of_range_are_problems() {
        for bad in [
            "read_bps=1",
            "write_bps=9999999999999999",
            "read_iops=0",
            "write_iops=9999999999",
        ] {
            let rates: IoRates = bad.parse().unwrap();
            assert!(rates.problem().is_some(), "{bad}");
        }
    }
}
