//! What the examination found, in the form that is printed as JSON. The version in `schema` changes when a field changes its meaning.

use cofferdam_contract::enforcement::{EnforcedBy, LimitName};
use serde::Serialize;

use super::not_given::NotGiven;

/// Everything that was found out about this host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub schema: &'static str,
    /// Whether `cofferdam run` works with its defaults.
    pub works: bool,
    pub host: About,
    pub run: Finding,
    pub layers: Vec<Finding>,
    pub limits: Vec<LimitFinding>,
    /// Besides the native one: those that need something installed.
    pub backends: Vec<Finding>,
    /// What backends do not promise, whatever the host.
    pub not_given: Vec<NotGiven>,
    pub took_ms: f64,
}

/// Who and where we are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct About {
    pub kernel: String,
    pub machine: String,
    pub uid: u32,
    /// `root`: may give sandboxes any identity; `user`: only its own.
    pub privilege: &'static str,
    /// What kind of container this is, where it can be told.
    pub container: Option<&'static str>,
    pub cpus: usize,
}

/// How well a thing is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    Ok,
    /// There, in a form that holds less.
    Weaker,
    Missing,
}

/// One part of the isolation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub name: &'static str,
    pub mark: Mark,
    pub found: String,
    /// Why it is not better; null when it could not be.
    pub why: Option<String>,
    /// What would make it better, as a command where there is one.
    pub fix: Option<String>,
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitFinding {
    pub limit: LimitName,
    /// For a limit that is held in more than one way: `whole` or `fractional`.
    pub case: Option<&'static str>,
    pub mark: Mark,
    /// As a run's record says it; null when a run with this limit is refused.
    pub enforced_by: Option<EnforcedBy>,
    pub exactness: Exactness,
    pub found: String,
    pub why: Option<String>,
    pub fix: Option<String>,
}

/// How near to its value a limit is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exactness {
    /// The kernel refuses whatever goes beyond it.
    Kernel,
    /// Everything is counted, and the supervisor stops the run when the count reaches it.
    Counted,
    /// Looked at again and again: what happens between two looks can go beyond it.
    Sampled,
    /// Nothing holds it.
    Unheld,
}

impl Report {
    pub const SCHEMA: &'static str = "cofferdam.doctor/1";
}

impl Finding {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            mark: Mark::Ok,
            found: found.into(),
            why: None,
            fix: None,
        }
    }

    pub(super) fn lacking(
        name: &'static str,
        mark: Mark,
        found: impl Into<String>,
        reason: Reason,
    ) -> Self {
        Self {
            name,
            mark,
            found: found.into(),
            why: Some(reason.why),
            fix: reason.fix,
        }
    }
}

/// Why something is not there, and what would change that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) why: String,
    pub(super) fix: Option<String>,
}

impl Reason {
    pub(super) fn new(why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            fix: Some(fix.into()),
        }
    }

    pub(super) fn without_fix(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            fix: None,
        }
    }
}
