//! Around every request: its name, its trace, its line in the log, its place in the metrics, and the form of its error.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use cofferdam_observe::TraceContext;
use cofferdam_observe::context::{TRACEPARENT, TRACESTATE};
use hyper::body::{Body as _, Frame, SizeHint};
use tracing::Instrument as _;

use crate::app::{App, RequestId};
use crate::fault::{Fault, Refusal};
use crate::random;
use crate::trace::{self, RequestTrace};
use crate::view::milliseconds;

/// The token that a request came with; its id, never its secret.
#[derive(Debug, Clone)]
struct TokenId(String);

/// Outermost.
pub(crate) async fn observe(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = request_id(request.headers());
    let caller = trace_context(request.headers());
    let trace = RequestTrace::begin(&app.tracer, caller.as_ref(), id.clone());
    let trace = Arc::new(trace);
    let method = request.method().clone();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("unmatched", MatchedPath::as_str)
        .to_owned();
    request.extensions_mut().insert(RequestId(id.clone()));
    let answering = async { with_error_body(next.run(request).await, &id) };
    let log = trace.log_span();
    let mut response = trace::within(Arc::clone(&trace), answering.instrument(log)).await;
    let status = response.status().as_u16();
    let took = trace.elapsed();
    app.metrics.answered(method.as_str(), &route, status, took);
    let headers = response.headers_mut();
    let own = [
        ("x-request-id", id),
        (TRACEPARENT, trace.context.traceparent()),
    ];
    for (name, value) in own {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
    headers.insert(
        "x-content-type-options",
        HeaderValue::from_static("nosniff"),
    );
    let token = response.extensions_mut().remove::<TokenId>();
    response.map(|body| {
        Body::new(Answer {
            body,
            bytes: 0,
            end: End::GoesOn,
            method,
            route,
            status,
            token: token.map(|TokenId(id)| id),
            trace,
        })
    })
}

/// The body of an answer on its way. When it is sent or nobody wants it any more, the request is over: then its line is written and its span ends.
#[derive(Debug)]
struct Answer {
    body: Body,
    bytes: u64,
    end: End,
    method: Method,
    route: String,
    status: u16,
    token: Option<String>,
    trace: Arc<RequestTrace>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    GoesOn,
    Whole,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
                self.bytes = self.bytes.saturating_add(bytes);
            }
            Poll::Ready(None) => self.end = End::Whole,
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // Whoever sends it need not ask for more than it was told there is.
        let is_whole = self.end == End::Whole || self.body.is_end_stream();
        self.trace.log_span().in_scope(|| {
            tracing::info!(
                method = %self.method,
                route = self.route,
                status = self.status,
                took_ms = milliseconds(self.trace.elapsed()),
                bytes = self.bytes,
                is_whole,
                token = self.token,
                "answered"
            );
        });
        let method = self.method.as_str();
        self.trace
            .ended(method, &self.route, self.status, self.bytes);
    }
}

/// Lets only those in who may come in, and says who they are.
pub(crate) async fn authenticate(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    match app.gate.admit(request.headers()) {
        Ok(caller) => {
            let token = TokenId(caller.id.clone());
            request.extensions_mut().insert(caller);
            let mut response = next.run(request).await;
            response.extensions_mut().insert(token);
            response
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
        tracing::warn!(code = fault.code, detail = fault.detail, "refused");
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

/// What the client says of the trace it is in.
fn trace_context(headers: &HeaderMap) -> Option<TraceContext> {
    let all = |name| headers.get_all(name).iter().map(HeaderValue::as_bytes);
    TraceContext::from_headers(all(TRACEPARENT), all(TRACESTATE))
}

#[cfg(test)]
mod tests {
    use super::*;

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
