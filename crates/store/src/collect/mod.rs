//! What a run left in its workspace: files that are new or changed, put into the store.
//!
//! The program wrote every name and every byte in there. Nothing is followed, nothing is trusted, and everything is bounded.

mod beneath;
mod choose;
mod gather;
mod limits;
mod media_type;
pub mod names;
mod reason;
mod snapshot;
mod taste;
pub mod view;
mod walk;

pub use choose::is_sensitive;
pub use gather::{Collected, collect};
pub use limits::{ArtifactLimits, Rules, Scan, Scanner};
pub use media_type::media_type;
pub use reason::Reason;
pub use snapshot::Snapshot;
