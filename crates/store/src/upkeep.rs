//! Keeping the history within its bounds without anybody asking: now and then, by whoever is there.

use std::fs::File;
use std::time::{Duration, SystemTime};

use cofferdam_contract::units::{Bytes, Cap};

use crate::database::{History, PruneMode, Retention};
use crate::error::StoreError;

const DAY: Duration = Duration::from_secs(86_400);
/// Looking takes longer the more there is; nothing grows much in an hour.
const BETWEEN: Duration = Duration::from_secs(3600);

impl Default for Retention {
    fn default() -> Self {
        Self {
            max_age: Cap::AtMost(DAY.saturating_mul(30)),
            max_age_of_failures: Cap::AtMost(DAY.saturating_mul(90)),
            max_runs: Cap::AtMost(1_000_000),
            max_bytes: Cap::AtMost(Bytes::new(2 << 30)),
        }
    }
}

/// Prunes, unless somebody has within the last hour.
pub fn prune_when_due(history: &mut History, retention: &Retention) -> Result<(), StoreError> {
    let path = history.dir().last_pruned();
    let last = std::fs::metadata(&path).and_then(|found| found.modified());
    let is_due = last.map_or(true, |last| {
        let age = SystemTime::now().duration_since(last);
        // A time in the future is a clock that was set back.
        age.map_or(true, |age| age >= BETWEEN)
    });
    if !is_due {
        return Ok(());
    }
    // Before the work: others who come meanwhile leave it to us.
    File::create(&path)
        .and_then(|file| file.set_modified(SystemTime::now()))
        .map_err(StoreError::io("write", &path))?;
    history.prune(retention, PruneMode::Remove).map(drop)
}
