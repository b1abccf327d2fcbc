//! What a bundle needs of a store: a source to export from, a target to import into. Opens and decides nothing itself.

use std::io::Read;

use crate::database::{KeptOutput, NewRun};
use crate::error::StoreError;
use crate::id::RunId;
use crate::model::{Digest, StoredRun};

/// Where exported runs come from.
pub trait Source {
    fn run(&self, id: RunId) -> Result<StoredRun, StoreError>;

    fn output(&self, id: RunId) -> Result<KeptOutput, StoreError>;

    /// Contents by digest. They are checked again while they are read: a damaged object may come, and is noticed.
    fn open(&self, digest: &Digest) -> Result<Box<dyn Read + '_>, StoreError>;
}

/// Where imported runs go.
pub trait Target {
    /// The run with this id, where there is one, with its output as it is kept.
    fn existing(&self, id: RunId) -> Result<Option<(StoredRun, KeptOutput)>, StoreError>;

    fn contains(&self, digest: &Digest) -> Result<bool, StoreError>;

    /// Keeps contents that nothing refers to yet. The reader fails at its end when they are not what `digest` says; nothing may be kept then.
    fn put(
        &mut self,
        digest: &Digest,
        bytes: u64,
        contents: &mut dyn Read,
    ) -> Result<(), StoreError>;

    /// All or none.
    fn record(&mut self, runs: &[NewRun]) -> Result<(), StoreError>;
}
