//! Who carries a step out. The workshop knows the engine; a caller that knows more backends brings them along.

use std::fmt::Debug;

use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::Grant;
use cofferdam_engine::error::EngineError;
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{self, Streams};

/// Runs what was granted, to its end.
pub trait Carrier: Debug + Send + Sync {
    fn run(
        &self,
        grant: Grant,
        streams: Streams<'_>,
        host: &Host,
    ) -> Result<RunRecord, EngineError>;
}

/// The engine itself.
#[derive(Debug, Clone, Copy)]
pub struct Engine;

impl Carrier for Engine {
    fn run(
        &self,
        grant: Grant,
        streams: Streams<'_>,
        host: &Host,
    ) -> Result<RunRecord, EngineError> {
        pipeline::run(grant, streams, host)
    }
}
