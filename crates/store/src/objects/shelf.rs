//! The directory of objects: `objects/ab/cdef…`, one file for each contents, named by their SHA-256.
//!
//! An object appears whole or not at all: it is written to `objects/new/` and renamed. What a crash leaves there, [`Objects::sweep_unfinished`] removes. Nothing is synced to the
//! disk while a run goes on: that would cost it more than the run, so a power cut can take the newest objects away or leave them torn. A torn one shows by its size or its checksum and
//! is never delivered; where it shows by its size, it is replaced when the same contents are stored again.
//!
//! Threads and processes need no lock. Whoever stores contents that are there already sets the file's time to now, and [`Objects::remove_unused`] spares what is fresh.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use super::format::{HEAD, Head};
use super::read::{self, ObjectReader};
use super::stage::{Staged, Staging};
use super::total;
use crate::data_dir::DataDir;
use crate::error::StoreError;
use crate::model::Digest;

/// The contents that one data directory holds. Nothing is made until something is put.
#[derive(Debug, Clone)]
pub struct Objects {
    dir: PathBuf,
}

/// Contents that are in the store now, whether or not they were before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    pub digest: Digest,
    /// Of the contents.
    pub bytes: u64,
    /// Of the file that holds them.
    pub stored_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    Stored(Stored),
    /// There was more than allowed. Nothing is left of it.
    TooLarge,
}

/// One file of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredObject {
    pub digest: Digest,
    pub stored_bytes: u64,
    /// When it was last stored: a second time counts.
    pub modified: SystemTime,
}

/// Where contents lie before they have a name.
const NEW: &str = "new";

impl Objects {
    pub fn open(dir: &DataDir) -> Self {
        Self { dir: dir.objects() }
    }

    pub fn put(&self, contents: &[u8]) -> Result<Stored, StoreError> {
        let digest = Digest::of(contents);
        match self.known(&digest)? {
            Some(stored) => Ok(stored),
            None => Staged::of(self, digest, Cow::Borrowed(contents))?.commit(),
        }
    }

    /// Reads to the end and keeps it, unless there is more than `at_most`.
    pub fn put_reader(&self, from: impl Read, at_most: u64) -> Result<PutOutcome, StoreError> {
        match self.stage(from, at_most)? {
            Staging::Ready(staged) => staged.commit().map(PutOutcome::Stored),
            Staging::TooLarge => Ok(PutOutcome::TooLarge),
        }
    }

    /// Reads to the end without keeping it yet, for a caller who knows only then whether it may be kept.
    pub fn stage(&self, from: impl Read, at_most: u64) -> Result<Staging<'_>, StoreError> {
        Staged::read(self, from, at_most)
    }

    /// All of the contents, checked. Those that are not there are an [`StoreError::Io`] with `NotFound`.
    pub fn get(&self, digest: &Digest) -> Result<Vec<u8>, StoreError> {
        read::whole(&self.path(digest), digest)
    }

    /// The contents as a stream. See [`ObjectReader`] for when they are checked.
    pub fn reader(&self, digest: &Digest) -> Result<ObjectReader, StoreError> {
        ObjectReader::open(self.path(digest), digest)
    }

    /// Returns when these contents are on the disk, under their names.
    pub(crate) fn sync(&self, digests: &[Digest]) -> Result<(), StoreError> {
        let mut shelves = BTreeSet::new();
        for digest in digests {
            let path = self.path(digest);
            let synced = File::open(&path).and_then(|file| file.sync_data());
            synced.map_err(StoreError::io("write", &path))?;
            shelves.extend(path.parent().map(Path::to_owned));
        }
        for shelf in shelves {
            let synced = File::open(&shelf).and_then(|dir| dir.sync_all());
            synced.map_err(StoreError::io("write", &shelf))?;
        }
        Ok(())
    }

    pub fn contains(&self, digest: &Digest) -> bool {
        self.path(digest).is_file()
    }

    /// Takes contents away, whoever refers to them. Answers what that freed; `None` when they were not there.
    pub fn remove(&self, digest: &Digest) -> Result<Option<u64>, StoreError> {
        let path = self.path(digest);
        let freed = fs::symlink_metadata(&path).and_then(|found| {
            fs::remove_file(&path)?;
            Ok(found.len())
        });
        let freed = absent_is_none(freed).map_err(StoreError::io("remove", &path))?;
        if let Some(bytes) = freed {
            total::subtract_best_effort(&self.dir, bytes);
        }
        Ok(freed)
    }

    /// Takes contents away that nobody refers to, unless somebody has stored them since `idle_since`. Answers what that freed.
    ///
    /// They are set aside before they are looked at. Whoever stores them at that moment either finds them still in place, and then their fresh time is seen here and they are
    /// put back, or does not find them and writes them anew. For that moment a reader does not find them.
    pub fn remove_unused(
        &self,
        digest: &Digest,
        idle_since: SystemTime,
    ) -> Result<Option<u64>, StoreError> {
        let path = self.path(digest);
        let failed = || StoreError::io("remove", &path);
        let found = absent_is_none(fs::symlink_metadata(&path)).map_err(failed())?;
        if found.is_none_or(|found| is_fresh(&found, idle_since)) {
            return Ok(None);
        }
        let aside = self.new_file()?.into_temp_path();
        if absent_is_none(fs::rename(&path, &aside))
            .map_err(failed())?
            .is_none()
        {
            return Ok(None);
        }
        let found = fs::symlink_metadata(&aside).map_err(failed())?;
        if is_fresh(&found, idle_since) {
            aside
                .persist(&path)
                .map_err(|e| StoreError::io("put back", &path)(e.error))?;
            return Ok(None);
        }
        total::subtract_best_effort(&self.dir, found.len());
        aside.close().map_err(failed())?;
        Ok(Some(found.len()))
    }

    /// Removes what writers that died have left. Those that live have written since `idle_since`.
    pub fn sweep_unfinished(&self, idle_since: SystemTime) -> Result<u64, StoreError> {
        let mut swept = 0;
        let dir = self.dir.join(NEW);
        for entry in listed(&dir)? {
            let path = entry.path();
            let failed = || StoreError::io("remove", &path);
            let found = absent_is_none(entry.metadata()).map_err(failed())?;
            if found.is_none_or(|found| is_fresh(&found, idle_since)) {
                continue;
            }
            if absent_is_none(fs::remove_file(&path))
                .map_err(failed())?
                .is_some()
            {
                swept += 1;
            }
        }
        Ok(swept)
    }

    /// Every object, in no promised order. Files that are not objects are passed over.
    pub fn iter(&self) -> impl Iterator<Item = Result<StoredObject, StoreError>> + '_ {
        (0..=u8::MAX).flat_map(|first| match self.shelf(first) {
            Ok(objects) => objects.into_iter().map(Ok).collect::<Vec<_>>(),
            Err(error) => vec![Err(error)],
        })
    }

    /// What all files take together, by looking at each.
    pub fn stored_bytes(&self) -> Result<u64, StoreError> {
        self.iter().try_fold(0_u64, |sum, object| {
            Ok(sum.saturating_add(object?.stored_bytes))
        })
    }

    /// What all files take together, from a running count: near enough for a limit, and no slower when there are many.
    pub fn about_stored_bytes(&self) -> Result<u64, StoreError> {
        total::read(self)
    }

    /// Counts anew for [`Objects::about_stored_bytes`]. For whoever has gone through all objects anyway.
    pub fn recount(&self) -> Result<u64, StoreError> {
        total::recount(self)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn path(&self, digest: &Digest) -> PathBuf {
        let name = digest.to_string();
        let (first, rest) = name.split_at(2);
        self.dir.join(first).join(rest)
    }

    /// Whether the contents are there and look whole. Then their time is now: a sweep that goes on meanwhile spares them.
    pub(super) fn known(&self, digest: &Digest) -> Result<Option<Stored>, StoreError> {
        let path = self.path(digest);
        let head = File::open(&path).and_then(|mut file| {
            let mut head = [0; HEAD];
            let size = file.metadata()?.len();
            let whole = file.read_exact(&mut head).is_ok();
            Ok(whole.then(|| Head::read(&head, size)))
        });
        let head = absent_is_none(head).map_err(StoreError::io("read", &path))?;
        let Some(Some(Ok(head))) = head else {
            return Ok(None);
        };
        let now = Timestamps {
            last_access: moment(UTIME_OMIT),
            last_modification: moment(UTIME_NOW),
        };
        match rustix::fs::utimensat(CWD, &path, &now, AtFlags::SYMLINK_NOFOLLOW) {
            // A sweep may have set it aside before its time was new. If it is still in place after that, or again, whoever sets it aside from now on sees the new time.
            Ok(()) if !path.is_file() => Ok(None),
            Ok(()) => Ok(head.file_bytes().map(|stored_bytes| Stored {
                digest: *digest,
                bytes: head.bytes,
                stored_bytes,
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(StoreError::io("refresh", path)(error.into())),
        }
    }

    /// A file that has no name among the objects yet. It goes away with its handle.
    pub(super) fn new_file(&self) -> Result<NamedTempFile, StoreError> {
        let dir = self.dir.join(NEW);
        let made = NamedTempFile::new_in(&dir).or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(error);
            }
            create_private(&dir)?;
            NamedTempFile::new_in(&dir)
        });
        made.map_err(StoreError::io("write to", dir))
    }

    /// Gives a whole file its name.
    pub(super) fn shelve(&self, file: NamedTempFile, stored: Stored) -> Result<Stored, StoreError> {
        let path = self.path(&stored.digest);
        let placed = match (file.persist(&path), path.parent()) {
            (Err(refused), Some(parent)) if refused.error.kind() == io::ErrorKind::NotFound => {
                create_private(parent).map_err(StoreError::io("make the directory", parent))?;
                refused.file.persist(&path)
            }
            (placed, _) => placed,
        };
        placed.map_err(|refused| StoreError::io("write", &path)(refused.error))?;
        total::add_best_effort(&self.dir, stored.stored_bytes);
        Ok(stored)
    }

    fn shelf(&self, first: u8) -> Result<Vec<StoredObject>, StoreError> {
        let first = format!("{first:02x}");
        let dir = self.dir.join(&first);
        let mut objects = Vec::new();
        for entry in listed(&dir)? {
            let name = entry.file_name();
            let digest = name
                .to_str()
                .and_then(|rest| format!("{first}{rest}").parse::<Digest>().ok());
            let Some(digest) = digest else {
                continue;
            };
            let found = entry.metadata().and_then(|found| {
                let modified = found.modified()?;
                Ok((found, modified))
            });
            let found = absent_is_none(found).map_err(StoreError::io("look at", entry.path()))?;
            if let Some((found, modified)) = found.filter(|(found, _)| found.is_file()) {
                objects.push(StoredObject {
                    digest,
                    stored_bytes: found.len(),
                    modified,
                });
            }
        }
        Ok(objects)
    }
}

pub(super) fn create_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn listed(dir: &Path) -> Result<Vec<fs::DirEntry>, StoreError> {
    let entries = fs::read_dir(dir).and_then(Iterator::collect);
    let entries: Option<Vec<fs::DirEntry>> =
        absent_is_none(entries).map_err(StoreError::io("list", dir))?;
    Ok(entries.unwrap_or_default())
}

/// What is not there, or no longer, is no failure for whoever looks, sweeps or removes.
fn absent_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file whose time cannot be told is fresh: it stays.
fn is_fresh(found: &fs::Metadata, idle_since: SystemTime) -> bool {
    !found.modified().is_ok_and(|modified| modified < idle_since)
}

fn moment(nanoseconds: i64) -> Timespec {
    Timespec {
        tv_sec: 0,
        tv_nsec: nanoseconds,
    }
}

#[cfg(test)]
#[path = "shelf_tests.rs"]
mod tests;
