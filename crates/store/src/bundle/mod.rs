//! Runs in one file, to hand over: written by [`export`], read by [`inspect`] and [`import`]. `docs/bundle.md` describes the format.
//!
//! Nothing in an archive names a place on this machine. What comes in goes by digest or by run id, after everything has been checked.

mod archive;
mod check;
mod contents;
mod export;
mod format;
mod headers;
mod history;
mod import;
mod output;
mod sides;
mod sign;
mod writer;

#[cfg(test)]
mod tests;

pub use check::{InspectOptions, Inspected, Trust, inspect, inspect_bytes};
pub use export::{Artifacts, ExportOptions, Exported, IfPresent, SkippedRun, export};
pub use format::{
    EXTENSION, EntryName, FORMAT, FileFacts, GitProvenance, Limits, Manifest, Missing, Progress,
    Provenance, SignatureRecord, VERSION, Version, without_credentials,
};
pub use history::{HistorySource, HistoryTarget};
pub use import::{Existing, ImportMode, ImportOptions, Imported, import};
pub use sides::{Source, Target};
pub use sign::{PublicKey, SigningKey, generate_key};
