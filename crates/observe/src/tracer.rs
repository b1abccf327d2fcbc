//! Where spans are handed in. Without a collector, or for a trace that is not told, that costs nothing.

use std::io;
use std::time::Duration;

use crate::context::{Sampled, SpanId, TraceContext};
use crate::endpoint::{Endpoint, Ratio};
use crate::export::{Exporter, Figures};
use crate::otlp::Speaker;
use crate::span::Span;

/// Takes spans; never waits, never fails.
#[derive(Debug, Default)]
pub struct Tracer {
    telling: Option<Telling>,
}

#[derive(Debug)]
struct Telling {
    exporter: Exporter,
    ratio: Ratio,
}

impl Tracer {
    /// Tells nobody.
    pub fn off() -> Self {
        Self::default()
    }

    /// Tells a collector.
    pub fn start(endpoint: Endpoint, service: &str, ratio: Ratio) -> io::Result<Self> {
        let speaker = Speaker {
            service: service.to_owned(),
            instance: TraceContext::root(Sampled::No).trace.to_string(),
        };
        let exporter = Exporter::start(endpoint, speaker)?;
        Ok(Self {
            telling: Some(Telling { exporter, ratio }),
        })
    }

    /// The place of what begins here: below what the caller said, or at the head of a trace of its own. Who called decides whether it is told.
    pub fn enter(&self, caller: Option<&TraceContext>) -> (TraceContext, Option<SpanId>) {
        if let Some(caller) = caller {
            return (caller.child(), Some(caller.span));
        }
        let mut root = TraceContext::root(Sampled::No);
        if let Some(telling) = &self.telling {
            root.sampled = telling.ratio.decide(root.trace);
        }
        (root, None)
    }

    /// Whether a span of this trace would go anywhere; for those who would have to do work for it.
    pub fn wants(&self, context: &TraceContext) -> bool {
        self.telling.is_some() && context.sampled == Sampled::Yes
    }

    pub fn record(&self, span: Span) {
        if let Some(telling) = &self.telling
            && span.context.sampled == Sampled::Yes
        {
            telling.exporter.take(span);
        }
    }

    /// `None` without a collector.
    pub fn figures(&self) -> Option<Figures> {
        self.telling
            .as_ref()
            .map(|telling| telling.exporter.figures())
    }

    /// Sends what is there, as far as the time goes.
    pub fn stop(&self, within: Duration) {
        if let Some(telling) = &self.telling {
            telling.exporter.stop(within);
        }
    }
}
