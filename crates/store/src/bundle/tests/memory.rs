//! A store in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::PathBuf;

use crate::bundle::{Source, Target};
use crate::database::{KeptOutput, NewRun};
use crate::error::StoreError;
use crate::id::RunId;
use crate::model::{Digest, StoredRun};

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Memory {
    pub(super) runs: BTreeMap<RunId, (StoredRun, KeptOutput)>,
    pub(super) objects: BTreeMap<Digest, Vec<u8>>,
    /// Of these, reading fails half way.
    pub(super) unreadable: BTreeSet<Digest>,
    pub(super) refuses_to_record: bool,
}

impl Memory {
    pub(super) fn keep(&mut self, contents: &[u8]) -> Digest {
        let digest = Digest::of(contents);
        self.objects.insert(digest, contents.to_vec());
        digest
    }

    pub(super) fn ids(&self) -> Vec<RunId> {
        self.runs.keys().copied().collect()
    }
}

fn io(kind: io::ErrorKind) -> StoreError {
    StoreError::Io {
        what: "read the object",
        path: PathBuf::from("/home/somebody/objects"),
        source: kind.into(),
    }
}

struct Fails;

impl Read for Fails {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

impl Source for Memory {
    fn run(&self, id: RunId) -> Result<StoredRun, StoreError> {
        let found = self.runs.get(&id).map(|(run, _)| run.clone());
        found.ok_or_else(|| StoreError::NoSuchRun {
            asked: id.to_string(),
        })
    }

    fn output(&self, id: RunId) -> Result<KeptOutput, StoreError> {
        let found = self.runs.get(&id).map(|(_, output)| output.clone());
        found.ok_or_else(|| StoreError::NoSuchRun {
            asked: id.to_string(),
        })
    }

    fn open(&self, digest: &Digest) -> Result<Box<dyn Read + '_>, StoreError> {
        let contents = self.objects.get(digest);
        let contents = contents.ok_or_else(|| io(io::ErrorKind::NotFound))?;
        Ok(if self.unreadable.contains(digest) {
            Box::new(contents.chain(Fails))
        } else {
            Box::new(contents.as_slice())
        })
    }
}

impl Target for Memory {
    fn existing(&self, id: RunId) -> Result<Option<(StoredRun, KeptOutput)>, StoreError> {
        Ok(self.runs.get(&id).cloned())
    }

    fn contains(&self, digest: &Digest) -> Result<bool, StoreError> {
        Ok(self.objects.contains_key(digest))
    }

    fn put(
        &mut self,
        digest: &Digest,
        bytes: u64,
        contents: &mut dyn Read,
    ) -> Result<(), StoreError> {
        let mut read = Vec::new();
        contents
            .read_to_end(&mut read)
            .map_err(StoreError::io("keep the object", "objects"))?;
        assert_eq!(u64::try_from(read.len()).ok(), Some(bytes));
        assert_eq!(self.keep(&read), *digest);
        Ok(())
    }

    fn record(&mut self, runs: &[NewRun]) -> Result<(), StoreError> {
        if self.refuses_to_record {
            return Err(io(io::ErrorKind::StorageFull));
        }
        for new in runs {
            let run = StoredRun {
                opening: new.opening.clone(),
                status: new.outcome.status(),
                outcome: new.outcome.clone(),
                log: new.log,
            };
            let id = run.opening.run_id;
            self.runs.insert(id, (run, new.output.clone()));
        }
        Ok(())
    }
}
