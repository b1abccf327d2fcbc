//! Where contents are taken from the object store. The only place of the verbs that touches it.

use std::path::{Path, PathBuf};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_store::History;
use cofferdam_store::log::Chunk;
use cofferdam_store::model::{Digest, StoredRun};

use crate::failure::Failure;

/// The contents with this digest: `Objects::open(history.dir()).get(digest)`, once the object store is there.
pub(crate) fn contents(history: &History, digest: &Digest) -> Result<Vec<u8>, Failure> {
    let _ = (history, digest);
    Err(not_connected())
}

/// The directory that was made: `collect::view::write_view(run, chunks, &Objects::open(history.dir()), into)`, once the object store is there.
pub(crate) fn write_view(
    history: &History,
    run: &StoredRun,
    chunks: &[Chunk],
    into: &Path,
) -> Result<PathBuf, Failure> {
    let _ = (history, run, chunks, into);
    Err(not_connected())
}

fn not_connected() -> Failure {
    let message = "this build keeps no contents: the object store is not connected";
    Failure::new(ErrorCode::Internal, message)
}
