//! Languages as data: what to place, compile and run for a piece of source code, and how to read a handler's answer. Starts no process
//! and writes no file; whoever holds a sandbox does both.

mod answer;
mod builtin;
mod catalogue;
mod fields;
mod language;
mod manifest;
mod needs;
mod paths;
mod plan;
mod template;
mod version;

pub use answer::{Answer, BadAnswer, MAX_RESULT_BYTES, Raised, UNSERIALIZABLE, answer};
pub use catalogue::{BadManifests, Catalogue, UnknownLanguage};
pub use language::{HandlerShim, Language, Origin, Toolchain, Waiting, WaitingWay};
pub use needs::Needs;
pub use paths::{MAX_FILES, MAX_FILES_BYTES, RESERVED_DIR};
pub use plan::{InlineFile, Job, Mode, PlacedFile, ResultChannel, Source, Step, plan};
pub use version::{Unusable, Version};
