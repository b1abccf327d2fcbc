//! What can be asked of the history, and what a list answers.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::run_row::{Facet, HasArtifacts};
use crate::id::RunId;
use crate::model::{RunKind, Status};

/// Which runs to list. All that is set must hold.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Query {
    /// Began then or later.
    pub since: Option<Timestamp>,
    /// Began before then.
    pub until: Option<Timestamp>,
    /// Any of these, by status or by cause.
    pub statuses: Vec<StatusFilter>,
    pub exit_code: Option<i32>,
    /// A glob over the whole command line: `*`, `?`, `[…]`. Without any of these, the command line begins with it. Of a command line, the first 4096 bytes are searched.
    pub command: Option<String>,
    /// Each must be there, with this value or with any.
    pub tags: Vec<(String, Option<String>)>,
    pub kind: Option<RunKind>,
    pub backend: Option<String>,
    pub parent: Option<RunId>,
    /// Sent to a daemon by the token with this id.
    pub sender: Option<String>,
    pub longer_than: Option<Duration>,
    pub shorter_than: Option<Duration>,
    pub has_artifacts: Option<bool>,
    /// Only runs older than this one: the next page.
    pub before: Option<RunId>,
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatusFilter {
    Status(Status),
    /// The name of a limit, such as `memory` or `wall_time`.
    Cause(String),
}

/// Newest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Page {
    pub runs: Vec<RunSummary>,
    /// Ask for the runs before this one to go on; `None` at the end.
    pub next: Option<RunId>,
}

/// One line of a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    pub run_id: RunId,
    /// The shortest beginning of the id that no other run has, at least [`crate::id::SHORT`] characters.
    pub short_id: String,
    pub status: Status,
    pub cause: Option<String>,
    pub exit_code: Option<i32>,
    pub signal: Option<String>,
    pub started_at: Timestamp,
    pub duration_ms: Option<f64>,
    pub kind: RunKind,
    pub backend: String,
    /// The program and its arguments with blanks between them; after 4096 bytes it ends with `…`.
    pub command: String,
    pub tags: BTreeMap<String, String>,
    pub parent: Option<RunId>,
    pub artifacts: u64,
    pub output_bytes: u64,
}

impl Query {
    /// Whether anything is asked that facets decide.
    pub(crate) fn asks_for_facets(&self) -> bool {
        !self.statuses.is_empty()
            || self.exit_code.is_some()
            || self.kind.is_some()
            || self.backend.is_some()
            || self.has_artifacts.is_some()
    }

    pub(crate) fn wants_facet(&self, facet: &Facet) -> bool {
        let status = |wanted: &StatusFilter| match wanted {
            StatusFilter::Status(status) => *status == facet.status,
            StatusFilter::Cause(cause) => Some(cause) == facet.cause.as_ref(),
        };
        let artifacts = facet.artifacts == HasArtifacts::Yes;
        (self.statuses.is_empty() || self.statuses.iter().any(status))
            && self
                .exit_code
                .is_none_or(|code| Some(code) == facet.exit_code)
            && self.kind.is_none_or(|kind| kind == facet.kind)
            && self
                .backend
                .as_ref()
                .is_none_or(|backend| *backend == facet.backend)
            && self.has_artifacts.is_none_or(|wanted| wanted == artifacts)
    }
}
