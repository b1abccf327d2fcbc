//! Holds the memory of one program: all memories and tables together, asked for at every growth. A refusal is remembered, so that a failure which follows has its reason.

use cofferdam_contract::units::{Bytes, Cap};
use wasmtime::ResourceLimiter;

/// The account of one run.
#[derive(Debug)]
pub(crate) struct MemoryAccount {
    limit: Option<u64>,
    used: u64,
    /// Before the growth that was allowed last.
    before: u64,
    peak: u64,
    refused: Refused,
}

/// Whether the program was ever told that there is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Yes,
    No,
}

/// What an element of a table takes.
const ELEMENT: u64 = 16;
/// Each has a cost of its own, whatever it holds.
const INSTANCES: usize = 100;
const TABLES: usize = 100;
const MEMORIES: usize = 100;

impl MemoryAccount {
    pub(crate) fn new(limit: Cap<Bytes>) -> Self {
        Self {
            limit: limit.at_most().map(Bytes::get),
            used: 0,
            before: 0,
            peak: 0,
            refused: Refused::No,
        }
    }

    pub(crate) fn peak(&self) -> Bytes {
        Bytes::new(self.peak)
    }

    pub(crate) fn used(&self) -> Bytes {
        Bytes::new(self.used)
    }

    pub(crate) fn refused(&self) -> Refused {
        self.refused
    }

    fn grow(&mut self, current: usize, desired: usize, maximum: Option<usize>, size: u64) -> bool {
        let bytes = |count: usize| (count as u64).saturating_mul(size);
        let after = self
            .used
            .saturating_sub(bytes(current))
            .saturating_add(bytes(desired));
        // More than it declares itself is the program's own affair and not ours.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return false;
        }
        if self.limit.is_some_and(|limit| after > limit) {
            self.refused = Refused::Yes;
            return false;
        }
        self.before = self.used;
        self.used = after;
        self.peak = self.peak.max(after);
        true
    }
}

impl ResourceLimiter for MemoryAccount {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.grow(current, desired, maximum, 1))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.grow(current, desired, maximum, ELEMENT))
    }

    /// Allowed, and yet the machine had no more: it was not used after all.
    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.used = self.before;
        Ok(())
    }

    fn instances(&self) -> usize {
        INSTANCES
    }

    fn tables(&self) -> usize {
        TABLES
    }

    fn memories(&self) -> usize {
        MEMORIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_tables_share_one_limit() {
        let mut account = MemoryAccount::new(Cap::AtMost(Bytes::new(1000)));
        assert!(account.memory_growing(0, 600, None).unwrap());
        assert!(account.memory_growing(0, 200, None).unwrap());
        assert!(!account.table_growing(0, 13, None).unwrap());
        assert_eq!(account.refused(), Refused::Yes);
        assert!(account.table_growing(0, 12, None).unwrap());
        assert_eq!(account.peak(), Bytes::new(992));
    }

    #[test]
    fn a_bound_of_the_programs_own_is_no_refusal_of_ours() {
        let mut account = MemoryAccount::new(Cap::AtMost(Bytes::new(1000)));
        assert!(!account.memory_growing(0, 20, Some(10)).unwrap());
        assert_eq!(account.refused(), Refused::No);
    }

    #[test]
    fn no_growth_overflows_the_account() {
        let mut account = MemoryAccount::new(Cap::AtMost(Bytes::new(1000)));
        assert!(!account.table_growing(0, usize::MAX, None).unwrap());
        let mut free = MemoryAccount::new(Cap::Unlimited);
        assert!(free.memory_growing(0, usize::MAX, None).unwrap());
        assert!(free.table_growing(0, usize::MAX, None).unwrap());
    }
}
