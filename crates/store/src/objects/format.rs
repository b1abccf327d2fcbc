//! The form of one object's file: `form: u8 (0 plain, 1 deflate) · length: u64 · stored length: u64 · contents`, numbers little-endian.
//!
//! Both lengths are there so that a torn file shows by its size alone, and so that what unpacks is bounded before it is unpacked.

use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::DeflateEncoder;

pub(super) const HEAD: usize = 1 + 8 + 8;

/// Whether contents compress is judged by this much of them.
pub(super) const TRIAL: usize = 64 << 10;

/// Below this, the file takes one block of the disk either way.
const TOO_SMALL_TO_PACK: usize = 128;

/// Deflate never makes more than this of one byte. A head that claims more is not ours.
const MOST_PER_BYTE: u64 = 1032;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Plain,
    Deflate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) form: Form,
    /// Of the contents as they were given.
    pub(super) bytes: u64,
    /// Of what follows the head.
    pub(super) stored: u64,
}

impl Head {
    pub(super) fn to_bytes(self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[0] = match self.form {
            Form::Plain => 0,
            Form::Deflate => 1,
        };
        head[1..9].copy_from_slice(&self.bytes.to_le_bytes());
        head[9..].copy_from_slice(&self.stored.to_le_bytes());
        head
    }

    /// Reads a head and holds it against the size of the file that it stands in.
    pub(super) fn read(head: &[u8; HEAD], file_bytes: u64) -> Result<Self, &'static str> {
        let (form, rest) = head
            .split_first_chunk::<1>()
            .ok_or("it has no whole head")?;
        let (bytes, rest) = rest
            .split_first_chunk::<8>()
            .ok_or("it has no whole head")?;
        let (stored, _) = rest
            .split_first_chunk::<8>()
            .ok_or("it has no whole head")?;
        let form = match form[0] {
            0 => Form::Plain,
            1 => Form::Deflate,
            _ => return Err("its form is unknown"),
        };
        let head = Self {
            form,
            bytes: u64::from_le_bytes(*bytes),
            stored: u64::from_le_bytes(*stored),
        };
        if head.file_bytes() != Some(file_bytes) {
            return Err("its size is not the one it was written with");
        }
        let fits = match form {
            Form::Plain => head.bytes == head.stored,
            Form::Deflate => head.bytes <= head.stored.saturating_mul(MOST_PER_BYTE),
        };
        if fits {
            Ok(head)
        } else {
            Err("its length is not possible")
        }
    }

    pub(super) fn file_bytes(self) -> Option<u64> {
        let head = u64::try_from(HEAD).ok()?;
        self.stored.checked_add(head)
    }
}

/// Contents that are all in memory, as they will be stored. `None` means as they are.
pub(super) fn pack(contents: &[u8]) -> io::Result<Option<Vec<u8>>> {
    if contents.len() < TOO_SMALL_TO_PACK || !shrinks(contents)? {
        return Ok(None);
    }
    let packed = deflate(contents)?;
    Ok((packed.len() < contents.len()).then_some(packed))
}

/// Whether the beginning gets smaller by a tenth. Pictures, archives and random bytes do not, and are not worth the time.
pub(super) fn shrinks(beginning: &[u8]) -> io::Result<bool> {
    let trial = beginning.get(..TRIAL).unwrap_or(beginning);
    let packed = deflate(trial)?.len();
    Ok(packed.saturating_mul(10) < trial.len().saturating_mul(9))
}

/// Fast rather than tight: this happens between a run's end and its answer.
pub(super) const fn level() -> Compression {
    Compression::new(2)
}

fn deflate(contents: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(contents.len() / 2), level());
    encoder.write_all(contents)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_head_that_is_read_was_possible(head: [u8; HEAD], file in any::<u64>()) {
            if let Ok(head) = Head::read(&head, file) {
                prop_assert_eq!(head.file_bytes(), Some(file));
                prop_assert!(head.bytes <= head.stored.saturating_mul(MOST_PER_BYTE));
            }
        }
    }

    #[test]
    fn a_head_is_read_back_and_a_wrong_size_is_found() {
        let head = Head {
            form: Form::Deflate,
            bytes: 1000,
            stored: 10,
        };
        let bytes = head.to_bytes();
        assert_eq!(Head::read(&bytes, 27), Ok(head));
        assert!(Head::read(&bytes, 26).is_err());
        let bomb = Head {
            bytes: u64::MAX,
            ..head
        };
        assert_eq!(
            Head::read(&bomb.to_bytes(), 27),
            Err("its length is not possible")
        );
    }

    #[test]
    fn only_what_shrinks_is_packed() {
        assert!(pack(&[b'a'; 4096]).unwrap().is_some());
        assert!(pack(b"short").unwrap().is_none());
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_be_bytes()[0]
        })
        .take(100_000)
        .collect();
        assert!(pack(&noise).unwrap().is_none());
    }
}
