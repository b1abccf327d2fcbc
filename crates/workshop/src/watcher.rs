//! Who looks on while steps run: what is kept of each, what the tools say, how many tests have ended so far.

use std::fmt::Debug;

use cofferdam_contract::ending::Stream;
use cofferdam_contract::record::RunRecord;
use cofferdam_engine::pipeline::Recording;
use cofferdam_project::report::Counts;

use crate::error::WorkError;

/// A step that is about to run.
#[derive(Debug, Clone, Copy)]
pub struct Begun<'a> {
    /// What makes it a project, relative to the directory that was searched.
    pub manifest: &'a str,
    pub argv: &'a [String],
    pub attempt: u32,
    /// Whether its tests are told while they run.
    pub counts: bool,
}

/// Called from the threads that listen to the tools: what it does must be quick, because the tools wait for it.
pub trait Watcher: Debug + Send + Sync {
    /// What is kept of the next step; `None` for nothing.
    fn recording(&self) -> Result<Option<Recording>, WorkError>;

    fn began(&self, step: &Begun<'_>);

    /// What a tool says to people, as it says it.
    fn said(&self, stream: Stream, bytes: &[u8]);

    /// The tests of this step that have ended so far.
    fn counted(&self, counts: Counts);

    /// The step is over, and kept as far as it is.
    fn ended(&self, record: &RunRecord);
}
