//! The memory that answers take from the moment at which they are made until their readers have taken them. Large answers wait for each other; what waits holds no result in memory but
//! finds it again, remembered or in the history.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use cofferdam_contract::units;
use hyper::body::{Frame, SizeHint};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::fault::{Fault, Refusal};

/// How much all answers together may take.
#[derive(Debug)]
pub(crate) struct Answers {
    /// In KiB.
    room: Arc<Semaphore>,
    capacity: u32,
    within: Duration,
}

/// The room of one answer.
#[derive(Debug)]
pub(crate) struct AnswerRoom {
    /// Small ones need none: there are only so many connections.
    permit: Option<OwnedSemaphorePermit>,
}

/// Answers up to this size are not counted.
const SMALL: usize = 64 << 10;
/// A connection takes this much at a time; the rest waits here, and is counted.
const PIECE: usize = 64 << 10;
/// A result, and the text that is made of it.
const COPIES: usize = 2;

impl Answers {
    pub(crate) fn new(bytes: units::Bytes, within: Duration) -> Self {
        let most = u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX);
        let capacity = u32::try_from(bytes.get() / 1024 + 1).map_or(most, |kib| kib.min(most));
        Self {
            room: Arc::new(Semaphore::new(usize::try_from(capacity).unwrap_or(0))),
            capacity,
            within,
        }
    }

    /// For a result of this size, if there is room at once.
    pub(crate) fn room_now(&self, result: usize) -> Option<AnswerRoom> {
        let Some(kib) = self.kib(result) else {
            return Some(AnswerRoom { permit: None });
        };
        let permit = Arc::clone(&self.room).try_acquire_many_owned(kib).ok()?;
        Some(AnswerRoom {
            permit: Some(permit),
        })
    }

    /// The same, when others have been read. Whoever waits here should hold nothing large.
    pub(crate) async fn room(&self, result: usize) -> Result<AnswerRoom, Fault> {
        let Some(kib) = self.kib(result) else {
            return Ok(AnswerRoom { permit: None });
        };
        let waiting = Arc::clone(&self.room).acquire_many_owned(kib);
        match tokio::time::timeout(self.within, waiting).await {
            Ok(Ok(permit)) => Ok(AnswerRoom {
                permit: Some(permit),
            }),
            _ => Err(Refusal::AnswersFull.because("answers that nobody reads take all the room")),
        }
    }

    /// What is larger than all the room gets all of it.
    fn kib(&self, result: usize) -> Option<u32> {
        if result <= SMALL {
            return None;
        }
        let kib = result.saturating_mul(COPIES) / 1024 + 1;
        Some(u32::try_from(kib).map_or(self.capacity, |kib| kib.min(self.capacity)))
    }
}

impl AnswerRoom {
    /// Makes the answer where it keeps nobody waiting.
    pub(crate) async fn json<T: Serialize>(
        self,
        status: StatusCode,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Response, Fault> {
        let write = move || serde_json::to_vec(&make());
        let written = if self.permit.is_none() {
            write()
        } else {
            let writing = tokio::task::spawn_blocking(write);
            writing
                .await
                .map_err(|_| Fault::internal("a fault of the daemon; its log says more"))?
        };
        let text = written.map_err(|error| Fault::internal(error.to_string()))?;
        Ok((status, self.bytes(text, "application/json")).into_response())
    }

    /// An answer that holds its room until it has been read.
    pub(crate) fn bytes(self, bytes: Vec<u8>, kind: &'static str) -> Response {
        let mut room = self;
        room.shrink_to(bytes.len());
        let body = Body::new(PiecesBody {
            rest: Bytes::from(bytes),
            _room: room,
        });
        let mut response = body.into_response();
        let kind = HeaderValue::from_static(kind);
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }

    fn shrink_to(&mut self, bytes: usize) {
        if let Some(permit) = &mut self.permit
            && let Some(spare) = permit.num_permits().checked_sub(bytes / 1024 + 1)
        {
            drop(permit.split(spare));
        }
    }
}

/// Goes out in pieces, so that what has not been sent is still here.
#[derive(Debug)]
struct PiecesBody {
    rest: Bytes,
    _room: AnswerRoom,
}

impl hyper::body::Body for PiecesBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let size = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(size);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.rest.len()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn large_answers_wait_until_others_have_been_read() {
        let answers = Answers::new(units::Bytes::new(1 << 20), Duration::from_millis(50));
        let first = answers.room_now(500 << 10).unwrap();
        assert!(answers.room_now(500 << 10).is_none());
        assert!(answers.room_now(SMALL).is_some());
        let refused = answers.room(500 << 10).await.unwrap_err();
        assert_eq!(refused.code, Refusal::AnswersFull.code());
        // The text is half of what was asked for: the rest is for others.
        let answer = first.bytes(vec![b'x'; 400 << 10], "text/plain");
        assert!(answers.room_now(300 << 10).is_some());
        assert!(answers.room_now(400 << 10).is_none());
        drop(answer);
        assert!(answers.room_now(400 << 10).is_some());
        // Larger than everything: alone, but not never.
        assert!(answers.room_now(1 << 30).is_some());
    }
}
