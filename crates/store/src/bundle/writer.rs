//! The archive while it is written: one file after the other, each with its digest, and a list of what could not be had.

use std::collections::BTreeMap;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use sha2::Digest as _;
use zip::result::ZipError;
use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, DateTime};

use crate::error::StoreError;
use crate::id::RunId;
use crate::model::Digest;

use super::check::each_piece;
use super::format::{EntryName, FileFacts, Limits, Missing, Progress};
use super::output::LogCheck;
use super::sides::Source;

/// Contents up to this size are read once and held while they are written; longer ones are read twice.
const HELD: usize = 8 << 20;
/// Whether compressing helps is decided by this much of the beginning.
const SAMPLE: usize = 64 << 10;
/// Compressed contents can be a little longer than they were.
const NEEDS_ZIP64: u64 = 0xf000_0000;
const LEVEL: i64 = 6;

pub(super) struct Writer<'a, W: Write + Seek> {
    zip: ZipWriter<QuietAfterFailure<W>>,
    /// What the bundle will be called, for messages.
    to: PathBuf,
    limits: Limits,
    files: BTreeMap<EntryName, FileFacts>,
    missing: Vec<Missing>,
    total: u64,
    /// Of that, what whoever reads it holds in memory.
    held: u64,
    progress: Progress,
    report: &'a mut dyn FnMut(Progress),
}

/// An object that is what its name says.
struct Sound {
    bytes: u64,
    /// All of it, or its beginning when it is long.
    held: Vec<u8>,
}

impl<'a, W: Write + Seek> Writer<'a, W> {
    pub(super) fn new(
        into: W,
        to: &Path,
        limits: &Limits,
        files: usize,
        report: &'a mut dyn FnMut(Progress),
    ) -> Self {
        Self {
            zip: ZipWriter::new(QuietAfterFailure::new(into)),
            to: to.to_owned(),
            limits: *limits,
            files: BTreeMap::new(),
            missing: Vec::new(),
            total: 0,
            held: 0,
            progress: Progress {
                of_files: u64::try_from(files).unwrap_or(u64::MAX),
                ..Progress::default()
            },
            report,
        }
    }

    /// What was written, for signing.
    pub(super) fn add_json(
        &mut self,
        name: EntryName,
        document: &impl Serialize,
    ) -> Result<Vec<u8>, StoreError> {
        let mut bytes =
            serde_json::to_vec_pretty(document).map_err(|error| self.failed(error.into()))?;
        bytes.push(b'\n');
        self.add(name, &bytes)?;
        Ok(bytes)
    }

    pub(super) fn add_output(&mut self, id: RunId, encoded: &[u8]) -> Result<(), StoreError> {
        let name = EntryName::Output(id);
        let mut log = LogCheck::default();
        log.feed(encoded);
        if log.is_whole() {
            self.add(name, encoded)
        } else {
            self.leave_out(name, Digest::of(encoded), "damaged in the history");
            Ok(())
        }
    }

    /// Contents of the store. What is missing or damaged there is noted, and the rest goes on.
    pub(super) fn add_object(
        &mut self,
        source: &dyn Source,
        name: EntryName,
        digest: Digest,
    ) -> Result<(), StoreError> {
        let sound = match sound(source, name, &digest) {
            Ok(sound) => sound,
            Err(why) => {
                self.leave_out(name, digest, why);
                return Ok(());
            }
        };
        let is_held = u64::try_from(sound.held.len()) == Ok(sound.bytes);
        if is_held {
            return self.add(name, &sound.held);
        }
        self.start(name, sound.bytes, &sound.held)?;
        let mut hash = sha2::Sha256::new();
        let mut from = source.open(&digest)?;
        let mut written = Ok(());
        let zip = &mut self.zip;
        let read = each_piece(&mut *from, |piece| {
            hash.update(piece);
            if written.is_ok() {
                written = zip.write_all(piece);
            }
        });
        written.map_err(|error| self.failed(error))?;
        read.map_err(|error| self.failed(error))?;
        if Digest(hash.finalize().into()) != digest {
            return Err(StoreError::Damaged {
                path: PathBuf::from(name.to_string()),
                why: "it was changed while it was exported; try again".to_owned(),
            });
        }
        self.done(name, digest, sound.bytes);
        Ok(())
    }

    /// The reason goes into the bundle: it names nothing of this machine.
    pub(super) fn leave_out(&mut self, path: EntryName, digest: Digest, why: &str) {
        self.missing.push(Missing {
            path,
            digest,
            why: why.to_owned(),
        });
        self.progress.files += 1;
        (self.report)(self.progress);
    }

    /// From what has been written so far.
    pub(super) fn manifest<T>(
        &mut self,
        make: impl FnOnce(BTreeMap<EntryName, FileFacts>, Vec<Missing>, u64) -> T,
    ) -> T {
        let files = std::mem::take(&mut self.files);
        let artifacts = files.iter().filter_map(|(name, facts)| match name {
            EntryName::Artifact(_) => Some(facts.bytes),
            _ => None,
        });
        let artifact_bytes = artifacts.sum();
        make(files, std::mem::take(&mut self.missing), artifact_bytes)
    }

    pub(super) fn finish(self) -> Result<(), StoreError> {
        let failed = |error| StoreError::io("write the bundle", &self.to)(error);
        let mut inner = self.zip.finish().map_err(into_io).map_err(failed)?;
        inner.flush().map_err(failed)
    }

    fn add(&mut self, name: EntryName, bytes: &[u8]) -> Result<(), StoreError> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.start(name, length, bytes)?;
        let written = self.zip.write_all(bytes);
        written.map_err(|error| self.failed(error))?;
        self.done(name, Digest::of(bytes), length);
        Ok(())
    }

    fn start(&mut self, name: EntryName, bytes: u64, beginning: &[u8]) -> Result<(), StoreError> {
        self.check_limits(name, bytes)?;
        let sample = beginning.get(..SAMPLE).unwrap_or(beginning);
        let method = if compressing_helps(sample) {
            CompressionMethod::Deflated
        } else {
            CompressionMethod::Stored
        };
        let options = SimpleFileOptions::default()
            .compression_method(method)
            .compression_level((method == CompressionMethod::Deflated).then_some(LEVEL))
            .last_modified_time(DateTime::DEFAULT)
            .unix_permissions(0o644)
            .large_file(bytes >= NEEDS_ZIP64);
        let started = self.zip.start_file(name, options);
        started.map_err(|error| self.failed(into_io(error)))
    }

    fn check_limits(&mut self, name: EntryName, bytes: u64) -> Result<(), StoreError> {
        self.total = self.total.saturating_add(bytes);
        if name.is_held(bytes) {
            self.held = self.held.saturating_add(bytes);
        }
        let entries = u64::try_from(self.files.len()).unwrap_or(u64::MAX);
        let most = self.limits.of(name);
        let why = if bytes > most {
            let fix = match name {
                EntryName::Artifact(_) => "export without artifacts",
                EntryName::Run(_) | EntryName::Output(_) => "leave this run out",
                EntryName::Provenance | EntryName::Manifest | EntryName::Signature => {
                    "export fewer runs"
                }
            };
            format!("`{name}` has {bytes} bytes, and a bundle takes at most {most}; {fix}")
        } else if self.held > self.limits.held_bytes {
            let most = self.limits.held_bytes;
            format!(
                "the runs and short outputs of a bundle take at most {most} bytes; export them in parts"
            )
        } else if self.total > self.limits.total_bytes {
            let most = self.limits.total_bytes;
            format!(
                "a bundle takes at most {most} bytes in all; export fewer runs, or without artifacts"
            )
        } else if entries.saturating_add(3) > self.limits.entries {
            let most = self.limits.entries;
            format!("a bundle takes at most {most} files; export fewer runs, or without artifacts")
        } else {
            return Ok(());
        };
        Err(StoreError::Invalid {
            field: "runs",
            value: self.to.display().to_string(),
            why,
        })
    }

    fn done(&mut self, name: EntryName, sha256: Digest, bytes: u64) {
        self.files.insert(name, FileFacts { sha256, bytes });
        self.progress.files += 1;
        self.progress.bytes = self.progress.bytes.saturating_add(bytes);
        (self.report)(self.progress);
    }

    fn failed(&self, error: io::Error) -> StoreError {
        StoreError::io("write the bundle", &self.to)(error)
    }
}

fn into_io(error: ZipError) -> io::Error {
    match error {
        ZipError::Io(error) => error,
        other => io::Error::other(other),
    }
}

/// Reads an object to its end: half of a damaged one would be in the bundle before it is noticed.
fn sound(source: &dyn Source, name: EntryName, digest: &Digest) -> Result<Sound, &'static str> {
    let mut hash = sha2::Sha256::new();
    let mut log = LogCheck::default();
    let mut bytes = 0_u64;
    let mut held = Vec::new();
    let mut from = source.open(digest).map_err(|error| reason(&error))?;
    let read = each_piece(&mut *from, |piece| {
        hash.update(piece);
        log.feed(piece);
        bytes = bytes.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        if held.len() < HELD {
            held.extend_from_slice(piece);
        }
    });
    read.map_err(|_| "cannot be read in the store")?;
    let is_broken_log = matches!(name, EntryName::Output(_)) && !log.is_whole();
    if Digest(hash.finalize().into()) != *digest || is_broken_log {
        return Err("damaged in the store");
    }
    Ok(Sound { bytes, held })
}

fn reason(error: &StoreError) -> &'static str {
    match error {
        StoreError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            "not in the store"
        }
        StoreError::Damaged { .. } => "damaged in the store",
        _ => "cannot be read in the store",
    }
}

/// At least a twentieth is saved.
fn compressing_helps(sample: &[u8]) -> bool {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(6));
    let compressed = encoder.write_all(sample).and_then(|()| encoder.finish());
    compressed.is_ok_and(|compressed| compressed.len() < sample.len() - sample.len() / 20)
}

/// After a failure, nothing more is written and nothing more fails: a [`ZipWriter`] that is dropped tries to finish, and complains on stderr when it cannot.
#[derive(Debug)]
struct QuietAfterFailure<W> {
    inner: W,
    failed: bool,
    at: u64,
}

impl<W> QuietAfterFailure<W> {
    fn new(inner: W) -> Self {
        Self {
            inner,
            failed: false,
            at: 0,
        }
    }

    fn note<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.failed = error.kind() != io::ErrorKind::Interrupted;
        }
        result
    }
}

impl<W: Write> Write for QuietAfterFailure<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = if self.failed {
            bytes.len()
        } else {
            let written = self.inner.write(bytes);
            self.note(written)?
        };
        self.at = self
            .at
            .saturating_add(u64::try_from(written).unwrap_or(u64::MAX));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.failed {
            return Ok(());
        }
        let flushed = self.inner.flush();
        self.note(flushed)
    }
}

impl<W: Seek> Seek for QuietAfterFailure<W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = if self.failed {
            match to {
                SeekFrom::Start(at) => at,
                SeekFrom::Current(by) | SeekFrom::End(by) => self.at.saturating_add_signed(by),
            }
        } else {
            let sought = self.inner.seek(to);
            self.note(sought)?
        };
        Ok(self.at)
    }
}
