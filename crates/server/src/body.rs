//! Reading a request's body: its type, its size, how long it may take, and JSON that every reader understands the same way.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::strict_json;
use cofferdam_contract::units;
use hyper::body::Body as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::fault::{Fault, Refusal};

/// How much is read, and for how long.
#[derive(Debug, Clone)]
pub(crate) struct BodyBounds {
    pub(crate) at_most: units::Bytes,
    pub(crate) within: Duration,
    /// For all bodies together, in KiB.
    pub(crate) room: Arc<Semaphore>,
}

/// The memory that a body takes, and then what was made of it, until its work is done: many large requests wait for each other instead of filling the machine.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    permit: Arc<Mutex<OwnedSemaphorePermit>>,
}

/// What a body claims to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    /// With what stands between its parts.
    Parts {
        boundary: String,
    },
}

/// Parsing more than this takes long enough to keep other connections waiting. Up to this much is read before room is asked for: small requests never stand behind large ones, and whoever only says
/// that a large body will come holds nothing.
const QUICK: usize = 64 << 10;
/// How much more room a body of unknown length asks for when it needs some.
const STEP: usize = 64 << 10;

impl Room {
    /// What was read is now something smaller; the rest is for others.
    pub(crate) fn shrink_to(&self, bytes: usize) {
        let mut permit = self.permit.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = kib(bytes);
        if let Some(spare) = permit.num_permits().checked_sub(needed) {
            drop(permit.split(spare));
        }
    }
}

/// A body that claims to be JSON, whole.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    bounds: BodyBounds,
) -> Result<(Bytes, Room), Fault> {
    match form(headers)? {
        Form::Json => whole(body, bounds).await,
        Form::Parts { .. } => Err(unsupported(headers)),
    }
}

/// Whatever it is, whole.
pub(crate) async fn whole(mut body: Body, bounds: BodyBounds) -> Result<(Bytes, Room), Fault> {
    let most = usize::try_from(bounds.at_most.get()).unwrap_or(usize::MAX);
    let too_large = || {
        let detail = format!("at most {} are read", bounds.at_most);
        Refusal::BodyTooLarge.because(detail)
    };
    let said = body.size_hint();
    // Refused before it is sent, where its length was said.
    if said.lower() > bounds.at_most.get() {
        return Err(too_large());
    }
    let said = said.exact().and_then(|size| usize::try_from(size).ok());
    let until = Instant::now() + bounds.within;
    let mut permit = room(0, &bounds, until).await?;
    let mut read = Vec::with_capacity(said.unwrap_or(0).min(STEP));
    loop {
        let next = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let frame = match tokio::time::timeout_at(until, next).await {
            Err(_) => {
                let detail = format!("the body was not whole after {:?}", bounds.within);
                return Err(Refusal::RequestTimeout.because(detail));
            }
            Ok(None) => break,
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => {
                let detail = format!("the body ended early: {error}");
                return Err(Fault::coded(ErrorCode::InputUnreadable, detail));
            }
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let size = read.len() + data.len();
        if size > most {
            return Err(too_large());
        }
        if size > QUICK && kib(size) > permit.num_permits() {
            // All of a length that was said: two that each have half of what they need would wait for each other.
            let wanted = said.unwrap_or_else(|| size.saturating_add(STEP));
            let more = kib(wanted.clamp(size, most)) - permit.num_permits();
            permit.merge(room(more, &bounds, until).await?);
        }
        read.extend_from_slice(&data);
    }
    // A small one is counted where there is room, and taken on where there is none: how many wait is bounded elsewhere.
    if permit.num_permits() == 0
        && let Ok(own) = Arc::clone(&bounds.room).try_acquire_many_owned(permits(kib(read.len())))
    {
        permit.merge(own);
    }
    let room = Room {
        permit: Arc::new(Mutex::new(permit)),
    };
    room.shrink_to(read.len());
    Ok((Bytes::from(read), room))
}

const fn kib(bytes: usize) -> usize {
    bytes / 1024 + 1
}

fn permits(kib: usize) -> u32 {
    u32::try_from(kib).unwrap_or(u32::MAX)
}

async fn room(
    kib: usize,
    bounds: &BodyBounds,
    until: Instant,
) -> Result<OwnedSemaphorePermit, Fault> {
    let waiting = Arc::clone(&bounds.room).acquire_many_owned(permits(kib));
    match tokio::time::timeout_at(until, waiting).await {
        Ok(Ok(permit)) => Ok(permit),
        _ => Err(Refusal::QueueFull.because("requests that wait take all the memory for bodies")),
    }
}

/// Whether the body of a request with these headers is so small that nothing that is done with it in memory keeps anybody waiting.
pub(crate) fn is_small(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    length.is_some_and(|length| length <= QUICK)
}

/// The value, read where it keeps nobody waiting.
pub(crate) async fn parsed<T: DeserializeOwned + Send + 'static>(
    bytes: &Bytes,
) -> Result<T, Fault> {
    if bytes.len() <= QUICK {
        return parse(bytes);
    }
    let bytes = bytes.clone();
    let reading = tokio::task::spawn_blocking(move || parse(&bytes));
    let read = reading.await;
    read.unwrap_or_else(|_| Err(Fault::internal("a fault of the daemon; its log says more")))
}

/// The value with line and column, or the path of the field, of whatever is wrong with it.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    let value = strict_json::parse(bytes)
        .map_err(|error| Fault::coded(ErrorCode::InputMalformedJson, error.to_string()))?;
    typed(value)
}

pub(crate) fn typed<T: DeserializeOwned>(value: Value) -> Result<T, Fault> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let place = if path == "." { "the body" } else { &path };
        Fault::coded(
            ErrorCode::InputInvalid,
            format!("{place}: {}", error.inner()),
        )
    })
}

/// What the body claims to be, if that can be read here.
pub(crate) fn form(headers: &HeaderMap) -> Result<Form, Fault> {
    let text = content_type(headers);
    let essence = text.split(';').next().unwrap_or("");
    let essence = essence.trim().to_ascii_lowercase();
    let is_json = essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"));
    // What curl says of anything that it is given with -d. A web page can have a browser say it too without anybody's leave; but then the browser says where it comes from.
    let is_typed = essence == "application/x-www-form-urlencoded"
        && !headers.contains_key(header::ORIGIN)
        && !headers.contains_key("sec-fetch-site");
    if is_json || is_typed {
        return Ok(Form::Json);
    }
    if essence == "multipart/form-data" {
        let boundary = multer::parse_boundary(text).map_err(|_| unsupported(headers))?;
        return Ok(Form::Parts { boundary });
    }
    Err(unsupported(headers))
}

fn content_type(headers: &HeaderMap) -> &str {
    let given = headers.get(header::CONTENT_TYPE);
    given.and_then(|value| value.to_str().ok()).unwrap_or("")
}

fn unsupported(headers: &HeaderMap) -> Fault {
    let text: String = content_type(headers).chars().take(100).collect();
    let detail = if text.is_empty() {
        "there is no Content-Type".to_owned()
    } else {
        format!("Content-Type: {text}")
    };
    Refusal::UnsupportedMediaType.because(detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only whether it can be read matters")]
    struct Sample {
        list: Vec<u8>,
    }

    /// Says how long it is, and sends so much of it.
    #[derive(Debug)]
    struct Stalled {
        said: u64,
        first: Option<Bytes>,
    }

    impl hyper::body::Body for Stalled {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _context: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
            match self.first.take() {
                Some(first) => std::task::Poll::Ready(Some(Ok(hyper::body::Frame::data(first)))),
                None => std::task::Poll::Pending,
            }
        }

        fn size_hint(&self) -> hyper::body::SizeHint {
            hyper::body::SizeHint::with_exact(self.said)
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_only_says_that_much_will_come_holds_no_room_and_small_ones_stand_behind_nobody() {
        const ALL: usize = 2 << 10;
        let bounds = BodyBounds {
            at_most: units::Bytes::new(1 << 20),
            within: Duration::from_secs(600),
            room: Arc::new(Semaphore::new(ALL)),
        };
        let stalled = |first: usize| {
            let body = Stalled {
                said: 1 << 20,
                first: Some(Bytes::from(vec![b' '; first])),
            };
            tokio::spawn(whole(Body::new(body), bounds.clone()))
        };
        let silent: Vec<_> = [0, QUICK, QUICK].map(stalled).into();
        tokio::task::yield_now().await;
        assert_eq!(bounds.room.available_permits(), ALL);
        // One that sends takes all of what it said, so that it can come to its end; the second one waits.
        let sends = [QUICK + 1, QUICK + 1].map(stalled);
        tokio::task::yield_now().await;
        assert!(bounds.room.available_permits() < ALL / 2);
        let (bytes, held) = whole(Body::from("{}"), bounds.clone()).await.unwrap();
        assert_eq!(bytes, "{}");
        drop(held);
        for request in silent.into_iter().chain(sends) {
            request.abort();
        }
    }

    #[test]
    fn what_is_wrong_is_found_by_its_place() {
        let detail = |text: &str| parse::<Sample>(text.as_bytes()).unwrap_err().detail;
        assert!(detail("{\n  \"list\": [1,]\n}").starts_with("line 2, column "));
        assert!(detail("{\"list\": [1, 300]}").starts_with("list[1]: "));
        assert!(detail("{\"list\": [], \"x\": 1}").contains("unknown field `x`"));
        assert!(detail("{\"list\": [], \"list\": []}").contains("twice"));
        assert!(detail("").contains("line 1, column 1"));
    }
}
