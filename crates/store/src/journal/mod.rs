//! The journal of one run: `spool/ID.run`, appended to while the run goes on.
//!
//! ```text
//! file    = magic frame*
//! frame   = length: u32 · checksum: u32 · body          numbers little-endian; XXH32 of the body
//! body    = 1 · Opening (JSON)                          first, before the program starts
//!         | 2 · pieces of output (see `log`)            as they come
//!         | 3 · Closing (JSON)                          last
//! ```
//!
//! Its writer holds an `flock` on it from before the first frame until it has ended, however that happens; the kernel lets go of the lock when the process is gone. So a journal that can be
//! locked is one whose writer has finished or died, and whether its last frame is a closing tells which. Whoever reads it holds the lock meanwhile, so that a journal which is just being made
//! cannot be taken for one that was left. A frame that was cut short by a crash does not fit its checksum and is not read.

mod free;
mod read;
#[cfg(test)]
pub(crate) mod tests;
mod write;

pub(crate) use free::{is_scarce, retire};
#[cfg(test)]
pub(crate) use read::writer;
pub(crate) use read::{Found, look};
pub use read::{Read, Writer, follow, follow_some, of_run, remove_unborn, remove_unfinished};
pub use write::{Journal, Room};

use std::path::PathBuf;

use crate::data_dir::DataDir;
use crate::id::RunId;

pub(crate) const EXTENSION: &str = "run";

const MAGIC: &[u8; 8] = b"cofjrnl2";
const FRAME_HEAD: usize = 8;
/// Longer than any frame that is written; a length beyond it is damage.
const LONGEST_FRAME: usize = 64 << 20;

const OPENING: u8 = 1;
const OUTPUT: u8 = 2;
const CLOSING: u8 = 3;

/// Not a CRC: those who compute it fast ask the processor what it can do, and in a virtual machine each question costs what the rest of the journal does.
fn checksum(body: &[u8]) -> u32 {
    xxhash_rust::xxh32::xxh32(body, 0)
}

pub(crate) fn path(dir: &DataDir, run: RunId) -> PathBuf {
    dir.spool().join(format!("{run}.{EXTENSION}"))
}
