//! What a step said and reported, found once: for its record in the history as soon as its streams are closed, and for whoever asked.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_project::Beneath;
use cofferdam_project::action::ReportAt;
use cofferdam_project::report::{Budget, TestReport};
use serde_json::Value;

use crate::gather::{Before, Left, gather};
use crate::kept;
use crate::tee::Tee;

/// Before and after it was listened to.
#[derive(Debug)]
pub(crate) enum Ears {
    Open(Open),
    Heard(Arc<Found>),
    Lost,
}

/// A step that goes on.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) stdout: Tee,
    pub(crate) stderr: Tee,
    pub(crate) project: Beneath,
    /// Where its reports lie.
    pub(crate) own: PathBuf,
    pub(crate) before: Before,
    pub(crate) reports: Vec<ReportAt>,
    pub(crate) budget: Arc<Mutex<Budget>>,
}

/// A step that is over.
#[derive(Debug, Default, Clone)]
pub(crate) struct Found {
    /// `None` where no tests were expected.
    pub(crate) tests: Option<TestReport>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Ears {
    /// What was found; waits for the end of the streams the first time.
    pub(crate) fn found(ears: &Mutex<Self>) -> Option<Arc<Found>> {
        let mut ears = ears.lock().unwrap_or_else(PoisonError::into_inner);
        *ears = match std::mem::replace(&mut *ears, Self::Lost) {
            Self::Open(open) => Self::Heard(Arc::new(open.finish())),
            heard => heard,
        };
        match &*ears {
            Self::Heard(found) => Some(Arc::clone(found)),
            Self::Open(_) | Self::Lost => None,
        }
    }
}

impl Ears {
    /// The same once nobody else asks any more, without a second copy of it all.
    pub(crate) fn take(ears: &Mutex<Self>) -> Found {
        let _ = Self::found(ears);
        let mut ears = ears.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *ears, Self::Lost) {
            Self::Heard(found) => Arc::unwrap_or_clone(found),
            Self::Open(_) | Self::Lost => Found::default(),
        }
    }
}

impl Open {
    fn finish(self) -> Found {
        let (stdout, stderr) = (self.stdout.said(), self.stderr.said());
        let problem = |error: std::io::Error| {
            TestReport::unreadable(format!("the directory of the reports: {error}"))
        };
        let tests = (!self.reports.is_empty()).then(|| match Beneath::open(&self.own) {
            Ok(own) => {
                let left = Left {
                    own: &own,
                    project: &self.project,
                    stdout: &stdout,
                    stderr: &stderr,
                };
                {
                    let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
                    gather(&self.reports, &self.before, &left, &mut budget)
                }
            }
            Err(error) => problem(error),
        });
        Found {
            tests,
            stdout,
            stderr,
        }
    }
}

impl Found {
    /// For the history: enough to compare two runs by, without stacks.
    pub(crate) fn kept(&self) -> Option<Value> {
        let tests = self.tests.as_ref()?;
        Some(kept::cases(tests.counts(), tests.tests.iter()))
    }
}
