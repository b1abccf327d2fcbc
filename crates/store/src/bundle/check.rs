//! Whether a bundle may be believed: everything in it is read and checked, and nothing is written. An import goes on from here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{Cursor, Read, Seek};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::collect::names;
use crate::error::StoreError;
use crate::id::RunId;
use crate::model::{Artifact, Digest, Outcome, StoredRun};

use super::archive::{Archive, Entry};
use super::format::{
    EntryName, FORMAT, FileFacts, INLINE_OUTPUT, Limits, Manifest, Progress, Provenance,
    SignatureRecord, VERSION, Version, refused,
};
use super::output::LogCheck;
use super::sign::{self, PublicKey};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InspectOptions {
    pub limits: Limits,
    pub trust: Trust,
}

/// Whose bundles are taken. A signature that is there must fit, whoever is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Trust {
    #[default]
    Anybody,
    /// Signed, by whatever key.
    Signed,
    Keys(Vec<PublicKey>),
}

/// A bundle in which everything fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspected {
    pub manifest: Manifest,
    pub provenance: Provenance,
    pub signed_by: Option<PublicKey>,
    /// By id, so the oldest first.
    pub runs: Vec<StoredRun>,
    /// The outputs that are short enough to be kept with their run.
    pub(super) short_outputs: BTreeMap<RunId, Vec<u8>>,
}

/// Reads and checks all of a bundle.
pub fn inspect(path: &Path, options: &InspectOptions) -> Result<Inspected, StoreError> {
    let mut archive = open(path, &options.limits)?;
    check(&mut archive, options, &mut |_| ())
}

/// The same for a bundle in memory.
pub fn inspect_bytes(bytes: &[u8], options: &InspectOptions) -> Result<Inspected, StoreError> {
    let mut archive = Archive::open(Cursor::new(bytes), PathBuf::new(), &options.limits)?;
    check(&mut archive, options, &mut |_| ())
}

pub(super) fn open(path: &Path, limits: &Limits) -> Result<Archive<File>, StoreError> {
    let failed = || StoreError::io("read the bundle", path);
    // A pipe must not make us wait for its writer.
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)
        .map_err(failed())?;
    if !file.metadata().map_err(failed())?.is_file() {
        return Err(refused(format!("`{}` is not a file", path.display())));
    }
    Archive::open(file, path.to_owned(), limits)
}

pub(super) fn check<R: Read + Seek>(
    archive: &mut Archive<R>,
    options: &InspectOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Inspected, StoreError> {
    let bytes = read_own(archive, EntryName::Manifest)?
        .ok_or_else(|| refused("it has no manifest.json, so it is not a bundle of cofferdam"))?;
    let manifest = read_manifest(&bytes)?;
    let signature = read_own(archive, EntryName::Signature)?;
    let signed_by = check_signature(signature.as_deref(), &bytes, &options.trust)?;
    check_listing(&archive.entries, &manifest)?;
    check_held(&manifest, &options.limits)?;
    let mut reading = Reading::default();
    for (&name, facts) in &manifest.files {
        reading.read(archive, name, facts)?;
        progress(reading.progress(&manifest));
    }
    let provenance = reading
        .provenance
        .ok_or_else(|| refused("it has no provenance.json"))?;
    check_references(&manifest, &reading.runs)?;
    Ok(Inspected {
        manifest,
        provenance,
        signed_by,
        runs: reading.runs,
        short_outputs: reading.short_outputs,
    })
}

/// A file that the manifest does not list. Its length was checked against its limit already.
fn read_own<R: Read + Seek>(
    archive: &mut Archive<R>,
    name: EntryName,
) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(entry) = archive.entries.get(&name).copied() else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    let read = archive.contents(&entry)?.read_to_end(&mut bytes);
    read.map_err(|error| archive.failed(error))?;
    Ok(Some(bytes))
}

/// The version before the rest: a newer one may look different.
fn read_manifest(bytes: &[u8]) -> Result<Manifest, StoreError> {
    #[derive(Deserialize)]
    struct Head {
        format: String,
        version: Version,
    }
    let head: Head = json(EntryName::Manifest, bytes)?;
    if head.format != FORMAT {
        return Err(refused(format!(
            "its format is `{}`, and not `{FORMAT}`",
            head.format.escape_debug()
        )));
    }
    if head.version.major != VERSION.major {
        let fix = match head.version.major > VERSION.major {
            true => "use a newer one",
            false => "export it anew with this version",
        };
        return Err(refused(format!(
            "it has version {} of the format, and this cofferdam reads {}.x; {fix}",
            head.version, VERSION.major
        )));
    }
    json(EntryName::Manifest, bytes)
}

fn json<T: DeserializeOwned>(name: EntryName, bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes)
        .map_err(|error| refused(format!("`{name}` cannot be read: {error}")))
}

fn check_signature(
    signature: Option<&[u8]>,
    manifest: &[u8],
    trust: &Trust,
) -> Result<Option<PublicKey>, StoreError> {
    let signed_by = match signature {
        Some(bytes) => {
            let record: SignatureRecord = json(EntryName::Signature, bytes)?;
            Some(sign::verify(&record, manifest)?)
        }
        None => None,
    };
    match (trust, signed_by) {
        (Trust::Anybody, _) | (Trust::Signed, Some(_)) => Ok(signed_by),
        (Trust::Keys(keys), Some(key)) if keys.contains(&key) => Ok(signed_by),
        (Trust::Keys(_), Some(key)) => Err(refused(format!(
            "it is signed by {key}, which is not a trusted key"
        ))),
        (Trust::Signed | Trust::Keys(_), None) => {
            Err(refused("it is not signed, and a signature is required"))
        }
    }
}

/// What is there is listed, and what is listed is there.
fn check_listing(
    entries: &BTreeMap<EntryName, Entry>,
    manifest: &Manifest,
) -> Result<(), StoreError> {
    for name in entries.keys() {
        let is_own = matches!(name, EntryName::Manifest | EntryName::Signature);
        if !is_own && !manifest.files.contains_key(name) {
            return Err(refused(format!("`{name}` is not in the manifest")));
        }
    }
    for (name, facts) in &manifest.files {
        match entries.get(name) {
            _ if matches!(name, EntryName::Manifest | EntryName::Signature) => {
                return Err(refused(format!("the manifest lists `{name}`")));
            }
            None => {
                return Err(refused(format!(
                    "`{name}` is in the manifest and not there"
                )));
            }
            Some(entry) if entry.bytes != facts.bytes => {
                return Err(refused(format!(
                    "`{name}` has {} bytes, and the manifest says {}",
                    entry.bytes, facts.bytes
                )));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// What would have to be held in memory.
fn check_held(manifest: &Manifest, limits: &Limits) -> Result<(), StoreError> {
    let held = manifest.files.iter();
    let held = held.filter(|(name, facts)| name.is_held(facts.bytes));
    let held = held.fold(0_u64, |sum, (_, facts)| sum.saturating_add(facts.bytes));
    if held > limits.held_bytes {
        return Err(refused(format!(
            "its runs take {held} bytes, and at most {} are read at once; export them in parts",
            limits.held_bytes
        )));
    }
    Ok(())
}

/// What has been read so far of the files that the manifest lists.
#[derive(Default)]
struct Reading {
    runs: Vec<StoredRun>,
    provenance: Option<Provenance>,
    short_outputs: BTreeMap<RunId, Vec<u8>>,
    files: u64,
    bytes: u64,
}

impl Reading {
    fn read<R: Read + Seek>(
        &mut self,
        archive: &mut Archive<R>,
        name: EntryName,
        facts: &FileFacts,
    ) -> Result<(), StoreError> {
        let entry = archive.entries.get(&name).copied();
        let entry = entry.ok_or_else(|| refused(format!("`{name}` is not there")))?;
        let mut keep = keeps(name, facts).then(Vec::new);
        let mut log = LogCheck::default();
        let mut contents = archive.contents(&entry)?.expecting(facts.sha256);
        let read = each_piece(&mut contents, |piece| {
            log.feed(piece);
            if let Some(kept) = &mut keep {
                kept.extend_from_slice(piece);
            }
        });
        read.map_err(|error| archive.failed(error))?;
        self.files += 1;
        self.bytes = self.bytes.saturating_add(facts.bytes);
        let kept = keep.unwrap_or_default();
        match name {
            EntryName::Artifact(digest) if digest != facts.sha256 => Err(refused(format!(
                "`{name}` holds contents with the digest {}",
                facts.sha256
            ))),
            EntryName::Output(_) if !log.is_whole() => {
                Err(refused(format!("`{name}` is not an output log")))
            }
            EntryName::Output(id) if facts.bytes <= INLINE_OUTPUT => {
                self.short_outputs.insert(id, kept);
                Ok(())
            }
            EntryName::Run(id) => {
                self.runs.push(read_run(id, &kept)?);
                Ok(())
            }
            EntryName::Provenance => {
                self.provenance = Some(json(name, &kept)?);
                Ok(())
            }
            EntryName::Artifact(_)
            | EntryName::Output(_)
            | EntryName::Manifest
            | EntryName::Signature => Ok(()),
        }
    }

    fn progress(&self, manifest: &Manifest) -> Progress {
        Progress {
            files: self.files,
            of_files: u64::try_from(manifest.files.len()).unwrap_or(u64::MAX),
            bytes: self.bytes,
        }
    }
}

fn keeps(name: EntryName, facts: &FileFacts) -> bool {
    match name {
        EntryName::Artifact(_) => false,
        EntryName::Output(_) | EntryName::Run(_) => name.is_held(facts.bytes),
        EntryName::Provenance | EntryName::Manifest | EntryName::Signature => true,
    }
}

/// Hands on what is read, piece by piece.
pub(super) fn each_piece(from: &mut dyn Read, mut with: impl FnMut(&[u8])) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(got) => with(buffer.get(..got).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn read_run(id: RunId, bytes: &[u8]) -> Result<StoredRun, StoreError> {
    let name = EntryName::Run(id);
    let run: StoredRun = json(name, bytes)?;
    if run.opening.run_id != id {
        return Err(refused(format!(
            "`{name}` holds the run {}",
            run.opening.run_id
        )));
    }
    if matches!(run.outcome, Outcome::Running) {
        return Err(refused(format!("the run {id} has not ended")));
    }
    if run.status != run.outcome.status() {
        return Err(refused(format!(
            "the run {id} says that its status is {}, and it ended as {}",
            run.status,
            run.outcome.status()
        )));
    }
    check_artifacts(&run)?;
    Ok(run)
}

/// Paths that a run could have left, each once. Nobody is led anywhere by them, but everybody who lists them should be able to believe them.
fn check_artifacts(run: &StoredRun) -> Result<(), StoreError> {
    let mut seen = BTreeSet::new();
    for artifact in artifacts(run) {
        let fits = names::unescape(&artifact.path).is_some_and(|path| {
            path.split(|byte| *byte == b'/')
                .all(|part| !matches!(part, b"" | b"." | b"..") && !part.contains(&0))
        });
        if !fits || !seen.insert(&artifact.path) {
            return Err(refused(format!(
                "the run {} has an artifact `{}`, which is no path of its own within a workspace",
                run.opening.run_id, artifact.path
            )));
        }
    }
    Ok(())
}

fn artifacts(run: &StoredRun) -> impl Iterator<Item = &Artifact> {
    let closing = match &run.outcome {
        Outcome::Ended(closing) => Some(closing),
        Outcome::Running | Outcome::Interrupted { .. } => None,
    };
    closing.into_iter().flat_map(|closing| &closing.artifacts)
}

/// The artifacts that a run refers to.
pub(super) fn digests(run: &StoredRun) -> impl Iterator<Item = Digest> + '_ {
    artifacts(run).map(|artifact| artifact.digest)
}

/// Every run has what it refers to, or the manifest says why not; and there is nothing else.
fn check_references(manifest: &Manifest, runs: &[StoredRun]) -> Result<(), StoreError> {
    let mut wanted = BTreeSet::new();
    for run in runs {
        wanted.insert(EntryName::Output(run.opening.run_id));
        wanted.extend(digests(run).map(EntryName::Artifact));
        for artifact in artifacts(run) {
            let facts = manifest.files.get(&EntryName::Artifact(artifact.digest));
            if facts.is_some_and(|facts| facts.bytes != artifact.bytes) {
                return Err(refused(format!(
                    "the run {} says that `{}` has {} bytes, and it has not",
                    run.opening.run_id, artifact.path, artifact.bytes
                )));
            }
        }
    }
    let mut missing = BTreeSet::new();
    for one in &manifest.missing {
        let name = one.path;
        let is_its_digest = match name {
            EntryName::Artifact(digest) => digest == one.digest,
            _ => true,
        };
        let is_there = manifest.files.contains_key(&name);
        if !wanted.contains(&name) || is_there || !is_its_digest || !missing.insert(name) {
            return Err(refused(format!(
                "the manifest says wrongly that `{name}` is missing"
            )));
        }
    }
    for name in &wanted {
        if !manifest.files.contains_key(name) && !missing.contains(name) {
            return Err(refused(format!(
                "a run refers to `{name}`, which is neither there nor said to be missing"
            )));
        }
    }
    check_counts(manifest, &wanted)
}

fn check_counts(manifest: &Manifest, wanted: &BTreeSet<EntryName>) -> Result<(), StoreError> {
    let (mut runs, mut artifact_bytes) = (0_u64, 0_u64);
    for (name, facts) in &manifest.files {
        match name {
            EntryName::Run(_) => runs += 1,
            EntryName::Artifact(_) | EntryName::Output(_) if !wanted.contains(name) => {
                return Err(refused(format!("no run refers to `{name}`")));
            }
            EntryName::Artifact(_) => artifact_bytes = artifact_bytes.saturating_add(facts.bytes),
            _ => {}
        }
    }
    if runs != manifest.run_count || artifact_bytes != manifest.artifact_bytes {
        return Err(refused(format!(
            "the manifest says {} runs and {} bytes of artifacts, and there are {runs} and {artifact_bytes}",
            manifest.run_count, manifest.artifact_bytes
        )));
    }
    Ok(())
}
