//! The directories in which package managers keep what they fetched, made before a step that looks for them.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_project::Cache;

use crate::error::WorkError;

/// Readable inside, where whoever looks is somebody else.
pub(crate) fn prepare(place: &Path, caches: &[Cache]) -> Result<(), WorkError> {
    for cache in caches {
        let dir = place.join(cache.as_str());
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&dir);
        made.map_err(|error| {
            let what = format!("--cache-dir: cannot use `{}`", dir.display());
            WorkError::io(ErrorCode::InputUnreadable, &what, &error)
        })?;
    }
    Ok(())
}
