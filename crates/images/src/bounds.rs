//! How much of an image is taken. A stranger chose its size: what is not bounded here is not bounded anywhere.

use std::cell::Cell;
use std::error::Error;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use crate::error::ImageError;

/// What one image may cost, or all that are in one file.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Unpacked, all layers together, also what later layers replace; a name counts for what it takes itself.
    pub bytes: u64,
    /// Names in all layers together, with the directories that they lie in.
    pub entries: u64,
    pub until: Instant,
}

/// Layers of one image: more than any builder makes.
pub(crate) const MOST_LAYERS: usize = 256;
/// A manifest, an index or a configuration.
pub(crate) const LONGEST_DOCUMENT: u64 = 4 << 20;
/// One name with everything in front of it.
pub(crate) const LONGEST_NAME: usize = 4096;
/// All names of an image together, which are kept in memory while a layer is unpacked.
const LONGEST_NAMES: u64 = 256 << 20;
/// What a name takes on the disk, whatever it is the name of.
const NAME_TAKES: u64 = 4 << 10;

impl Bounds {
    pub const BYTES: u64 = 16 << 30;
    pub const ENTRIES: u64 = 1_000_000;

    /// Those of an image that is got within this time.
    pub fn within(time: Duration) -> Self {
        let now = Instant::now();
        Self {
            bytes: Self::BYTES,
            entries: Self::ENTRIES,
            until: now.checked_add(time).unwrap_or(now),
        }
    }

    pub(crate) fn left(&self) -> Left {
        Left {
            bytes: Cell::new(self.bytes),
            entries: Cell::new(self.entries),
            names: Cell::new(LONGEST_NAMES),
            of: *self,
        }
    }
}

/// What of the bounds is still left while an image is unpacked.
#[derive(Debug)]
pub(crate) struct Left {
    bytes: Cell<u64>,
    entries: Cell<u64>,
    names: Cell<u64>,
    of: Bounds,
}

impl Left {
    pub(crate) fn until(&self) -> Instant {
        self.of.until
    }

    pub(crate) fn take_entry(&self) -> Result<(), ImageError> {
        if Instant::now() >= self.of.until {
            return Err(late());
        }
        let rest = self.entries.get().checked_sub(1);
        let rest = rest.ok_or_else(|| ImageError::TooLarge {
            bound: format!("has more than {} names", self.of.entries),
            fix: "use a smaller one",
        })?;
        self.entries.set(rest);
        self.take_bytes(NAME_TAKES)
            .map_err(|error| explain("the image", &error))
    }

    /// For a name that is kept.
    pub(crate) fn take_name(&self, length: usize) -> Result<(), ImageError> {
        let rest = self.names.get().checked_sub(length as u64);
        let rest = rest.ok_or_else(|| ImageError::TooLarge {
            bound: format!("has names of more than {} MiB", LONGEST_NAMES >> 20),
            fix: "use a smaller one",
        })?;
        self.names.set(rest);
        Ok(())
    }

    fn take_bytes(&self, count: u64) -> io::Result<()> {
        if Instant::now() >= self.of.until {
            return Err(io::Error::other(Excess::Late));
        }
        let rest = self.bytes.get().checked_sub(count);
        let rest = rest.ok_or_else(|| io::Error::other(Excess::Bytes(self.of.bytes)))?;
        self.bytes.set(rest);
        Ok(())
    }
}

fn late() -> ImageError {
    ImageError::TooLarge {
        bound: "takes longer than it may".to_owned(),
        fix: "allow more time with --timeout, or use a smaller one",
    }
}

/// Why a reader stopped before its end.
#[derive(Debug, thiserror::Error)]
enum Excess {
    #[error("too large")]
    Bytes(u64),
    #[error("too late")]
    Late,
}

/// What an error of reading means: that a bound was reached, or that the data are bad.
pub(crate) fn explain(what: &str, error: &io::Error) -> ImageError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    let mut excess = None;
    while let Some(found) = cause {
        let inner = found
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        let inner = inner.and_then(|inner| inner.downcast_ref());
        excess = excess.or(inner);
        cause = found.source();
    }
    match excess {
        Some(Excess::Bytes(most)) => ImageError::TooLarge {
            bound: format!("is larger than {} MiB unpacked", most >> 20),
            fix: "allow more with --max-size, or use a smaller one",
        },
        Some(Excess::Late) => late(),
        None => ImageError::refused(what, error.to_string()),
    }
}

/// Reads no more than what is left.
pub(crate) struct Bounded<'a, R> {
    inner: R,
    left: &'a Left,
}

impl<'a, R: Read> Bounded<'a, R> {
    pub(crate) fn new(inner: R, left: &'a Left) -> Self {
        Self { inner, left }
    }

    pub(crate) fn into_inner(self) -> R {
        self.inner
    }
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left.take_bytes(read as u64)?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_take_a_bounded_part_of_the_memory() {
        let left = Bounds::within(Duration::from_secs(60)).left();
        let longest = LONGEST_NAMES / LONGEST_NAME as u64;
        for _ in 0..longest {
            left.take_name(LONGEST_NAME).unwrap();
        }
        let error = left.take_name(1).unwrap_err().to_string();
        assert!(error.contains("names of more than 256 MiB"), "{error}");
    }
}
