//! Collecting: what is new or changed since a snapshot, in the order of its paths, as far as it fits and may be kept.
//!
//! A file with several names is kept under each. A program can link only what lies on the same mount, which is the workspace that it may read and copy anyway; a link gives it
//! no file that a copy would not, and what a secret looks like is looked for in either.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use cofferdam_contract::units::Bytes;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::beneath;
use super::choose::Choice;
use super::limits::{ArtifactLimits, Rules};
use super::media_type::media_type;
use super::names::escape;
use super::reason::Reason;
use super::snapshot::Snapshot;
use super::taste::{Taste, Verdict};
use super::walk::{self, BOUNDS, Bounds, Closed, Extent, Meta, Seen};
use crate::error::StoreError;
use crate::model::{Artifact, ArtifactKind, LeftOut};
use crate::objects::{Objects, Staging};

/// What was kept, and what was not, both by path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Collected {
    pub artifacts: Vec<Artifact>,
    /// The path `.` stands for the workspace as a whole.
    pub left_out: Vec<LeftOut>,
}

/// A list of what is left out is read by people and kept with the run: it ends here, and says how much more there is.
const MAX_LEFT_OUT: usize = 1_000;
/// Of the names of what is kept, and of those of what is left out: the program chose how long they are, and a record has an end.
const MOST_NAMES: Bytes = Bytes::new(2 << 20);

/// Keeps what is new or changed in the workspace since `before`, or everything where there is no before: the upper layer of an overlay holds only what the run made.
///
/// What cannot be read or stored is left out and said so. It fails only when the workspace itself cannot be listed.
pub fn collect(
    dir: BorrowedFd<'_>,
    before: Option<&Snapshot>,
    objects: &Objects,
    rules: &Rules<'_>,
) -> Result<Collected, StoreError> {
    collect_within(dir, before, objects, rules, BOUNDS)
}

pub(super) fn collect_within(
    dir: BorrowedFd<'_>,
    before: Option<&Snapshot>,
    objects: &Objects,
    rules: &Rules<'_>,
    bounds: Bounds,
) -> Result<Collected, StoreError> {
    let mut findings = Findings::default();
    let extent = walk::walk(dir, bounds, &mut |path, seen| {
        findings.judge(path, seen, before, bounds);
    })
    .map_err(|error| StoreError::io("list", "the workspace")(error.into()))?;
    if extent == Extent::Cut || before.is_some_and(Snapshot::is_cut) {
        let limit = bounds.entries;
        findings.leave_out(b".", Reason::TooManyEntries { limit });
    }
    findings.candidates.sort_by(|a, b| a.path.cmp(&b.path));
    let candidates = std::mem::take(&mut findings.candidates);
    let mut keeping = Keeping {
        top: dir,
        objects,
        rules,
        parent: None,
        stored: None,
        run_bytes: 0,
        name_bytes: 0,
        read_bytes: 0,
        opened: 0,
        refused: None,
        artifacts: Vec::new(),
    };
    for candidate in candidates {
        match keeping.keep(&candidate) {
            Ok(artifact) => keeping.artifacts.push(artifact),
            Err(reason) => findings.leave_out(&candidate.path, reason),
        }
    }
    Ok(Collected {
        artifacts: keeping.artifacts,
        left_out: told(findings.left_out),
    })
}

#[derive(Debug, Default)]
struct Findings {
    candidates: Vec<Candidate>,
    left_out: Vec<(Vec<u8>, Reason)>,
}

#[derive(Debug)]
struct Candidate {
    path: Vec<u8>,
    kind: ArtifactKind,
    meta: Meta,
}

impl Findings {
    fn judge(&mut self, path: &[u8], seen: Seen, before: Option<&Snapshot>, bounds: Bounds) {
        let was_there = |kind| before.is_some_and(|before| before.had(path, kind));
        let reason = match seen {
            Seen::File(meta, choice) => {
                let kind = match before {
                    None => Some(ArtifactKind::Added),
                    Some(before) => before.compare(path, &meta),
                };
                match (kind, choice) {
                    (None, _) | (Some(_), Choice::PassOver) => return,
                    (Some(_), Choice::Sensitive) => Reason::SensitiveName,
                    (Some(kind), Choice::Look) => {
                        let path = path.to_vec();
                        self.candidates.push(Candidate { path, kind, meta });
                        return;
                    }
                }
            }
            Seen::Other(kind) if was_there(kind) => return,
            Seen::Other(kind) => Reason::NotAFile(kind),
            Seen::Closed(Closed::TooDeep) => Reason::TooDeep {
                limit: bounds.depth,
            },
            // What the caller had closed, or mounted there, is none of the run's.
            Seen::SensitiveDirectory | Seen::Closed(_) if was_there(FileType::Directory) => return,
            Seen::SensitiveDirectory => Reason::SensitiveName,
            Seen::Closed(Closed::Failed(error)) => Reason::UnreadableDirectory {
                error: told_errno(error),
            },
            Seen::Closed(Closed::OtherMount) => Reason::OtherMount,
        };
        self.leave_out(path, reason);
    }

    fn leave_out(&mut self, path: &[u8], reason: Reason) {
        self.left_out.push((path.to_vec(), reason));
    }
}

fn told(mut left_out: Vec<(Vec<u8>, Reason)>) -> Vec<LeftOut> {
    left_out.sort_by(|a, b| a.0.cmp(&b.0));
    let all = left_out.len();
    let mut names = 0;
    let mut told: Vec<LeftOut> = left_out
        .into_iter()
        .take(MAX_LEFT_OUT)
        .map(|(path, reason)| LeftOut {
            path: escape(&path),
            why: reason.to_string(),
        })
        .take_while(|left| {
            names += byte_count(&left.path);
            names <= MOST_NAMES.get()
        })
        .collect();
    let count = all - told.len();
    if count > 0 {
        told.push(LeftOut {
            path: ".".to_owned(),
            why: Reason::AndMore { count }.to_string(),
        });
    }
    told
}

/// Up to this size contents are staged in memory.
const IN_MEMORY: u64 = 256 << 10;
/// How many times as much as is kept may be read, and opened.
const EFFORT: u64 = 2;

struct Keeping<'a> {
    top: BorrowedFd<'a>,
    objects: &'a Objects,
    rules: &'a Rules<'a>,
    /// The directory that the last file was in: the next one is mostly in it too.
    parent: Option<(Vec<u8>, OwnedFd)>,
    /// What the whole store takes, once it is needed.
    stored: Option<u64>,
    run_bytes: u64,
    /// Of the names of what is kept.
    name_bytes: u64,
    /// What was read and how often something was opened, kept or not: reading costs, too.
    read_bytes: u64,
    opened: u64,
    /// Why nothing more is stored: a full disk is not tried again for each file.
    refused: Option<String>,
    artifacts: Vec<Artifact>,
}

impl Keeping<'_> {
    fn keep(&mut self, candidate: &Candidate) -> Result<Artifact, Reason> {
        self.check(candidate.meta.bytes)?;
        let path = escape(&candidate.path);
        self.check_name(candidate.meta.bytes, &path)?;
        self.check_effort(candidate.meta.bytes)?;
        self.opened += 1;
        let file = self.open(&candidate.path)?;
        let stat = rustix::fs::fstat(&file).map_err(unreadable)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            other => return Err(Reason::NotAFile(other)),
        }
        let meta = walk::meta(&stat);
        self.check(meta.bytes)?;
        let file = File::from(file);
        self.read_bytes = self.read_bytes.saturating_add(meta.bytes);
        if meta.bytes > IN_MEMORY {
            // Staged contents are on the disk before their end has been looked at.
            self.look_through(&file, meta.bytes)?;
        }
        let scan = self.rules.scanner.map(|scanner| scanner.begin());
        // One byte more than it has: what grows is noticed, and not read to an end that never comes.
        let mut taste = Taste::new((&file).take(meta.bytes.saturating_add(1)), scan);
        let staging = self.objects.stage(&mut taste, meta.bytes);
        let (beginning, verdict) = taste.into_parts();
        let staged = match (verdict, staging) {
            (Verdict::Secret, _) => return Err(Reason::SensitiveContents),
            (Verdict::Unreadable(error), _) => return Err(Reason::Unreadable { error }),
            (Verdict::Clean, Err(error)) => return Err(self.not_stored(&error)),
            (Verdict::Clean, Ok(Staging::TooLarge)) => return Err(Reason::ChangedMeanwhile),
            (Verdict::Clean, Ok(Staging::Ready(staged))) => staged,
        };
        let after = rustix::fs::fstat(&file).map_err(unreadable)?;
        if walk::meta(&after) != meta || staged.bytes() != meta.bytes {
            return Err(Reason::ChangedMeanwhile);
        }
        let adds = staged.adds();
        self.check_store(meta.bytes, adds)?;
        let stored = staged.commit().map_err(|error| self.not_stored(&error))?;
        self.run_bytes = self.run_bytes.saturating_add(stored.bytes);
        self.name_bytes = self.name_bytes.saturating_add(byte_count(&path));
        self.stored = self.stored.map(|stored| stored.saturating_add(adds));
        Ok(Artifact {
            path,
            digest: stored.digest,
            bytes: stored.bytes,
            media_type: media_type(beneath::split(&candidate.path).1, &beginning).to_owned(),
            kind: candidate.kind,
            mode: stat.st_mode & 0o7777,
        })
    }

    fn check(&self, bytes: u64) -> Result<(), Reason> {
        let ArtifactLimits {
            per_file,
            per_run,
            files,
            ..
        } = self.rules.limits;
        if bytes > per_file.get() {
            let limit = per_file;
            return Err(Reason::LargerThanFile { bytes, limit });
        }
        if u64::try_from(self.artifacts.len()).is_ok_and(|kept| kept >= files) {
            let limit = files;
            return Err(Reason::TooMany { bytes, limit });
        }
        if self.run_bytes.saturating_add(bytes) > per_run.get() {
            let limit = per_run;
            return Err(Reason::LargerThanRun { bytes, limit });
        }
        match self.refused.clone() {
            Some(error) => Err(Reason::NotStored { error }),
            None => Ok(()),
        }
    }

    fn check_name(&self, bytes: u64, path: &str) -> Result<(), Reason> {
        if self.name_bytes.saturating_add(byte_count(path)) > MOST_NAMES.get() {
            let limit = MOST_NAMES;
            return Err(Reason::NamesTooLong { bytes, limit });
        }
        Ok(())
    }

    /// A program that leaves many large files which are not kept must not hold us up.
    fn check_effort(&self, bytes: u64) -> Result<(), Reason> {
        let limits = self.rules.limits;
        let is_over = self.rules.give_up.is_some_and(|give_up| give_up());
        let too_much = self.read_bytes > limits.per_run.get().saturating_mul(EFFORT)
            || self.opened > limits.files.saturating_mul(EFFORT);
        if is_over || too_much {
            return Err(Reason::TooMuchWork { bytes });
        }
        Ok(())
    }

    fn look_through(&self, file: &File, bytes: u64) -> Result<(), Reason> {
        let Some(scanner) = self.rules.scanner else {
            return Ok(());
        };
        let mut from = file.take(bytes);
        let mut taste = Taste::new(&mut from, Some(scanner.begin()));
        let read = std::io::copy(&mut taste, &mut std::io::sink());
        let (_, verdict) = taste.into_parts();
        let mut file = file;
        let rewound = std::io::Seek::rewind(&mut file);
        match (verdict, read, rewound) {
            (Verdict::Secret, ..) => Err(Reason::SensitiveContents),
            (Verdict::Clean, Ok(_), Ok(())) => Ok(()),
            (Verdict::Unreadable(error), ..) => Err(Reason::Unreadable { error }),
            (_, Err(error), _) | (_, _, Err(error)) => Err(Reason::Unreadable {
                error: error.to_string(),
            }),
        }
    }

    fn check_store(&mut self, bytes: u64, adds: u64) -> Result<(), Reason> {
        let stored = match self.stored {
            Some(stored) => stored,
            None => match self.objects.about_stored_bytes() {
                Ok(stored) => *self.stored.insert(stored),
                Err(error) => return Err(self.not_stored(&error)),
            },
        };
        let limit = self.rules.limits.total;
        if adds > 0 && stored.saturating_add(adds) > limit.get() {
            return Err(Reason::StoreFull { bytes, limit });
        }
        Ok(())
    }

    fn not_stored(&mut self, error: &StoreError) -> Reason {
        let error = error.to_string();
        self.refused = Some(error.clone());
        Reason::NotStored { error }
    }

    fn open(&mut self, path: &[u8]) -> Result<OwnedFd, Reason> {
        let (parent, name) = beneath::split(path);
        let dir = match &self.parent {
            Some((known, dir)) if known == parent => dir,
            _ => {
                let dir = beneath::descend(self.top, parent).map_err(unreadable)?;
                &self.parent.insert((parent.to_vec(), dir)).1
            }
        };
        beneath::open_file(dir.as_fd(), name).map_err(unreadable)
    }
}

fn byte_count(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

fn unreadable(error: Errno) -> Reason {
    match error {
        // `NXIO` is what opening a socket, or a device without a driver, gives.
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO => Reason::Gone,
        Errno::XDEV => Reason::OtherMount,
        other => Reason::Unreadable {
            error: told_errno(other),
        },
    }
}

fn told_errno(error: Errno) -> String {
    std::io::Error::from(error).to_string()
}

#[cfg(test)]
#[path = "gather_tests.rs"]
mod tests;
