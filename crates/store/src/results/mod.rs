//! Answers that are known already: what a pure run came to, by everything that can change it. Written by the engine's own side only, vouched for by a keyed hash, and bounded.
//! `docs/result-cache.md` says what is kept and for whom.

mod cache;
mod contents;
mod key;
mod system;

pub use cache::{DEFAULT_BYTES, Kept, Listed, Results, Stats};
pub use contents::Unkeyable;
pub use key::{KeyParts, ResultKey, WorkspaceIs};
pub use system::System;
