//! A project that a client sends: unpacked inside a sandbox, then built or tested step by step as the verbs of the command line do it. `request` is what a client sends, `unpack` lays
//! the project out, `desk` looks on while its steps run, `carry_out` is the way through, `keep` what is kept of it.

mod carry_out;
mod desk;
mod keep;
mod progress;
mod request;
mod unpack;

pub(crate) use carry_out::carry_out;
pub(crate) use progress::Progress;
pub(crate) use request::{Form, ProjectRequest, ProjectTask, Source};

use serde_json::Value;

/// What came of it, for as long as it is remembered.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) outcome: Value,
    /// How long it is as text.
    pub(crate) bytes: usize,
}
