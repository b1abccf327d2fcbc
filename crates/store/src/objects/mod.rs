//! Contents by their digest: written once, compressed where that helps, checked whenever they are read.

mod format;
mod read;
mod shelf;
mod stage;
mod total;

pub use read::ObjectReader;
pub use shelf::{Objects, PutOutcome, Stored, StoredObject};
pub use stage::{Staged, Staging};
