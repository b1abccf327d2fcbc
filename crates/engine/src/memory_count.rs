//! Counts the memory of a tree where no memory controller does: pages, page tables, and the shared objects that need not be in anybody's page tables.
//!
//! What a shared anonymous mapping holds is known exactly to a supervisor who is root (`/proc/PID/map_files`). To anybody else the kernel does not tell: a program
//! could map eight megabytes, fill them, and unmap all but one page between two looks, and the object would live on as large as it was. So the filter has such
//! mappings reported while they are made, with their size, which is also the largest that the object can ever be. Then `n` objects that are alive hold at most
//! as much as the `n` largest that were ever asked for, and at most all shared memory of the machine. That is too much for mappings that are hardly used, which
//! is why it is capped, and never too little.

use std::collections::HashMap;

use cofferdam_sys::mappings::{self, ObjectId};
use cofferdam_sys::proc::{self, Process};

#[derive(Debug, Default)]
pub(crate) struct MemoryCount {
    requests: Requests,
    /// Without reports: how far each object has ever been seen mapped.
    mapped: HashMap<ObjectId, u64>,
}

/// The shared memory that was asked for.
#[derive(Debug, Default)]
enum Requests {
    /// Nobody reports them.
    #[default]
    Unreported,
    /// The largest, in descending order.
    Largest(Vec<u64>),
}

/// More requests than this are not told apart: each further one is as large as the smallest of these, at most.
const MAX_REQUESTS: usize = 1024;

impl MemoryCount {
    /// From now on every request for shared memory is reported.
    pub(crate) fn expect_reports(&mut self) {
        self.requests = Requests::Largest(Vec::new());
    }

    pub(crate) fn report(&mut self, bytes: u64) {
        let Requests::Largest(largest) = &mut self.requests else {
            return;
        };
        let at = largest.partition_point(|&other| other >= bytes);
        if at < MAX_REQUESTS {
            largest.truncate(MAX_REQUESTS - 1);
            largest.insert(at, bytes);
        }
    }

    /// Bytes in use; `scratch` of them are files. Quick first, with pages counted once for each process that has them; exact only above `limit`. `None` when
    /// there is no process to be seen.
    pub(crate) fn bytes(&mut self, tree: &[Process], scratch: u64, limit: u64) -> Option<u64> {
        let pids: Vec<u32> = tree.iter().map(|process| process.pid).collect();
        let resident: u64 = pids.iter().map(|pid| proc::resident_bytes(*pid)).sum();
        if resident == 0 {
            return None;
        }
        let objects = scratch + self.shared_bytes(&pids, scratch);
        if resident + objects <= limit {
            return Some(resident + objects);
        }
        let exact: u64 = tree
            .iter()
            .filter(|process| !borrows_memory(process, tree))
            .map(|process| proc::proportional_bytes(process.pid))
            .sum();
        Some(exact + objects)
    }

    fn shared_bytes(&mut self, pids: &[u32], scratch: u64) -> u64 {
        let open = match &self.requests {
            // Other ways to shared memory are refused then.
            Requests::Largest(largest) if largest.is_empty() => return 0,
            Requests::Largest(_) => 0,
            Requests::Unreported => mappings::nameless_memory(pids),
        };
        let shared = mappings::shared_memory(pids);
        if shared.unknown.is_empty() {
            return open.saturating_add(shared.known_bytes);
        }
        let unknown = match &self.requests {
            Requests::Largest(largest) => largest_sum(largest, shared.unknown.len()),
            Requests::Unreported => self.seen_mapped(&shared.unknown),
        };
        let machine = proc::machine_shared_bytes().saturating_sub(scratch);
        open.saturating_add(shared.known_bytes)
            .saturating_add(unknown.min(machine))
    }

    fn seen_mapped(&mut self, alive: &HashMap<ObjectId, u64>) -> u64 {
        self.mapped.retain(|object, _| alive.contains_key(object));
        for (object, end) in alive {
            let seen = self.mapped.entry(*object).or_default();
            *seen = (*seen).max(*end);
        }
        // The program chooses where a mapping ends.
        let ends = self.mapped.values();
        ends.fold(0, |sum, &end| sum.saturating_add(end))
    }
}

/// A child of vfork runs in its parent's memory until it executes something.
fn borrows_memory(process: &Process, tree: &[Process]) -> bool {
    tree.iter()
        .any(|other| other.pid == process.parent && proc::share_memory(other.pid, process.pid))
}

fn largest_sum(largest: &[u64], count: usize) -> u64 {
    let told: u64 = largest
        .iter()
        .take(count)
        .fold(0, |sum, &bytes| sum.saturating_add(bytes));
    let rest = u64::try_from(count.saturating_sub(largest.len())).unwrap_or(u64::MAX);
    let smallest = largest.last().copied().unwrap_or(0);
    told.saturating_add(smallest.saturating_mul(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(sizes: &[u64]) -> Vec<u64> {
        let mut count = MemoryCount::default();
        count.expect_reports();
        for size in sizes {
            count.report(*size);
        }
        match count.requests {
            Requests::Largest(largest) => largest,
            Requests::Unreported => Vec::new(),
        }
    }

    #[test]
    fn objects_alive_hold_no_more_than_the_largest_that_were_asked_for() {
        let largest = requests(&[5, 100, 1, 70, 100]);
        assert_eq!(largest, [100, 100, 70, 5, 1]);
        assert_eq!(largest_sum(&largest, 0), 0);
        assert_eq!(largest_sum(&largest, 3), 270);
        // A mapping that was inherited twice is one object; more objects than requests cannot be, and are not free all the same.
        assert_eq!(largest_sum(&largest, 7), 278);
    }

    #[test]
    fn many_requests_are_never_counted_as_less() {
        let sizes: Vec<u64> = (1..=5000).collect();
        let largest = requests(&sizes);
        assert_eq!((largest.len(), largest[0]), (MAX_REQUESTS, 5000));
        let all: u64 = sizes.iter().sum();
        assert!(largest_sum(&largest, 5000) >= all);
    }

    #[test]
    fn what_was_seen_mapped_is_remembered_while_it_lives() {
        let mut count = MemoryCount::default();
        assert_eq!(count.seen_mapped(&HashMap::from([((1, 1), 80)])), 80);
        assert_eq!(
            count.seen_mapped(&HashMap::from([((1, 1), 4), ((1, 2), 10)])),
            90
        );
        assert_eq!(count.seen_mapped(&HashMap::from([((1, 2), 10)])), 10);
    }
}
