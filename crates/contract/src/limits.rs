//! The limits of one run, with the contract's defaults and the range in which each makes sense.

use std::fmt;
use std::time::Duration;

use crate::enforcement::LimitName;
use crate::io_rates::IoRates;
use crate::problem::Problem;
use crate::units::{Bytes, Cap, CpuShare, format_duration};

/// Every bound of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    pub wall_time: Cap<Duration>,
    /// Of the whole process tree, not of one process.
    pub cpu_time: Cap<Duration>,
    /// Of the whole process tree; swap is off.
    pub memory: Cap<Bytes>,
    /// Of stdout and stderr together.
    pub output: Cap<Bytes>,
    /// Processes and threads alive at once.
    pub processes: Cap<u64>,
    /// Scratch space, and separately the growth of a writable workspace.
    pub disk: Cap<Bytes>,
    pub open_files: Cap<u64>,
    pub cpus: Cap<CpuShare>,
    /// Of the devices that hold the workspace and what is mounted.
    pub disk_io: Cap<IoRates>,
}

/// The range of a limit, both ends allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range<T> {
    pub min: T,
    pub max: T,
}

impl Limits {
    /// The contract's defaults, as a payload gets them.
    pub const DEFAULT: Self = Self {
        wall_time: Cap::AtMost(Duration::from_secs(300)),
        cpu_time: Cap::AtMost(Duration::from_secs(60)),
        memory: Cap::AtMost(Bytes::new(512 << 20)),
        output: Cap::AtMost(Bytes::new(100 << 10)),
        processes: Cap::AtMost(100),
        disk: Cap::AtMost(Bytes::new(1 << 30)),
        open_files: Cap::AtMost(1024),
        cpus: Cap::Unlimited,
        disk_io: Cap::Unlimited,
    };

    /// `cofferdam run` streams its output instead of keeping it, so it may be larger.
    pub const STREAMING: Self = Self {
        output: Cap::AtMost(Bytes::new(64 << 20)),
        ..Self::DEFAULT
    };

    /// Below a millisecond no program starts; above 30 days nobody waits.
    pub const WALL_TIME: Range<Duration> = Range {
        min: Duration::from_millis(1),
        max: Duration::from_secs(30 * 86_400),
    };
    /// As long as the wall time on every CPU of the largest machine.
    pub const CPU_TIME: Range<Duration> = Range {
        min: Duration::from_millis(1),
        max: Duration::from_secs(30 * 86_400 * 4096),
    };
    /// Below 1 MiB the kernel cannot even load a program.
    pub const MEMORY: Range<Bytes> = Range {
        min: Bytes::new(1 << 20),
        max: Bytes::new(1 << 50),
    };
    pub const OUTPUT: Range<Bytes> = Range {
        min: Bytes::new(1),
        max: Bytes::new(1 << 50),
    };
    /// The ceiling is the kernel's own: `PID_MAX_LIMIT` on 64-bit machines.
    pub const PROCESSES: Range<u64> = Range {
        min: 1,
        max: 4_194_304,
    };
    /// Below 64 KiB a tmpfs holds nothing: it counts whole pages, and every directory is one.
    pub const DISK: Range<Bytes> = Range {
        min: Bytes::new(64 << 10),
        max: Bytes::new(1 << 50),
    };
    /// Three streams, the program, its loader and libraries. The ceiling is the kernel's default `fs.nr_open`.
    pub const OPEN_FILES: Range<u64> = Range {
        min: 8,
        max: 1_048_576,
    };
    /// In thousandths. Below a hundredth of a CPU the kernel's quota period is shorter than its tick.
    pub const CPUS_MILLI: Range<u32> = Range {
        min: 10,
        max: 4_096_000,
    };

    /// Everything that is out of range, by the names that records and waivers use.
    pub fn problems(&self) -> Vec<Problem> {
        let cpus_milli = self.cpus.map(CpuShare::milli);
        [
            Self::WALL_TIME.problem(LimitName::WallTime, self.wall_time, format_duration),
            Self::CPU_TIME.problem(LimitName::CpuTime, self.cpu_time, format_duration),
            Self::MEMORY.problem(LimitName::Memory, self.memory, spell),
            Self::OUTPUT.problem(LimitName::Output, self.output, spell),
            Self::PROCESSES.problem(LimitName::Processes, self.processes, spell),
            Self::DISK.problem(LimitName::Disk, self.disk, spell),
            Self::OPEN_FILES.problem(LimitName::OpenFiles, self.open_files, spell),
            Self::CPUS_MILLI.problem(LimitName::Cpus, cpus_milli, spell_milli),
        ]
        .into_iter()
        .flatten()
        .chain(self.disk_io.at_most().and_then(|rates| rates.problem()))
        .collect()
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl<T: Copy + PartialOrd> Range<T> {
    pub fn contains(&self, value: T) -> bool {
        self.min <= value && value <= self.max
    }

    fn problem(&self, limit: LimitName, cap: Cap<T>, spell: fn(T) -> String) -> Option<Problem> {
        let value = cap.at_most().filter(|value| !self.contains(*value))?;
        let fix = if value < self.min {
            format!(
                "is below {min}; ask for at least {min}",
                min = spell(self.min)
            )
        } else {
            format!(
                "is above {max}; ask for at most {max}",
                max = spell(self.max)
            )
        };
        Some(Problem::new(limit.as_str(), spell(value), fix))
    }
}

fn spell(value: impl fmt::Display) -> String {
    value.to_string()
}

fn spell_milli(milli: u32) -> String {
    crate::decimal::thousandths(u128::from(milli))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_have_no_problems() {
        assert_eq!(Limits::DEFAULT.problems(), []);
        assert_eq!(Limits::STREAMING.problems(), []);
    }

    #[test]
    fn no_limits_at_all_is_in_range() {
        let unlimited = Limits {
            wall_time: Cap::Unlimited,
            cpu_time: Cap::Unlimited,
            memory: Cap::Unlimited,
            output: Cap::Unlimited,
            processes: Cap::Unlimited,
            disk: Cap::Unlimited,
            open_files: Cap::Unlimited,
            cpus: Cap::Unlimited,
            disk_io: Cap::Unlimited,
        };
        assert_eq!(unlimited.problems(), []);
    }

    #[test]
    fn the_ends_of_every_range_are_allowed() {
        for end in [at_the_floor(), at_the_ceiling()] {
            assert_eq!(end.problems(), []);
        }
    }

    #[test]
    fn everything_too_small_is_named_at_once() {
        let small = Limits {
            wall_time: Cap::AtMost(Duration::ZERO),
            cpu_time: Cap::AtMost(Duration::from_micros(999)),
            memory: Cap::AtMost(Bytes::new((1 << 20) - 1)),
            output: Cap::AtMost(Bytes::new(0)),
            processes: Cap::AtMost(0),
            disk: Cap::AtMost(Bytes::new((64 << 10) - 1)),
            open_files: Cap::AtMost(7),
            cpus: Cap::AtMost(CpuShare::from_milli(9).unwrap()),
            disk_io: Cap::AtMost(IoRates::EMPTY),
        };
        let found: Vec<_> = small.problems().iter().map(Problem::to_string).collect();
        assert_eq!(
            found,
            [
                "wall_time: is below 1 ms; ask for at least 1 ms (got `0 s`)",
                "cpu_time: is below 1 ms; ask for at least 1 ms (got `999 us`)",
                "memory: is below 1 MiB; ask for at least 1 MiB (got `1048575 B`)",
                "output: is below 1 B; ask for at least 1 B (got `0 B`)",
                "processes: is below 1; ask for at least 1 (got `0`)",
                "disk: is below 64 KiB; ask for at least 64 KiB (got `65535 B`)",
                "open_files: is below 8; ask for at least 8 (got `7`)",
                "cpus: is below 0.01; ask for at least 0.01 (got `0.009`)",
                "disk_io: names no rate; write one such as `read_bps=10m`",
            ]
        );
    }

    #[test]
    fn everything_too_large_is_named_at_once() {
        let large = Limits {
            wall_time: Cap::AtMost(Duration::from_secs(30 * 86_400) + Duration::from_nanos(1)),
            cpu_time: Cap::AtMost(Duration::MAX),
            memory: Cap::AtMost(Bytes::new((1 << 50) + 1)),
            output: Cap::AtMost(Bytes::new(u64::MAX)),
            processes: Cap::AtMost(4_194_305),
            disk: Cap::AtMost(Bytes::new(u64::MAX)),
            open_files: Cap::AtMost(u64::MAX),
            cpus: Cap::AtMost(CpuShare::from_milli(4_096_001).unwrap()),
            disk_io: Cap::AtMost(IoRates {
                read_bps: Some(u64::MAX),
                ..IoRates::EMPTY
            }),
        };
        let found: Vec<_> = large.problems().into_iter().map(|p| p.field).collect();
        assert_eq!(found, LimitName::ALL.map(|l| l.as_str().to_owned()));
    }

    fn at_the_floor() -> Limits {
        Limits {
            wall_time: Cap::AtMost(Limits::WALL_TIME.min),
            cpu_time: Cap::AtMost(Limits::CPU_TIME.min),
            memory: Cap::AtMost(Limits::MEMORY.min),
            output: Cap::AtMost(Limits::OUTPUT.min),
            processes: Cap::AtMost(Limits::PROCESSES.min),
            disk: Cap::AtMost(Limits::DISK.min),
            open_files: Cap::AtMost(Limits::OPEN_FILES.min),
            cpus: Cap::AtMost(CpuShare::from_milli(Limits::CPUS_MILLI.min).unwrap()),
            disk_io: Cap::AtMost(IoRates {
                write_iops: Some(1),
                ..IoRates::EMPTY
            }),
        }
    }

    fn at_the_ceiling() -> Limits {
        Limits {
            wall_time: Cap::AtMost(Limits::WALL_TIME.max),
            cpu_time: Cap::AtMost(Limits::CPU_TIME.max),
            memory: Cap::AtMost(Limits::MEMORY.max),
            output: Cap::AtMost(Limits::OUTPUT.max),
            processes: Cap::AtMost(Limits::PROCESSES.max),
            disk: Cap::AtMost(Limits::DISK.max),
            open_files: Cap::AtMost(Limits::OPEN_FILES.max),
            cpus: Cap::AtMost(CpuShare::from_milli(Limits::CPUS_MILLI.max).unwrap()),
            disk_io: Cap::AtMost(IoRates {
                read_bps: Some(IoRates::MAX_BPS),
                ..IoRates::EMPTY
            }),
        }
    }
}
