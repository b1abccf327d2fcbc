//! How much of everything there may be. A program that asks for more waits, or is refused; nobody else notices.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::process::Resource;
use tokio::sync::Semaphore;

/// Connections of one run at once; the next waits in the kernel's queue.
const CONNECTIONS: usize = 128;
/// Queries over UDP that are answered in one go before others get a turn.
pub(crate) const QUERIES_IN_ONE_GO: usize = 64;
/// What must come before anything is known about a connection.
pub(crate) const HEAD_BYTES: usize = 16 * 1024;
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(10);
pub(crate) const LOOK_UP_TIME: Duration = Duration::from_secs(10);
pub(crate) const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Without a byte in either direction.
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(300);
/// The same after one side has said that it is done.
pub(crate) const HALF_OPEN_TIME: Duration = Duration::from_secs(60);
/// How long a refused client gets to say what it speaks, to be refused in its own words.
pub(crate) const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// In each direction of each connection.
pub(crate) const BUFFER: usize = 16 * 1024;
/// Names that were given an address.
pub(crate) const NAMES: usize = 4096;
pub(crate) const EVENTS: usize = 256;
/// Different things that were denied.
pub(crate) const DENIALS: usize = 32;
/// Look-ups at once.
pub(crate) const LOOK_UPS: usize = 4;

/// Connections of one run at once: no run takes more than half of what all may have.
pub(crate) fn of_run() -> usize {
    CONNECTIONS.min(all() / 2)
}

/// Connections of all runs of this process at once: each takes two descriptors, and all of them a quarter of what there may be.
pub(crate) fn of_process() -> Arc<Semaphore> {
    static SEATS: OnceLock<Arc<Semaphore>> = OnceLock::new();
    Arc::clone(SEATS.get_or_init(|| Arc::new(Semaphore::new(all()))))
}

fn all() -> usize {
    let files = rustix::process::getrlimit(Resource::Nofile).current;
    let files = usize::try_from(files.unwrap_or(1 << 16)).unwrap_or(1 << 16);
    (files / 8).clamp(16, 4096)
}
