//! Which code carries out which backend: the one place that knows both this crate and the engine's own.

use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{BackendName, Grant};
use cofferdam_engine::error::EngineError;
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{self, Streams};

use crate::settings::Settings;

/// Runs a granted request in the backend that it names.
pub fn carry_out(
    grant: Grant,
    streams: Streams<'_>,
    host: &Host,
    settings: &Settings,
) -> Result<RunRecord, EngineError> {
    match grant.request().backend {
        BackendName::Docker => crate::run(grant, streams, host, settings),
        BackendName::Native | BackendName::Host => pipeline::run(grant, streams, host),
    }
}
