//! The object store, with nothing taken on trust and nothing waited for without end: whoever may answer may write there, so what is said about an object may be no description, may promise parts that never come, or may point to itself.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use async_nats::jetstream::object_store::ObjectInfo;
use async_nats::jetstream::stream::{DirectGetError, DirectGetErrorKind, Stream};
use data_encoding::BASE64URL;
use tokio::io::{AsyncRead, ReadBuf};

use crate::connect::Fleet;
use crate::error::FleetError;
use crate::names;
use crate::store;

const GETTING: &str = "cannot get a large document";
const STORING: &str = "cannot store a large document";
/// Clients write pieces of 64 KiB and more. Each is asked for by itself, so that many small ones would keep us for hours.
const LEAST_PIECE: usize = 8 << 10;

impl Fleet {
    /// What is said about an object that is there.
    pub(crate) async fn described(&self, name: &str) -> Result<Option<ObjectInfo>, FleetError> {
        let stream = self.object_stream().await?;
        let subject = format!(
            "$O.{}.M.{}",
            names::OBJECTS,
            BASE64URL.encode(name.as_bytes())
        );
        let asked = || stream.direct_get_last_for_subject(subject.as_str());
        let Some(message) = found(store::asked(GETTING, asked).await?)? else {
            return Ok(None);
        };
        let info: ObjectInfo = store::read(&message.payload, || format!("object {name}"))?;
        let is_link = info
            .options
            .as_ref()
            .is_some_and(|more| more.link.is_some());
        // It becomes a part of subjects, of what is removed too.
        let is_name = info.nuid.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if info.deleted {
            return Ok(None);
        }
        match is_link || !is_name || info.nuid.is_empty() {
            true => Err(damaged(name, "it says that its contents are elsewhere")),
            false => Ok(Some(info)),
        }
    }

    /// Its contents, piece by piece.
    pub(crate) async fn contents(&self, name: &str, largest: usize) -> Result<Vec<u8>, FleetError> {
        let Some(info) = self.described(name).await? else {
            return Err(damaged(name, "it is not there"));
        };
        if info.size > largest {
            return Err(damaged(name, format!("it has more than {largest} bytes")));
        }
        let stream = self.object_stream().await?;
        let subject = format!("$O.{}.C.{}", names::OBJECTS, info.nuid);
        let most = info.size / LEAST_PIECE + 16;
        let mut bytes = Vec::new();
        let mut from = 1;
        for _ in 0..most {
            if bytes.len() >= info.size {
                break;
            }
            let asked = || stream.direct_get_next_for_subject(subject.as_str(), Some(from));
            let Some(piece) = found(store::asked(GETTING, asked).await?)? else {
                break;
            };
            from = piece.sequence.saturating_add(1);
            bytes.extend_from_slice(&piece.payload);
        }
        match bytes.len() == info.size {
            true => Ok(bytes),
            false => Err(damaged(
                name,
                format!(
                    "it is said to have {} bytes, and {} came",
                    info.size,
                    bytes.len()
                ),
            )),
        }
    }

    /// Writes an object. It may take as long as something moves.
    pub(crate) async fn keep(&self, name: &str, bytes: &[u8]) -> Result<(), FleetError> {
        let taken = AtomicUsize::new(0);
        let mut source = Source {
            rest: bytes,
            taken: &taken,
        };
        let mut put = pin!(self.objects.put(name, &mut source));
        loop {
            let before = taken.load(Ordering::Relaxed);
            match tokio::time::timeout(store::ANSWER, &mut put).await {
                Ok(put) => return put.map(|_| ()).map_err(FleetError::talk(STORING)),
                Err(_) if taken.load(Ordering::Relaxed) > before => {}
                Err(_) => return Err(FleetError::talk(STORING)("the server does not answer")),
            }
        }
    }

    /// Removes an object that is there.
    pub(crate) async fn discard(&self, name: &str) -> Result<(), FleetError> {
        let trouble = "cannot remove a large document";
        match self.described(name).await {
            Ok(Some(_)) => {}
            // What has no description has no contents that we could find.
            Ok(None) | Err(FleetError::Damaged { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
        let removed = store::within(trouble, self.objects.delete(name)).await?;
        removed.map_err(FleetError::talk(trouble))
    }

    async fn object_stream(&self) -> Result<Stream<()>, FleetError> {
        let name = format!("OBJ_{}", names::OBJECTS);
        let stream = self.context.get_stream_no_info(name).await;
        stream.map_err(FleetError::talk(GETTING))
    }
}

/// A server that has no such message is not one that does not answer.
fn found<T>(answer: Result<T, DirectGetError>) -> Result<Option<T>, FleetError> {
    match answer {
        Ok(message) => Ok(Some(message)),
        Err(error) => match error.kind() {
            DirectGetErrorKind::NotFound | DirectGetErrorKind::InvalidSubject => Ok(None),
            DirectGetErrorKind::TimedOut
            | DirectGetErrorKind::Request
            | DirectGetErrorKind::ErrorResponse(..)
            | DirectGetErrorKind::Other => Err(FleetError::talk(GETTING)(error)),
        },
    }
}

fn damaged(name: &str, why: impl Into<String>) -> FleetError {
    FleetError::Damaged {
        what: format!("object {name}"),
        why: why.into(),
    }
}

/// Bytes that tell how many of them were taken.
struct Source<'a> {
    rest: &'a [u8],
    taken: &'a AtomicUsize,
}

impl AsyncRead for Source<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let (now, rest) = self.rest.split_at(buffer.remaining().min(self.rest.len()));
        buffer.put_slice(now);
        self.taken.fetch_add(now.len(), Ordering::Relaxed);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}
