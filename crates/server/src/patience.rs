//! Waiting for a place in a full queue, where an endpoint has patience; without it, a full queue is refused at once. Those who wait come in one after the other, in the order of their coming.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use crate::app::App;
use crate::auth::Caller;
use crate::runner::{Asked, KeptPlace};

/// Where those who wait stand; the first of them looks for a place.
#[derive(Debug, Default)]
pub(crate) struct Door(Mutex<()>);

const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// A place, if one comes free in time. `None` also where waiting would not help: then submitting says why.
pub(crate) async fn place(
    app: &std::sync::Arc<App>,
    caller: &Caller,
    patience: Duration,
) -> Option<KeptPlace> {
    if patience.is_zero() {
        return None;
    }
    let until = Instant::now() + patience;
    let _first = timeout_at(until, app.door.0.lock()).await.ok()?;
    loop {
        match app.runner.keep_place(caller) {
            Asked::Kept(place) => return Some(place),
            Asked::Refused => return None,
            Asked::Full if Instant::now() >= until => return None,
            Asked::Full => sleep(BETWEEN_LOOKS).await,
        }
    }
}
