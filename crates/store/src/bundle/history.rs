//! The history of a data directory as the source of an export and the target of an import.

use std::io::Read;

use crate::database::{History, KeptOutput, NewRun};
use crate::error::StoreError;
use crate::id::RunId;
use crate::model::{Digest, Outcome, StoredRun};
use crate::objects::{Objects, PutOutcome};

use super::sides::{Source, Target};

#[derive(Debug)]
pub struct HistorySource<'a> {
    history: &'a History,
    objects: Objects,
}

#[derive(Debug)]
pub struct HistoryTarget<'a> {
    history: &'a mut History,
    objects: Objects,
}

impl<'a> HistorySource<'a> {
    pub fn new(history: &'a History) -> Self {
        let objects = Objects::open(history.dir());
        Self { history, objects }
    }
}

impl<'a> HistoryTarget<'a> {
    pub fn new(history: &'a mut History) -> Self {
        let objects = Objects::open(history.dir());
        Self { history, objects }
    }
}

impl Source for HistorySource<'_> {
    fn run(&self, id: RunId) -> Result<StoredRun, StoreError> {
        self.history.get(id)
    }

    fn output(&self, id: RunId) -> Result<KeptOutput, StoreError> {
        self.history.kept_output(id)
    }

    fn open(&self, digest: &Digest) -> Result<Box<dyn Read + '_>, StoreError> {
        Ok(Box::new(self.objects.reader(digest)?))
    }
}

impl Target for HistoryTarget<'_> {
    fn existing(&self, id: RunId) -> Result<Option<(StoredRun, KeptOutput)>, StoreError> {
        let run = match self.history.get(id) {
            Err(StoreError::NoSuchRun { .. }) => return Ok(None),
            found => found?,
        };
        let output = match run.outcome {
            // Its output is still in its journal. It differs from any run that has ended, whatever it wrote.
            Outcome::Running => KeptOutput::Inline(Vec::new()),
            Outcome::Ended(_) | Outcome::Interrupted { .. } => self.history.kept_output(id)?,
        };
        Ok(Some((run, output)))
    }

    fn contains(&self, digest: &Digest) -> Result<bool, StoreError> {
        Ok(self.objects.contains(digest))
    }

    fn put(
        &mut self,
        digest: &Digest,
        bytes: u64,
        contents: &mut dyn Read,
    ) -> Result<(), StoreError> {
        match self.objects.put_reader(contents, bytes)? {
            PutOutcome::Stored(stored) if stored.digest == *digest => Ok(()),
            PutOutcome::Stored(_) | PutOutcome::TooLarge => Err(StoreError::BundleRefused {
                why: format!("the contents of {digest} changed while they were read"),
            }),
        }
    }

    fn record(&mut self, runs: &[NewRun]) -> Result<(), StoreError> {
        self.history.record(runs)
    }
}
