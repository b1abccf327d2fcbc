//! `cofferdam chain node`: the chain of a data directory by JSON-RPC over HTTP, for whoever is on this machine. Bounded in connections, in bytes and in time. It knows nobody: what it takes is
//! signed, and what it tells is no secret among those who can get here.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_chain::Embedded;
use cofferdam_contract::codes::ErrorCode;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, ORIGIN};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use crate::failure::{self, Failure};
use crate::fleet::runtime;

const MOST_CONNECTIONS: usize = 256;
/// A contract is a small part of it.
const LARGEST_QUESTION: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn serve(
    chain: Arc<Embedded>,
    listen: SocketAddr,
    is_json: bool,
) -> Result<ExitCode, Failure> {
    if !listen.ip().is_loopback() {
        let fix = "can be reached by others, and whoever gets here is not asked who he is; use 127.0.0.1, or a chain elsewhere";
        return Err(Failure::problem("--listen", &listen.to_string(), fix));
    }
    let failed = |error: std::io::Error| {
        let what = format!("--listen: cannot listen on {listen}; name another address or port");
        Failure::io(ErrorCode::ServerUnreachable, &what, &error)
    };
    runtime()?.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        failure::print(&told(&chain, address, is_json)?)?;
        tokio::select! {
            () = accept(listener, chain) => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn told(chain: &Embedded, address: SocketAddr, is_json: bool) -> Result<String, Failure> {
    let (number, contract) = (chain.chain_id(), chain.ledger()?);
    if is_json {
        // On one line: it is read while the process goes on.
        let told = json!({"schema": super::SCHEMA, "url": format!("http://{address}"), "chain": number, "contract": contract});
        return Ok(format!("{told}\n"));
    }
    let contract = contract.map_or_else(String::new, |contract| format!(", contract {contract}"));
    Ok(format!(
        "http://{address} serves the chain {number}{contract}\n"
    ))
}

async fn accept(listener: TcpListener, chain: Arc<Embedded>) {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(seat) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            // Too many files are open, or the caller has gone: a moment later there may be room.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let chain = Arc::clone(&chain);
        tokio::spawn(async move {
            let _seat = seat;
            let service = service_fn(|request| answered(Arc::clone(&chain), request));
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answered(
    chain: Arc<Embedded>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if let Err((status, why)) = fit(request.method(), request.headers()) {
        return Ok(said(status, why.to_owned()));
    }
    let body = Limited::new(request.into_body(), LARGEST_QUESTION).collect();
    let body = match tokio::time::timeout(PATIENCE, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            let why = format!("a question has at most {LARGEST_QUESTION} bytes\n");
            return Ok(said(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        Err(_) => return Ok(said(StatusCode::REQUEST_TIMEOUT, String::new())),
    };
    let answer = tokio::task::spawn_blocking(move || chain.answer(&body)).await;
    Ok(match answer {
        Ok(answer) => said(StatusCode::OK, answer),
        Err(_) => said(StatusCode::INTERNAL_SERVER_ERROR, String::new()),
    })
}

/// A web page in a browser on this machine gets here too. It can choose neither Host nor Origin.
fn fit(method: &Method, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if method != Method::POST {
        return Err((
            StatusCode::METHOD_NOT_ALLOWED,
            "questions come by POST, as JSON-RPC\n",
        ));
    }
    let is_json = text(CONTENT_TYPE).is_some_and(|kind| {
        let kind = kind.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("application/json")
    });
    if !is_json {
        return Err((
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "questions are application/json\n",
        ));
    }
    if headers.contains_key(ORIGIN) || !text(HOST).is_some_and(is_here) {
        return Err((
            StatusCode::FORBIDDEN,
            "this chain is for programs of this machine, by its own address\n",
        ));
    }
    Ok(())
}

fn is_here(host: &str) -> bool {
    if let Ok(address) = host.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address = name.parse().or_else(|_| bare.parse::<std::net::IpAddr>());
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn said(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = match status {
        StatusCode::OK => "application/json",
        _ => "text/plain; charset=utf-8",
    };
    let kind = hyper::header::HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_of_this_machine_are_answered() {
        for here in [
            "127.0.0.1",
            "127.0.0.1:8545",
            "localhost",
            "LocalHost:1",
            "[::1]",
            "[::1]:8545",
            "127.9.9.9:80",
        ] {
            assert!(is_here(here), "{here}");
        }
        for elsewhere in [
            "",
            "example.org",
            "example.org:8545",
            "localhost.example.org",
            "192.0.2.1:80",
            "0.0.0.0",
            "[2001:db8::1]:80",
            "127.0.0.1.example.org",
        ] {
            assert!(!is_here(elsewhere), "{elsewhere}");
        }
        let mut headers = HeaderMap::new();
        let status = |method, headers: &HeaderMap| fit(&method, headers).map_err(|(code, _)| code);
        assert_eq!(
            status(Method::GET, &headers),
            Err(StatusCode::METHOD_NOT_ALLOWED)
        );
        assert_eq!(
            status(Method::POST, &headers),
            Err(StatusCode::UNSUPPORTED_MEDIA_TYPE)
        );
        headers.insert(CONTENT_TYPE, "application/json".parse().unwrap());
        assert_eq!(status(Method::POST, &headers), Err(StatusCode::FORBIDDEN));
        headers.insert(HOST, "127.0.0.1:1".parse().unwrap());
        assert_eq!(status(Method::POST, &headers), Ok(()));
        headers.insert(ORIGIN, "http://127.0.0.1".parse().unwrap());
        assert_eq!(status(Method::POST, &headers), Err(StatusCode::FORBIDDEN));
    }
}
