//! The seam to the toolchain: source code in a language becomes files, an optional compile step and a command, and what comes back over the result channel becomes an answer.
//!
//! The toolchain is not linked yet: no language is known, and a request for one is answered with 501. Everything behind [`Planned`] is there.

use std::ffi::OsString;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::fault::{Fault, Refusal};
use crate::live::Finished;
use crate::workspace::PlacedFile;

/// Source code as a client sent it.
#[derive(Debug, Clone)]
#[allow(dead_code, reason = "read by the toolchain, once it is linked")]
pub(crate) struct Source<'a> {
    pub(crate) language: &'a str,
    pub(crate) code: &'a str,
    /// What the handler is called with; a plain script where there is none.
    pub(crate) event: Option<&'a Value>,
}

/// How it is run.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) files: Vec<PlacedFile>,
    pub(crate) compile: Option<Vec<OsString>>,
    pub(crate) run: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) stdin: Vec<u8>,
}

/// One language, as a list shows it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct LanguageView {
    pub(crate) name: String,
    /// Whether this machine has what it needs.
    pub(crate) available: bool,
}

/// What a handler answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// There was no handler, or it never came to an answer.
    None,
    #[allow(dead_code, reason = "made by the toolchain, once it is linked")]
    Value(Value),
    #[allow(dead_code, reason = "made by the toolchain, once it is linked")]
    Raised { message: String },
}

pub(crate) fn languages() -> Vec<LanguageView> {
    Vec::new()
}

pub(crate) fn plan(source: &Source<'_>) -> Result<Planned, Fault> {
    let shown: String = source.language.chars().take(64).collect();
    Err(Refusal::LanguageUnavailable.because(format!("language `{shown}`")))
}

pub(crate) fn answer(_finished: &Finished) -> Answer {
    Answer::None
}
