//! Whether this daemon can run anything: one small program through the engine, or a question to the fleet, at the start. Until it has passed, `/health` says so.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cofferdam_contract::ending::Ending;
use cofferdam_contract::limits::Limits;
use cofferdam_contract::request::{Grant, Request};
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{self, Streams};

/// What the test has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fitness {
    /// Not tried yet, or why it failed.
    Unfit {
        reason: String,
    },
    Fit,
}

#[derive(Debug, Clone)]
pub(crate) struct SelfTest {
    fitness: Arc<Mutex<Fitness>>,
}

impl SelfTest {
    pub(crate) fn new() -> Self {
        let reason = "the self-test has not ended yet".to_owned();
        Self {
            fitness: Arc::new(Mutex::new(Fitness::Unfit { reason })),
        }
    }

    pub(crate) fn fitness(&self) -> Fitness {
        let fitness = self.fitness.lock().unwrap_or_else(PoisonError::into_inner);
        fitness.clone()
    }

    /// Runs the test once.
    pub(crate) fn run(&self, test: impl FnOnce() -> Result<(), String>) -> Fitness {
        let found = match test() {
            Ok(()) => Fitness::Fit,
            Err(reason) => Fitness::Unfit { reason },
        };
        let mut fitness = self.fitness.lock().unwrap_or_else(PoisonError::into_inner);
        *fitness = found.clone();
        found
    }
}

pub(crate) fn try_once(host: &Host) -> Result<(), String> {
    let mut limits = Limits::DEFAULT;
    limits.wall_time = cofferdam_contract::units::Cap::AtMost(Duration::from_secs(10));
    let request = Request {
        limits,
        ..Request::command(["true"])
    };
    let grant = Grant::new(request).map_err(|problems| problems.to_string())?;
    let streams = Streams::kept(4096);
    let record = pipeline::run(grant, streams, host).map_err(|error| error.to_string())?;
    match record.ending {
        Ending::Exited { code: 0 } => Ok(()),
        other => Err(format!("`true` did not end well: {other:?}")),
    }
}
