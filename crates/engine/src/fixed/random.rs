//! Bytes that look random and follow from a seed: for each thread that asks by a call a sequence of its own, known by its number inside, so that it does not matter who asks first; and one endless
//! sequence for all who read `/dev/urandom`.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// A sequence of 64-bit numbers: SplitMix64.
#[derive(Debug, Clone)]
struct Sequence(u64);

impl Sequence {
    fn new(seed: u64, which: u64) -> Self {
        // Two numbers next to each other must not begin at the same place of one sequence.
        let mut other = Self(which);
        Self(seed ^ other.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let numbers = std::iter::repeat_with(|| self.next().to_le_bytes());
        numbers.flatten().take(count).collect()
    }
}

/// What a sequence is for: numbers inside are far below these.
const OF_DEVICE: u64 = 1 << 40;
const OF_BEGINNINGS: u64 = 1 << 41;
/// Threads whose place in their sequence is remembered.
const MOST_THREADS: usize = 65_536;

#[derive(Debug)]
pub(super) struct Random {
    seed: u64,
    threads: HashMap<u32, Sequence>,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            threads: HashMap::new(),
        }
    }

    /// The next bytes for a thread.
    pub(super) fn bytes(&mut self, inside: u32, count: usize) -> Vec<u8> {
        if self.threads.len() >= MOST_THREADS && !self.threads.contains_key(&inside) {
            self.threads.clear();
        }
        let seed = self.seed;
        let sequence = self.threads.entry(inside);
        sequence
            .or_insert_with(|| Sequence::new(seed, u64::from(inside)))
            .bytes(count)
    }

    /// What a program finds when it begins.
    pub(super) fn beginning(&self, inside: u32) -> Vec<u8> {
        Sequence::new(self.seed, OF_BEGINNINGS + u64::from(inside)).bytes(16)
    }
}

/// The pipe that stands in for `/dev/urandom`, kept full.
#[derive(Debug)]
pub(super) struct Device {
    pipe: OwnedFd,
    sequence: Sequence,
    /// Made and not yet taken.
    rest: Vec<u8>,
}

/// Whole pages, so that what a reader gets at once does not depend on how the pipe was filled.
const PIECE: usize = 4096;
/// Pieces before others have their turn.
const AT_ONCE: usize = 32;

impl Device {
    /// Below the scratch directory, where nobody but us has made anything when the program begins.
    pub(super) fn open(scratch: BorrowedFd<'_>, name: &str, seed: u64) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let pipe = rustix::fs::openat(scratch, name, flags, Mode::empty())?;
        // The program would wait for ever to write into a pipe that is full.
        rustix::fs::fchmod(&pipe, Mode::from_raw_mode(0o444))?;
        Ok(Self {
            pipe,
            sequence: Sequence::new(seed, OF_DEVICE),
            rest: Vec::new(),
        })
    }

    pub(super) fn pipe(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    pub(super) fn fill(&mut self) {
        for _ in 0..AT_ONCE {
            if self.rest.is_empty() {
                self.rest = self.sequence.bytes(PIECE);
            }
            match rustix::io::write(&self.pipe, &self.rest) {
                Ok(written) => drop(self.rest.drain(..written)),
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_a_sequence_of_its_own_that_follows_from_the_seed() {
        let bytes = |seed, order: &[u32]| {
            let mut random = Random::new(seed);
            let mut found: Vec<(u32, Vec<u8>)> = order
                .iter()
                .map(|inside| (*inside, random.bytes(*inside, 12)))
                .collect();
            found.sort();
            found
        };
        assert_eq!(bytes(7, &[2, 3, 2]), bytes(7, &[3, 2, 2]));
        assert_ne!(bytes(7, &[2, 3]), bytes(8, &[2, 3]));
        let two = bytes(7, &[2, 3, 2]);
        assert!(two[0].1 != two[1].1 && two[1].1 != two[2].1);
        let random = Random::new(7);
        assert_ne!(random.beginning(2), random.beginning(3));
    }
}
