//! The sandboxes and interpreters that a daemon keeps waiting.

use std::sync::Arc;

use cofferdam_engine::host::Host;
use cofferdam_engine::interpreter::Interpreter;
use cofferdam_engine::pool::{Pool, PoolBounds};
use cofferdam_store::DataDir;

use crate::config::{Copies, RunBounds};

/// `None` where nothing is to wait, or nothing can.
pub(super) fn pool(
    bounds: &RunBounds,
    host: &Arc<Host>,
    dir: &DataDir,
    interpreters: Vec<Interpreter>,
) -> Option<Arc<Pool>> {
    let at_once = bounds.at_once.unwrap_or(host.cpus.len());
    let mut size = PoolBounds::of_runs(at_once);
    size.most = bounds.pool.unwrap_or(size.most);
    if size.most == 0 {
        return None;
    }
    let interpreters = match bounds.copies {
        Copies::Used => interpreters,
        Copies::Never => Vec::new(),
    };
    Pool::start(Arc::clone(host), dir.clone(), size, interpreters).map(Arc::new)
}
