//! One small run through the whole pipeline, with a shell script for a program. The real path, so that what holds here holds for everybody.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use cofferdam_contract::ending::{Ending, SetupFailureKind};
use cofferdam_contract::limits::Limits;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{Grant, Request};
use cofferdam_contract::units::Cap;

use crate::error::EngineError;
use crate::host::Host;
use crate::pipeline::{self, Streams};

/// Where trials are made, and how the caller can end them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bench<'a> {
    pub(super) host: &'a Host,
    pub(super) cancel: Option<BorrowedFd<'a>>,
}

/// What a trial came to.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) record: RunRecord,
    pub(super) took: Duration,
}

const KEEP: usize = 64 * 1024;

impl Bench<'_> {
    /// Runs the script as `cofferdam run` would with its defaults.
    pub(super) fn with_defaults(&self, script: &str) -> Result<Tried, EngineError> {
        self.run(request(script, Limits::STREAMING))
    }

    /// Runs the script with limits that `tune` sets, for this long unless that is one of them.
    pub(super) fn with_limits(
        &self,
        script: &str,
        tune: impl FnOnce(&mut Limits),
        patience: Duration,
    ) -> Result<Tried, EngineError> {
        let mut limits = Limits {
            wall_time: Cap::AtMost(patience),
            ..Limits::STREAMING
        };
        tune(&mut limits);
        self.run(request(script, limits))
    }

    pub(super) fn run(&self, request: Request) -> Result<Tried, EngineError> {
        let begun = Instant::now();
        let streams = Streams {
            cancel: self.cancel,
            ..Streams::kept(KEEP)
        };
        let record = pipeline::run(Grant::new(request)?, streams, self.host)?;
        Ok(Tried {
            record,
            took: begun.elapsed(),
        })
    }
}

impl Tried {
    /// Whether the sandbox was built. It was, too, when there is no shell on this host to run in it. No script here ends by a signal, so one that
    /// did was ended together with its sandbox.
    pub(super) fn was_built(&self) -> bool {
        match &self.record.ending {
            Ending::NeverStarted(failure) => failure.kind != SetupFailureKind::Sandbox,
            Ending::Exited { .. } | Ending::Stopped(_) => true,
            Ending::Signaled { .. } => false,
        }
    }

    /// Whether the script itself ran, so that its output says something.
    pub(super) fn has_run(&self) -> bool {
        self.was_built() && !matches!(self.record.ending, Ending::NeverStarted(_))
    }

    pub(super) fn ending_in_words(&self) -> String {
        match &self.record.ending {
            Ending::Exited { code } => format!("the script returned {code}"),
            Ending::Signaled { signal } => format!("signal {signal} ended the script"),
            Ending::Stopped(cause) => cause.reason(),
            Ending::NeverStarted(failure) => {
                // Without the advice to ask us.
                let said = failure.message.split("; `cofferdam doctor`").next();
                said.unwrap_or(&failure.message).to_owned()
            }
        }
    }
}

pub(super) fn request(script: &str, limits: Limits) -> Request {
    Request {
        limits,
        ..Request::command(["/bin/sh", "-c", script])
    }
}
