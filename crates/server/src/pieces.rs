//! Files as answers, read a piece at a time. A reader that is slow holds a file and one piece, and no thread; and only so many pieces are read at once.

use std::io::Read;

use axum::body::{Body, Bytes};
use tokio::sync::{Semaphore, mpsc};

use crate::events::ChannelBody;

const PIECE: usize = 64 << 10;
/// Threads that read at once, of all that may block.
const READING: usize = 16;
static READERS: Semaphore = Semaphore::const_new(READING);

/// The contents of `reader`. `held` is kept until all has been sent, or nobody wants it any more.
pub(crate) fn body<R, H>(reader: R, held: H) -> Body
where
    R: Read + Send + 'static,
    H: Send + 'static,
{
    let (to, receiver) = mpsc::channel::<Bytes>(1);
    tokio::spawn(async move {
        send(reader, &to).await;
        // It may be a directory that has to be removed.
        tokio::task::spawn_blocking(move || drop(held));
    });
    Body::new(ChannelBody::new(receiver))
}

async fn send<R: Read + Send + 'static>(mut reader: R, to: &mpsc::Sender<Bytes>) {
    // Before reading: a piece is only read for somebody who has taken the one before.
    while let Ok(place) = to.reserve().await {
        let Ok(_turn) = READERS.acquire().await else {
            return;
        };
        let reading = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; PIECE];
            let got = reader.read(&mut piece);
            (reader, piece, got)
        });
        let Ok((back, mut piece, got)) = reading.await else {
            return;
        };
        reader = back;
        match got {
            Ok(got @ 1..) => {
                piece.truncate(got);
                place.send(Bytes::from(piece));
            }
            Ok(_) => return,
            // The length was said: whoever reads notices that the end is missing.
            Err(error) => {
                tracing::warn!(%error, "a file could not be read to its end");
                return;
            }
        }
    }
}
