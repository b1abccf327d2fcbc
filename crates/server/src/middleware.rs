//! Around every request: its name, its trace, its line in the log, its place in the metrics, and the form of its error.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::app::{App, RequestId};
use crate::fault::{Fault, Refusal};
use crate::random;

/// Outermost.
pub(crate) async fn observe(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let id = request_id(request.headers());
    let trace = Trace::of(request.headers());
    let method = request.method().clone();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("unmatched", MatchedPath::as_str)
        .to_owned();
    request.extensions_mut().insert(RequestId(id.clone()));
    let response = next.run(request).await;
    let mut response = with_error_body(response, &id);
    let status = response.status().as_u16();
    let took = began.elapsed();
    app.metrics.answered(method.as_str(), &route, status, took);
    tracing::info!(
        request_id = %id,
        trace_id = %trace.id,
        span_id = %trace.span,
        method = %method,
        route,
        status,
        took_ms = crate::view::milliseconds(took),
        "answered"
    );
    let headers = response.headers_mut();
    let own = [("x-request-id", id), ("traceparent", trace.header())];
    for (name, value) in own {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
    headers.insert(
        "x-content-type-options",
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// Lets only those in who may come in, and says who they are.
pub(crate) async fn authenticate(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    match app.gate.admit(request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(fault) => fault.into_response(),
    }
}

/// For routes that wait for no run.
pub(crate) async fn within_time(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let most = app.config.http.request_timeout;
    match tokio::time::timeout(most, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Refusal::RequestTimeout
            .because(format!("there was no answer after {most:?}"))
            .into_response(),
    }
}

/// A fault carries itself in the extensions; what the framework refuses has nothing yet.
fn with_error_body(mut response: Response, id: &str) -> Response {
    let fault = match response.extensions_mut().remove::<Fault>() {
        Some(fault) => fault,
        None if response.status() == StatusCode::METHOD_NOT_ALLOWED => {
            let allowed = response.headers().get(header::ALLOW);
            let allowed = allowed.and_then(|value| value.to_str().ok());
            Refusal::MethodNotAllowed.because(format!("allowed: {}", allowed.unwrap_or("none")))
        }
        None => return response,
    };
    if fault.status.is_server_error() {
        tracing::warn!(request_id = %id, code = fault.code, detail = fault.detail, "refused");
    }
    let (mut parts, _) = response.into_parts();
    let (form, body) = Json(fault.body(id)).into_response().into_parts();
    parts.headers.extend(form.headers);
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::new(body))
}

/// The client's own, where it is one that can stand in a header and in a log.
fn request_id(headers: &HeaderMap) -> String {
    let is_sane = |text: &&str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        (1..=128).contains(&text.len()) && text.bytes().all(allowed)
    };
    let given = headers.get("x-request-id");
    let given = given.and_then(|value| value.to_str().ok()).filter(is_sane);
    given.map_or_else(|| format!("req_{}", random::hex::<12>()), str::to_owned)
}

/// W3C trace context, version 00.
#[derive(Debug, PartialEq, Eq)]
struct Trace {
    id: String,
    span: String,
    flags: String,
}

impl Trace {
    /// The client's trace with a span of ours, or a trace of our own.
    fn of(headers: &HeaderMap) -> Self {
        let given = headers.get("traceparent");
        let given = given.and_then(|value| parse_traceparent(value.to_str().ok()?));
        let (id, flags) = given.unwrap_or_else(|| (random::hex::<16>(), "00".to_owned()));
        Self {
            id,
            span: random::hex::<8>(),
            flags,
        }
    }

    fn header(&self) -> String {
        format!("00-{}-{}-{}", self.id, self.span, self.flags)
    }
}

fn parse_traceparent(text: &str) -> Option<(String, String)> {
    let hex = |text: &str, length| {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        text.len() == length && text.bytes().all(digit)
    };
    let zero = |text: &str| text.bytes().all(|byte| byte == b'0');
    let mut parts = text.split('-');
    let (version, id, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_whole = hex(version, 2) && hex(id, 32) && hex(span, 16) && hex(flags, 2);
    let is_known = version != "ff" && (version != "00" || parts.next().is_none());
    let is_named = is_whole && !zero(id) && !zero(span);
    (is_known && is_named).then(|| (id.to_owned(), flags.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_taken_over_only_when_it_is_one() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let read = parse_traceparent(good).unwrap();
        assert_eq!(read.0, "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(read.1, "01");
        for bad in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        ] {
            assert_eq!(parse_traceparent(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_strange_request_id_is_replaced() {
        let mut headers = HeaderMap::new();
        assert!(request_id(&headers).starts_with("req_"));
        headers.insert("x-request-id", HeaderValue::from_static("abc-1"));
        assert_eq!(request_id(&headers), "abc-1");
        headers.insert("x-request-id", HeaderValue::from_static("a b"));
        assert!(request_id(&headers).starts_with("req_"));
    }
}
