//! Waiting for descriptors of the caller's: for room in a reader, for the wish to end.

use std::future::pending;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The caller's wish to end the run.
#[derive(Debug)]
pub(crate) struct Cancel(Option<AsyncFd<OwnedFd>>);

impl Cancel {
    pub(crate) fn new(cancel: Option<BorrowedFd<'_>>) -> Self {
        Self(cancel.and_then(|cancel| watched(cancel, Interest::READABLE)))
    }

    /// Comes back when the caller gives up, at once if that has happened.
    pub(crate) async fn wished(&self) {
        match &self.0 {
            Some(cancel) => match cancel.readable().await {
                // Left as it is: whoever asks again is told again.
                Ok(_ready) => {}
                Err(_) => pending().await,
            },
            None => pending().await,
        }
    }
}

/// A copy of a reader, to wait for its room. One that cannot be waited for is tried again soon.
#[derive(Debug)]
pub(crate) struct Reader(Option<AsyncFd<OwnedFd>>);

impl Reader {
    pub(crate) fn new(reader: BorrowedFd<'_>) -> Self {
        Self(watched(reader, Interest::WRITABLE))
    }

    pub(crate) async fn has_room(&self) {
        const SOON: Duration = Duration::from_millis(5);
        match &self.0 {
            Some(reader) => drop(reader.writable().await),
            None => tokio::time::sleep(SOON).await,
        }
    }
}

#[expect(
    deprecated,
    reason = "what replaces it is unsafe, for the sake of descriptors that are not owned; this one is"
)]
fn watched(fd: BorrowedFd<'_>, interest: Interest) -> Option<AsyncFd<OwnedFd>> {
    let copy = fd.try_clone_to_owned().ok()?;
    AsyncFd::with_interest(copy, interest).ok()
}
