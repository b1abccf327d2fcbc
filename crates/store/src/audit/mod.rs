//! What happened to the history, as a chain: every entry carries the hash of the one before it, so that none can be changed, taken out, put in or moved without breaking it.
//!
//! # An entry
//! `hash` is SHA-256 over these fields, each preceded by its length as a `u64` in little-endian order: the text `cofferdam.audit/1`; `seq` and `at` (microseconds since 1970) as
//! eight bytes each, little-endian; `event`, `subject` and `detail` as UTF-8; the 32 bytes of `prev`. `prev` is the hash of the entry before; before the first it is 32 zeros.
//!
//! `run.ended` and `run.interrupted` carry the digest of everything that is stored of the run, what is searched as well as what is shown. So a run that is changed, exchanged or
//! taken away is found as well.
//!
//! # The head
//! `audit-head` holds the number and the hash of the last entry, outside of the database, written after each commit by renaming. After a crash it may be behind the chain, never ahead
//! of it: entries are on the disk before it is written. It is not moved on while it contradicts the chain, so that what was found stays to be found. [`reset_head`] accepts the chain
//! as it is, and says so in an entry.
//!
//! # What this cannot find
//! Somebody who may write the database and the head can compute the whole chain anew, and nothing tells that from the true one. They can also cut the chain and the head back
//! to an earlier state of both, or cut off entries that the head has not reached yet. Who must know better keeps a copy of the head elsewhere, and compares.

pub(crate) mod chain;
pub(crate) mod head;
mod verify;

pub use chain::{Entry, append, list};
pub use head::{Head, read_head, reset_head};
pub use verify::{Finding, Report, verify, verify_with};
