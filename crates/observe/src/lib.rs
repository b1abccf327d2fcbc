//! Traces: where a request comes from, what was done for it and how long that took.
//!
//! Start reading in [`context`] for what stands in headers, in [`tracer`] for what becomes of spans.

pub mod context;
pub mod endpoint;
mod export;
mod otlp;
pub mod span;
mod state;
pub mod tracer;

pub use context::{Sampled, SpanId, TraceContext, TraceId};
pub use endpoint::{Endpoint, Ratio};
pub use export::Figures;
pub use span::{Attribute, Kind, Span, SpanClock, Status};
pub use tracer::Tracer;
