//! Adds up the CPU time of a tree whose members come and go, where no control group does.
//!
//! A process that is waited for leaves its time to whoever waited. One that nobody waits for, because its parent ignores SIGCHLD, takes its time with it: what
//! it had at the last look is kept here. Two things stay uncounted: what happens between the last look and such an end, and as much of that lost time as other
//! processes, which were waited for, burnt between two looks. So a program that hides on purpose gets less than twice its limit, and what the looks miss.

use std::collections::HashMap;
use std::time::Duration;

use cofferdam_sys::proc::Process;

#[derive(Debug, Default)]
pub(crate) struct CpuAccount {
    /// By pid and birth, as of the last look.
    known: HashMap<(u32, u64), Process>,
    /// Of processes that nobody waited for.
    lost: Duration,
    total: Duration,
}

impl CpuAccount {
    /// The processes seen last, to be asked for again.
    pub(crate) fn known(&self) -> impl Iterator<Item = (u32, u64)> {
        self.known.keys().copied()
    }

    /// Takes in one look at the tree; returns all CPU time so far.
    pub(crate) fn note(&mut self, tree: &[Process]) -> Duration {
        let now: HashMap<(u32, u64), Process> = tree
            .iter()
            .map(|process| ((process.pid, process.born), *process))
            .collect();
        let gone: Duration = self
            .known
            .iter()
            .filter(|(name, _)| !now.contains_key(*name))
            .map(|(_, process)| process.cpu + process.cpu_of_waited)
            .sum();
        // A process that is new to us counts from zero: it may have waited for one that is gone.
        let inherited: Duration = now
            .iter()
            .map(|(name, process)| {
                let before = self
                    .known
                    .get(name)
                    .map_or(Duration::ZERO, |known| known.cpu_of_waited);
                process.cpu_of_waited.saturating_sub(before)
            })
            .sum();
        self.lost += gone.saturating_sub(inherited);
        let alive: Duration = now
            .values()
            .map(|process| process.cpu + process.cpu_of_waited)
            .sum();
        self.known = now;
        self.total = self.total.max(alive + self.lost);
        self.total
    }

    pub(crate) fn total(&self) -> Duration {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, cpu_ms: u64, waited_ms: u64) -> Process {
        Process {
            pid,
            parent: 1,
            born: u64::from(pid),
            cpu: Duration::from_millis(cpu_ms),
            cpu_of_waited: Duration::from_millis(waited_ms),
            threads: 1,
        }
    }

    #[test]
    fn time_that_nobody_waited_for_is_not_lost() {
        let mut account = CpuAccount::default();
        let mut note = |tree: &[Process]| account.note(tree).as_millis();
        assert_eq!(note(&[process(1, 10, 0), process(2, 100, 0)]), 110);
        assert_eq!(note(&[process(1, 10, 0)]), 110);
        assert_eq!(note(&[process(1, 20, 0), process(3, 50, 0)]), 170);
        assert_eq!(note(&[process(1, 20, 0)]), 170);
    }

    #[test]
    fn time_that_somebody_waited_for_counts_once() {
        let mut account = CpuAccount::default();
        let mut note = |tree: &[Process]| account.note(tree).as_millis();
        assert_eq!(note(&[process(1, 10, 0), process(2, 100, 30)]), 140);
        // It burnt a little more after we looked.
        assert_eq!(note(&[process(1, 10, 135)]), 145);
        assert_eq!(note(&[process(1, 10, 135), process(2, 5, 0)]), 150);
    }

    #[test]
    fn a_pid_that_is_used_again_is_somebody_else() {
        let mut account = CpuAccount::default();
        account.note(&[process(1, 0, 0), process(2, 100, 0)]);
        let reborn = Process {
            born: 99,
            ..process(2, 30, 0)
        };
        assert_eq!(account.note(&[process(1, 0, 0), reborn]).as_millis(), 130);
    }
}
