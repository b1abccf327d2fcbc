//! Where contents are taken from the object store. The only place of the verbs that touches it.

use std::path::{Path, PathBuf};

use cofferdam_store::collect::view;
use cofferdam_store::log::Chunk;
use cofferdam_store::model::{Digest, StoredRun};
use cofferdam_store::objects::Objects;
use cofferdam_store::{History, StoreError};

use crate::failure::Failure;

/// The contents with this digest.
pub(crate) fn contents(history: &History, digest: &Digest) -> Result<Vec<u8>, Failure> {
    Ok(Objects::open(history.dir()).get(digest)?)
}

/// The directory that was made.
pub(crate) fn write_view(
    history: &History,
    run: &StoredRun,
    chunks: &[Chunk],
    into: &Path,
) -> Result<PathBuf, StoreError> {
    let objects = Objects::open(history.dir());
    view::write_view(run, chunks, &objects, into)
}
