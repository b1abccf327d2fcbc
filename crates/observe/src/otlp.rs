//! Spans as OTLP has them, in its JSON form: every collector that takes OTLP over HTTP takes it, and it needs no second serialiser here.

use serde_json::{Value, json};

use crate::context::Sampled;
use crate::span::{Attribute, Kind, Span, Status};

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Speaker {
    pub(crate) service: String,
    /// Tells one process from another of the same service.
    pub(crate) instance: String,
}

/// The body of one request.
pub(crate) fn request(speaker: &Speaker, spans: &[Span]) -> Value {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let resource = [
        attribute("service.name", &speaker.service.as_str().into()),
        attribute("service.version", &VERSION.into()),
        attribute("service.instance.id", &speaker.instance.as_str().into()),
        attribute("process.pid", &u64::from(std::process::id()).into()),
    ];
    json!({
        "resourceSpans": [{
            "resource": { "attributes": resource },
            "scopeSpans": [{
                "scope": { "name": "cofferdam", "version": VERSION },
                "spans": spans.iter().map(span).collect::<Vec<_>>(),
            }],
        }],
    })
}

fn span(span: &Span) -> Value {
    let flags = match span.context.sampled {
        Sampled::Yes => 1,
        Sampled::No => 0,
    };
    let attributes = span.attributes.iter();
    let mut value = json!({
        "traceId": span.context.trace.to_string(),
        "spanId": span.context.span.to_string(),
        "flags": flags,
        "name": span.name,
        "kind": kind(span.kind),
        // 64-bit numbers are strings in the JSON form of protobuf.
        "startTimeUnixNano": span.began.to_string(),
        "endTimeUnixNano": span.ended.to_string(),
        "attributes": attributes.map(|(key, value)| attribute(key, value)).collect::<Vec<_>>(),
        "status": status(&span.status),
    });
    if let Some(parent) = span.parent {
        value["parentSpanId"] = json!(parent.to_string());
    }
    if let Some(state) = span.context.tracestate() {
        value["traceState"] = json!(state);
    }
    value
}

fn kind(kind: Kind) -> u8 {
    match kind {
        Kind::Internal => 1,
        Kind::Server => 2,
        Kind::Client => 3,
    }
}

fn status(status: &Status) -> Value {
    match status {
        Status::Unset => json!({}),
        Status::Error { message } => json!({ "code": 2, "message": message }),
    }
}

fn attribute(key: &str, value: &Attribute) -> Value {
    let value = match value {
        Attribute::Text(text) => json!({ "stringValue": text }),
        Attribute::Whole(number) => json!({ "intValue": number.to_string() }),
    };
    json!({ "key": key, "value": value })
}
