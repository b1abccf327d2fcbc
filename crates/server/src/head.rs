//! What a request's head must not leave open. Whoever stands in front of the daemon and reads such a head in another way would see other requests, or another
//! addressee, than the daemon does: RFC 9112 has them refused, and the connection ends with them.

use axum::extract::Request;
use axum::http::{HeaderValue, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use cofferdam_contract::codes::ErrorCode;

use crate::fault::Fault;

pub(crate) async fn check(request: Request, next: Next) -> Response {
    let Some(problem) = problem(&request) else {
        return next.run(request).await;
    };
    let mut response = Fault::coded(ErrorCode::InputInvalid, problem).into_response();
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

fn problem(request: &Request) -> Option<&'static str> {
    let headers = request.headers();
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() == Version::HTTP_11 => {
            return Some("Host: is missing; HTTP/1.1 wants exactly one");
        }
        (Some(_), Some(_)) => return Some("Host: is there more than once; send one"),
        (Some(host), None) => {
            let named = request.uri().authority();
            if named.is_some_and(|named| named.as_str().as_bytes() != host.as_bytes()) {
                return Some("Host: is not the host of the request's target; send the same");
            }
        }
        (None, _) => {}
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => None,
        (Some(only), None) if only.as_bytes().eq_ignore_ascii_case(b"chunked") => None,
        (Some(_), _) => {
            Some("Transfer-Encoding: only `chunked` is understood; send the body as it is")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn problem_of(target: &str, headers: &[(&str, &str)]) -> Option<&'static str> {
        let mut request = Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        problem(&request.body(Body::empty()).unwrap())
    }

    #[test]
    fn one_host_and_one_framing_or_nothing() {
        let host = ("host", "a:1");
        let chunked = ("transfer-encoding", "chunked");
        assert_eq!(problem_of("/", &[host]), None);
        assert_eq!(problem_of("/", &[host, chunked]), None);
        assert_eq!(problem_of("http://a:1/", &[host]), None);
        for (target, headers) in [
            ("/", &[][..]),
            ("/", &[host, host]),
            ("http://b:1/", &[host]),
            ("/", &[host, chunked, chunked]),
            ("/", &[host, ("transfer-encoding", "gzip, chunked")]),
            ("/", &[host, ("transfer-encoding", "identity")]),
        ] {
            assert!(
                problem_of(target, headers).is_some(),
                "{target} {headers:?}"
            );
        }
    }
}
