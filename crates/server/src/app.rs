//! What every handler shares.

use std::sync::Arc;
use std::time::Instant;

use axum::http::HeaderMap;
use cofferdam_contract::seal::Sealed;
use cofferdam_observe::Tracer;
use cofferdam_store::StoreError;
use tokio::sync::Semaphore;

use crate::answers::Answers;
use crate::archive::Archive;
use crate::auth::{Caller, Gate};
use crate::body::{self, BodyBounds};
use crate::config::Config;
use crate::fault::Fault;
use crate::idempotency::Keys;
use crate::known::Declared;
use crate::language::Languages;
use crate::live::{Ended, Live};
use crate::metrics::Metrics;
use crate::patience::Door;
use crate::payload;
use crate::reports::{LOOKUPS, Reports};
use crate::runner::Runner;
use crate::self_test::SelfTest;
use crate::submission::{RunRequest, Submission};
use crate::tokens::Scope;

/// The daemon, as its handlers see it.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) started: Instant,
    pub(crate) runner: Arc<Runner>,
    pub(crate) archive: Arc<Archive>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tracer: Arc<Tracer>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) gate: Gate,
    pub(crate) keys: Keys,
    pub(crate) self_test: SelfTest,
    pub(crate) languages: Languages,
    /// In KiB.
    pub(crate) body_room: Arc<Semaphore>,
    pub(crate) answers: Answers,
    pub(crate) door: Door,
}

/// The name of a request, in its answer and in the log.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

/// Cancels a run when whoever waits for it goes away before its end.
#[derive(Debug)]
pub(crate) struct Abandoned {
    runner: Arc<Runner>,
    live: Option<Arc<Live>>,
}

impl App {
    pub(crate) fn body_bounds(&self) -> BodyBounds {
        BodyBounds {
            at_most: self.config.http.body,
            within: self.config.http.body_timeout,
            room: Arc::clone(&self.body_room),
        }
    }

    /// Reads the history on a thread that may block.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Fault> {
        let app = Arc::clone(self);
        match tokio::task::spawn_blocking(move || work(&app)).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(Fault::internal("a fault of the daemon; its log says more")),
        }
    }

    /// Checks requests; where a language has to be probed first, that takes a moment and blocks.
    pub(crate) async fn check(
        self: &Arc<Self>,
        requests: Vec<RunRequest>,
    ) -> Result<Vec<Submission>, Fault> {
        let app = Arc::clone(self);
        let check = move || {
            let mut checked = Vec::new();
            let until = Instant::now() + LOOKUPS;
            let are_many = requests.len() > 1;
            for (index, request) in requests.into_iter().enumerate() {
                let one = app.check_blocking(request, until);
                checked.push(one.map_err(|mut fault| {
                    if are_many {
                        fault.detail = format!("runs[{index}]: {}", fault.detail);
                    }
                    fault
                })?);
            }
            Ok(checked)
        };
        let checked = tokio::task::spawn_blocking(check).await;
        checked.unwrap_or_else(|_| Err(Fault::internal("a fault of the daemon; its log says more")))
    }

    fn check_blocking(&self, request: RunRequest, until: Instant) -> Result<Submission, Fault> {
        if let Some(url) = &request.callback_url {
            self.reports.check_address(url, until)?;
        }
        request.check(self.runner.bounds(), &self.languages, &self.runner.host)
    }

    /// Reads and checks a payload, which may be large and may name a language, and looks whether its answer is known.
    pub(crate) async fn check_payload(
        self: &Arc<Self>,
        bytes: axum::body::Bytes,
        caller: &Caller,
        headers: &HeaderMap,
    ) -> Result<(Arc<Sealed>, Submission, Option<Ended>), Fault> {
        let (app, caller, headers) = (Arc::clone(self), caller.clone(), headers.clone());
        let check = move || {
            let runner = &app.runner;
            let checked = payload::check(&bytes, runner.bounds(), &app.languages, &runner.host);
            let (sealed, mut submission) = checked?;
            let known = app.known(&mut submission, &caller, &headers);
            Ok((sealed, submission, known))
        };
        let checked = tokio::task::spawn_blocking(check).await;
        checked.unwrap_or_else(|_| Err(Fault::internal("a fault of the daemon; its log says more")))
    }

    /// Checks one request and looks whether its answer is known, in one go: a known answer is to come at once. Most requests need no other thread for that.
    pub(crate) async fn check_one(
        self: &Arc<Self>,
        request: RunRequest,
        caller: &Caller,
        headers: &HeaderMap,
    ) -> Result<(Submission, Option<Ended>), Fault> {
        let is_quick = body::is_small(headers)
            && request.is_checked_quickly()
            && request
                .language
                .as_deref()
                .is_none_or(|name| self.languages.is_remembered(name));
        let checked = match is_quick {
            true => Ok(self.check_blocking(request, Instant::now() + LOOKUPS)?),
            false => Err(request),
        };
        let checked = match checked {
            Ok(submission) if matches!(submission.work.declared, Declared::Nothing) => {
                return Ok((submission, None));
            }
            other => other,
        };
        let (app, caller, headers) = (Arc::clone(self), caller.clone(), headers.clone());
        let check = move || {
            let mut submission = match checked {
                Ok(submission) => submission,
                Err(request) => app.check_blocking(request, Instant::now() + LOOKUPS)?,
            };
            let known = app.known(&mut submission, &caller, &headers);
            Ok((submission, known))
        };
        let checked = tokio::task::spawn_blocking(check).await;
        checked.unwrap_or_else(|_| Err(Fault::internal("a fault of the daemon; its log says more")))
    }

    fn known(
        &self,
        submission: &mut Submission,
        caller: &Caller,
        headers: &HeaderMap,
    ) -> Option<Ended> {
        let (known, host) = (self.archive.known(), &self.runner.host);
        known.find(submission, caller, headers, host)
    }

    pub(crate) fn abandoned(&self, live: &Arc<Live>) -> Abandoned {
        Abandoned {
            runner: Arc::clone(&self.runner),
            live: Some(Arc::clone(live)),
        }
    }

    /// Blocks on the disk where [`Runner::promises`] says so.
    pub(crate) fn submit(
        &self,
        submission: Submission,
        caller: &Caller,
    ) -> Result<Arc<Live>, Fault> {
        caller.must(Scope::Run)?;
        let taken = self.runner.submit(submission, caller);
        taken.inspect_err(|fault| self.metrics.refused(fault.code))
    }
}

impl Abandoned {
    /// It has ended; there is nothing to cancel.
    pub(crate) fn disarm(mut self) {
        self.live = None;
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        let Some(live) = self.live.take() else {
            return;
        };
        let _log = live.trace.log_span(live.id).entered();
        tracing::info!("whoever waited for it has gone; it is cancelled");
        let runner = Arc::clone(&self.runner);
        let cancel = move || {
            let _ = runner.cancel(&live);
        };
        match tokio::runtime::Handle::try_current() {
            Ok(handle) => drop(handle.spawn_blocking(cancel)),
            Err(_) => cancel(),
        }
    }
}
