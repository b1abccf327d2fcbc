//! How much may run at once: by CPUs, and by what the memory limits of all running work add up to.

use cofferdam_contract::units::Bytes;

use crate::config::{MemoryBudget, RunBounds};

/// What is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capacity {
    at_once: usize,
    /// Of memory limits, in bytes; `None` for any sum.
    memory: Option<u64>,
    running: usize,
    memory_taken: u64,
}

/// A memory limit above what there is will never fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NeverFits {
    pub(crate) budget: Bytes,
}

impl Capacity {
    pub(crate) fn new(bounds: &RunBounds, cpus: usize, available: Option<u64>) -> Self {
        let memory = match bounds.memory {
            MemoryBudget::Overcommit => None,
            MemoryBudget::AtMost(bytes) => Some(bytes.get()),
            MemoryBudget::OfAvailable { percent } => {
                available.map(|bytes| bytes / 100 * u64::from(percent.min(100)))
            }
        };
        Self {
            at_once: bounds.at_once.unwrap_or(cpus).max(1),
            memory,
            running: 0,
            memory_taken: 0,
        }
    }

    /// What a run with this limit takes. One without a limit takes all there is.
    pub(crate) fn share(&self, limit: Option<Bytes>) -> Result<u64, NeverFits> {
        let Some(budget) = self.memory else {
            return Ok(0);
        };
        let asked = limit.map_or(budget, Bytes::get);
        if asked > budget {
            return Err(NeverFits {
                budget: Bytes::new(budget),
            });
        }
        Ok(asked)
    }

    pub(crate) fn fits(&self, share: u64) -> bool {
        let memory_fits = self
            .memory
            .is_none_or(|budget| self.memory_taken.saturating_add(share) <= budget);
        self.running < self.at_once && memory_fits
    }

    pub(crate) fn take(&mut self, share: u64) {
        self.running += 1;
        self.memory_taken = self.memory_taken.saturating_add(share);
    }

    pub(crate) fn give_back(&mut self, share: u64) {
        self.running = self.running.saturating_sub(1);
        self.memory_taken = self.memory_taken.saturating_sub(share);
    }

    pub(crate) fn running(&self) -> usize {
        self.running
    }

    pub(crate) fn at_once(&self) -> usize {
        self.at_once
    }

    pub(crate) fn memory_taken(&self) -> u64 {
        self.memory_taken
    }
}

/// `MemAvailable`, in bytes. Memory that the kernel could give away without swapping.
pub(crate) fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_limits_never_add_up_to_more_than_the_budget() {
        let bounds = RunBounds {
            memory: MemoryBudget::OfAvailable { percent: 50 },
            at_once: Some(3),
            ..RunBounds::default()
        };
        let mut capacity = Capacity::new(&bounds, 8, Some(1000));
        let share = capacity.share(Some(Bytes::new(300))).unwrap();
        assert!(capacity.fits(share));
        capacity.take(share);
        assert!(!capacity.fits(share));
        assert!(capacity.fits(200));
        let budget = Bytes::new(500);
        assert_eq!(
            capacity.share(Some(Bytes::new(501))),
            Err(NeverFits { budget })
        );
        assert_eq!(capacity.share(None), Ok(500));
        capacity.give_back(share);
        assert!(capacity.fits(500));
    }

    #[test]
    fn the_number_of_runs_is_bounded_also_without_a_budget() {
        let bounds = RunBounds {
            memory: MemoryBudget::Overcommit,
            ..RunBounds::default()
        };
        let mut capacity = Capacity::new(&bounds, 2, None);
        for _ in 0..2 {
            assert!(capacity.fits(u64::MAX));
            capacity.take(0);
        }
        assert!(!capacity.fits(0));
    }

    #[test]
    fn the_kernel_says_what_is_available() {
        assert!(available_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
