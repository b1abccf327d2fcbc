//! Reading a request's body: its type, its size, how long it may take, and JSON that every reader understands the same way.

use std::sync::Arc;
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

use crate::fault::{Fault, Refusal};

/// How much is read, and for how long.
#[derive(Debug, Clone)]
pub(crate) struct BodyBounds {
    pub(crate) at_most: units::Bytes,
    pub(crate) within: Duration,
    /// For all bodies together, in KiB.
    pub(crate) room: Arc<Semaphore>,
}

/// The memory that a body takes, until its work is done: many large requests wait for each other instead of filling the machine.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    _permit: Arc<OwnedSemaphorePermit>,
}

/// A body that claims to be JSON, whole.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    bounds: BodyBounds,
) -> Result<(Bytes, Room), Fault> {
    check_type(headers)?;
    let at_most = usize::try_from(bounds.at_most.get()).unwrap_or(usize::MAX);
    let too_large = || {
        let detail = format!("at most {} are read", bounds.at_most);
        Refusal::BodyTooLarge.because(detail)
    };
    // Refused before it is sent, where its length was said.
    if body.size_hint().lower() > bounds.at_most.get() {
        return Err(too_large());
    }
    let most = bounds.at_most.get();
    let size = body.size_hint().upper().unwrap_or(most).min(most);
    let room = room(size, &bounds).await?;
    let reading = axum::body::to_bytes(body, at_most);
    match tokio::time::timeout(bounds.within, reading).await {
        Err(_) => {
            let detail = format!("the body was not whole after {:?}", bounds.within);
            Err(Refusal::RequestTimeout.because(detail))
        }
        Ok(Ok(bytes)) => Ok((bytes, room)),
        Ok(Err(error)) if is_length_limit(&error) => Err(too_large()),
        Ok(Err(error)) => Err(Fault::coded(
            ErrorCode::InputUnreadable,
            format!("the body ended early: {error}"),
        )),
    }
}

async fn room(size: u64, bounds: &BodyBounds) -> Result<Room, Fault> {
    let permits = u32::try_from(size / 1024 + 1).unwrap_or(u32::MAX);
    let waiting = Arc::clone(&bounds.room).acquire_many_owned(permits);
    match tokio::time::timeout(bounds.within, waiting).await {
        Ok(Ok(permit)) => Ok(Room {
            _permit: Arc::new(permit),
        }),
        _ => Err(Refusal::QueueFull.because("requests that wait take all the memory for bodies")),
    }
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

fn check_type(headers: &HeaderMap) -> Result<(), Fault> {
    let given = headers.get(header::CONTENT_TYPE);
    let text = given.and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = text
        .split(';')
        .next()
        .unwrap_or("")
        .trim()
        .to_ascii_lowercase();
    let is_json = essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"));
    if is_json {
        return Ok(());
    }
    let detail = if given.is_none() {
        "there is no Content-Type".to_owned()
    } else {
        format!(
            "Content-Type: {}",
            text.chars().take(100).collect::<String>()
        )
    };
    Err(Refusal::UnsupportedMediaType.because(detail))
}

fn is_length_limit(error: &axum::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if inner.to_string().contains("length limit exceeded") {
            return true;
        }
        source = inner.source();
    }
    error.to_string().contains("length limit exceeded")
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
