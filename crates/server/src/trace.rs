//! What is known of the trace that a request or a run belongs to, and the spans of a run: the run itself and each of its phases.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_contract::ending::Ending;
use cofferdam_observe::{Attribute, Kind, Span, SpanClock, SpanId, Status, TraceContext, Tracer};
use cofferdam_store::RunId;
use cofferdam_store::outbox::TraceHeaders;

use crate::live::{Ended, Outcome};
use crate::metrics;
use crate::view::milliseconds;

/// A request's place in a trace.
#[derive(Debug)]
pub(crate) struct RequestTrace {
    pub(crate) context: TraceContext,
    parent: Option<SpanId>,
    pub(crate) request_id: String,
    clock: SpanClock,
    tracer: Arc<Tracer>,
}

/// A part of what is done for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RunPhase {
    Queue,
    Build,
    Run,
    Record,
    /// Telling whoever wanted to be told.
    Callback,
}

/// A run's place in a trace, and how long its phases took.
pub(crate) struct RunTrace {
    context: TraceContext,
    parent: Option<SpanId>,
    request_id: Option<String>,
    clock: SpanClock,
    tracer: Arc<Tracer>,
    took: Mutex<BTreeMap<RunPhase, Duration>>,
}

/// A phase that goes on; it ends when this goes.
#[derive(Debug)]
#[must_use]
pub(crate) struct PhaseGuard<'a> {
    trace: &'a RunTrace,
    phase: RunPhase,
    began: Instant,
    context: TraceContext,
}

tokio::task_local! {
    static CURRENT: Arc<RequestTrace>;
}

/// Of the request that this task answers.
pub(crate) fn current() -> Option<Arc<RequestTrace>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// The trace of the request that this task answers, as a client reads it.
pub(crate) fn current_id() -> Option<String> {
    current().map(|current| current.context.trace.to_string())
}

/// Everything in it belongs to this request.
pub(crate) async fn within<F: Future>(trace: Arc<RequestTrace>, work: F) -> F::Output {
    CURRENT.scope(trace, work).await
}

/// The same for work that is done on a thread of its own.
pub(crate) fn carried<T>(trace: Option<Arc<RequestTrace>>, work: impl FnOnce() -> T) -> T {
    match trace {
        Some(trace) => CURRENT.sync_scope(trace, work),
        None => work(),
    }
}

impl RequestTrace {
    pub(crate) fn begin(
        tracer: &Arc<Tracer>,
        caller: Option<&TraceContext>,
        request_id: String,
    ) -> Self {
        let (context, parent) = tracer.enter(caller);
        Self {
            context,
            parent,
            request_id,
            clock: SpanClock::start(),
            tracer: Arc::clone(tracer),
        }
    }

    /// Around log lines.
    pub(crate) fn log_span(&self) -> tracing::Span {
        tracing::error_span!(
            "request",
            trace_id = %self.context.trace,
            span_id = %self.context.span,
            request_id = self.request_id,
        )
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    pub(crate) fn ended(&self, method: &str, route: &str, status: u16, bytes: u64) {
        if !self.tracer.wants(&self.context) {
            return;
        }
        let is_ours = status >= 500;
        self.tracer.record(Span {
            context: self.context.clone(),
            parent: self.parent,
            name: format!("{method} {route}").into(),
            kind: Kind::Server,
            began: self.clock.began(),
            ended: self.clock.at(Instant::now()),
            attributes: vec![
                ("http.request.method", method.into()),
                ("http.route", route.into()),
                ("http.response.status_code", u64::from(status).into()),
                ("http.response.body.size", bytes.into()),
                ("cofferdam.request_id", self.request_id.as_str().into()),
            ],
            status: if is_ours {
                Status::Error {
                    message: format!("answered {status}"),
                }
            } else {
                Status::Unset
            },
        });
    }
}

impl RunPhase {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Build => "build",
            Self::Run => "run",
            Self::Record => "record",
            Self::Callback => "callback",
        }
    }
}

impl RunTrace {
    /// Below the request that this task answers.
    pub(crate) fn begin() -> Self {
        let request = current();
        let tracer = request
            .as_ref()
            .map_or_else(Arc::default, |request| Arc::clone(&request.tracer));
        let (context, parent) = tracer.enter(request.as_ref().map(|request| &request.context));
        Self {
            context,
            parent,
            request_id: request.map(|request| request.request_id.clone()),
            clock: SpanClock::start(),
            tracer,
            took: Mutex::default(),
        }
    }

    pub(crate) fn id(&self) -> String {
        self.context.trace.to_string()
    }

    /// Around log lines.
    pub(crate) fn log_span(&self, run: RunId) -> tracing::Span {
        tracing::error_span!(
            "run",
            trace_id = %self.context.trace,
            span_id = %self.context.span,
            request_id = self.request_id,
            run_id = %run,
        )
    }

    /// Its turn has come; until now it waited.
    pub(crate) fn dequeued(&self) {
        self.phase_done(RunPhase::Queue, self.context.child(), None);
    }

    pub(crate) fn phase(&self, phase: RunPhase) -> PhaseGuard<'_> {
        PhaseGuard {
            trace: self,
            phase,
            began: Instant::now(),
            context: self.context.child(),
        }
    }

    /// How long a phase took, all times together; `None` when there was none.
    pub(crate) fn took(&self, phase: RunPhase) -> Option<Duration> {
        let took = self.took.lock().unwrap_or_else(PoisonError::into_inner);
        took.get(&phase).copied()
    }

    /// The run's own span.
    pub(crate) fn ended(&self, run: RunId, kind: &str, ended: &Ended) {
        let cause = metrics::cause(&ended.outcome);
        self.log_span(run).in_scope(|| {
            tracing::info!(
                cause,
                queued_ms = milliseconds(ended.queued),
                total_ms = milliseconds(ended.total),
                "a run has ended"
            );
        });
        if !self.tracer.wants(&self.context) {
            return;
        }
        let mut attributes: Vec<(&str, Attribute)> = vec![
            ("cofferdam.run_id", run.to_string().into()),
            ("cofferdam.kind", kind.into()),
            ("cofferdam.cause", cause.into()),
        ];
        let status = match &ended.outcome {
            Outcome::Finished(finished) => {
                let record = &finished.record;
                if let Some(code) = record.exit_code {
                    attributes.push(("process.exit.code", code.into()));
                }
                match &record.ending {
                    Ending::Exited { code: 0 } => Status::Unset,
                    Ending::NeverStarted(_) => error("never started"),
                    Ending::Exited { .. } | Ending::Signaled { .. } => error("failed"),
                    Ending::Stopped(cause) => error(cause.name()),
                }
            }
            Outcome::Failed(fault) => error(fault.code),
            Outcome::CanceledInQueue => error("canceled"),
            Outcome::Expired => error("deadline"),
        };
        self.tracer.record(Span {
            context: self.context.clone(),
            parent: self.parent,
            name: "run".into(),
            kind: Kind::Internal,
            began: self.clock.began(),
            ended: self.clock.at(Instant::now()),
            attributes,
            status,
        });
    }

    /// From `began`, or from the run's arrival, until now.
    fn phase_done(&self, phase: RunPhase, context: TraceContext, began: Option<Instant>) {
        let now = Instant::now();
        let took = began.map_or_else(
            || self.clock.elapsed(),
            |began| now.saturating_duration_since(began),
        );
        let mut all = self.took.lock().unwrap_or_else(PoisonError::into_inner);
        *all.entry(phase).or_default() += took;
        drop(all);
        if !self.tracer.wants(&self.context) {
            return;
        }
        self.tracer.record(Span {
            context,
            parent: Some(self.context.span),
            name: phase.name().into(),
            kind: match phase {
                RunPhase::Callback => Kind::Client,
                RunPhase::Queue | RunPhase::Build | RunPhase::Run | RunPhase::Record => {
                    Kind::Internal
                }
            },
            began: began.map_or_else(|| self.clock.began(), |began| self.clock.at(began)),
            ended: self.clock.at(now),
            attributes: Vec::new(),
            status: Status::Unset,
        });
    }
}

fn error(message: &str) -> Status {
    Status::Error {
        message: message.to_owned(),
    }
}

impl PhaseGuard<'_> {
    /// What messages to others carry that are made in this phase. Made once for a message that is sent again and again: it is the same message.
    pub(crate) fn headers(&self) -> TraceHeaders {
        TraceHeaders {
            parent: self.context.traceparent(),
            state: self.context.tracestate().map(str::to_owned),
        }
    }
}

impl Drop for PhaseGuard<'_> {
    fn drop(&mut self) {
        let context = self.context.clone();
        self.trace.phase_done(self.phase, context, Some(self.began));
    }
}

impl fmt::Debug for RunTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunTrace")
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_about_a_run_stays_in_its_trace() {
        let trace = RunTrace::begin();
        let headers = trace.phase(RunPhase::Callback).headers();
        let sent = TraceContext::from_headers([headers.parent.as_bytes()], []).unwrap();
        assert_eq!(sent.trace.to_string(), trace.id());
        assert_ne!(sent.span, trace.context.span);
    }

    #[test]
    fn phases_of_one_kind_add_up() {
        let trace = RunTrace::begin();
        assert_eq!(trace.took(RunPhase::Callback), None);
        drop(trace.phase(RunPhase::Callback));
        let once = trace.took(RunPhase::Callback).unwrap();
        drop(trace.phase(RunPhase::Callback));
        assert!(trace.took(RunPhase::Callback).unwrap() >= once);
        trace.dequeued();
        assert!(trace.took(RunPhase::Queue).is_some());
    }
}
