//! A bundle into a store: all of its runs or none. Contents come first, since nothing refers to them until the runs are recorded; after a crash between the two they are swept.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek};
use std::path::Path;

use crate::database::{KeptOutput, NewRun};
use crate::error::StoreError;
use crate::id::RunId;
use crate::model::{Digest, StoredRun};

use super::archive::Archive;
use super::check::{InspectOptions, Inspected, Trust, check, digests, open};
use super::format::{EntryName, FileFacts, Limits, Progress, refused};
use super::sides::Target;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportOptions {
    pub limits: Limits,
    pub trust: Trust,
    pub existing: Existing,
    pub mode: ImportMode,
}

/// What to do with a run whose id is known here with other contents. There is no replacing: what history says stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// Import nothing at all.
    #[default]
    Refuse,
    /// Keep ours.
    Skip,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImportMode {
    #[default]
    Write,
    /// Say what would happen.
    DryRun,
}

/// What an import did, or would do.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    pub bundle: Inspected,
    pub added: Vec<RunId>,
    /// Known here already, and the same.
    pub same: Vec<RunId>,
    /// Known here with other contents, and left as they are.
    pub kept_ours: Vec<RunId>,
    /// Contents that were not here before.
    pub objects: u64,
    pub object_bytes: u64,
}

/// Checks all of the bundle, then takes all of it.
pub fn import(
    target: &mut dyn Target,
    path: &Path,
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Imported, StoreError> {
    import_from(target, open(path, &options.limits)?, options, progress)
}

pub(super) fn import_from<R: Read + Seek>(
    target: &mut dyn Target,
    mut archive: Archive<R>,
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Imported, StoreError> {
    let inspect = InspectOptions {
        limits: options.limits,
        trust: options.trust.clone(),
    };
    let bundle = check(&mut archive, &inspect, progress)?;
    let mut imported = compare(target, bundle, options.existing)?;
    let wanted = wanted(target, &imported)?;
    for (facts, _) in wanted.values().filter(|(_, held)| *held == Held::Nowhere) {
        imported.objects += 1;
        imported.object_bytes = imported.object_bytes.saturating_add(facts.bytes);
    }
    if options.mode == ImportMode::Write {
        for (name, (facts, _)) in &wanted {
            put(target, &mut archive, *name, facts)?;
        }
        record(target, &imported)?;
    }
    Ok(imported)
}

/// Which runs are new here.
fn compare(
    target: &dyn Target,
    bundle: Inspected,
    existing: Existing,
) -> Result<Imported, StoreError> {
    let (mut added, mut same, mut kept_ours) = (Vec::new(), Vec::new(), Vec::new());
    for run in &bundle.runs {
        let id = run.opening.run_id;
        match target.existing(id)? {
            None => added.push(id),
            Some((ours, output))
                if ours == *run && Some(digest_of(&output)) == output_digest(&bundle, id) =>
            {
                same.push(id);
            }
            Some(_) if existing == Existing::Skip => kept_ours.push(id),
            Some(_) => {
                return Err(refused(format!(
                    "the run {id} is known here with other contents; skip existing runs to import the others"
                )));
            }
        }
    }
    Ok(Imported {
        bundle,
        added,
        same,
        kept_ours,
        objects: 0,
        object_bytes: 0,
    })
}

fn digest_of(output: &KeptOutput) -> Digest {
    match output {
        KeptOutput::Inline(bytes) => Digest::of(bytes),
        KeptOutput::Object(digest) => *digest,
    }
}

/// Of an output that is missing, the manifest still has the digest.
fn output_digest(bundle: &Inspected, id: RunId) -> Option<Digest> {
    let name = EntryName::Output(id);
    let there = bundle.manifest.files.get(&name).map(|facts| facts.sha256);
    there.or_else(|| {
        let missing = &bundle.manifest.missing;
        let found = missing.iter().find(|missing| missing.path == name);
        found.map(|missing| missing.digest)
    })
}

/// Whether contents are in the store already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Here,
    Nowhere,
}

/// The files to keep as objects.
///
/// For a new run that is all of its contents, even those that are here: they may be nobody's, and a sweep takes what is nobody's and has not been stored for a while. For a run that
/// was here before it is what was lost.
fn wanted(
    target: &dyn Target,
    imported: &Imported,
) -> Result<BTreeMap<EntryName, (FileFacts, Held)>, StoreError> {
    let bundle = &imported.bundle;
    let added: BTreeSet<&RunId> = imported.added.iter().collect();
    let skipped: BTreeSet<&RunId> = imported.kept_ours.iter().collect();
    let mut wanted = BTreeMap::new();
    for run in &bundle.runs {
        let id = &run.opening.run_id;
        if skipped.contains(id) {
            continue;
        }
        for name in contents_of(bundle, run) {
            let Some(&facts) = bundle.manifest.files.get(&name) else {
                continue;
            };
            let held = match target.contains(&facts.sha256)? {
                true => Held::Here,
                false => Held::Nowhere,
            };
            if held == Held::Nowhere || added.contains(id) {
                wanted.insert(name, (facts, held));
            }
        }
    }
    Ok(wanted)
}

fn contents_of<'a>(
    bundle: &Inspected,
    run: &'a StoredRun,
) -> impl Iterator<Item = EntryName> + use<'a> {
    let id = run.opening.run_id;
    let is_short = bundle.short_outputs.contains_key(&id);
    let output = (!is_short).then_some(EntryName::Output(id));
    digests(run).map(EntryName::Artifact).chain(output)
}

/// Everything was checked once, and is checked again while it is copied: the file may have been changed in between.
fn put<R: Read + Seek>(
    target: &mut dyn Target,
    archive: &mut Archive<R>,
    name: EntryName,
    facts: &FileFacts,
) -> Result<(), StoreError> {
    let entry = archive.entries.get(&name).copied();
    let entry = entry.ok_or_else(|| refused(format!("`{name}` is not there")))?;
    let mut contents = archive.contents(&entry)?.expecting(facts.sha256);
    target.put(&facts.sha256, facts.bytes, &mut contents)
}

fn record(target: &mut dyn Target, imported: &Imported) -> Result<(), StoreError> {
    let added: BTreeSet<&RunId> = imported.added.iter().collect();
    let bundle = &imported.bundle;
    let new = bundle
        .runs
        .iter()
        .filter(|run| added.contains(&run.opening.run_id));
    let new: Option<Vec<NewRun>> = new.map(|run| new_run(bundle, run)).collect();
    let new = new.ok_or_else(|| refused("a run has no output"))?;
    if new.is_empty() {
        return Ok(());
    }
    target.record(&new)
}

/// Exactly what came: an imported run is equal to the one that was exported.
fn new_run(bundle: &Inspected, run: &StoredRun) -> Option<NewRun> {
    let id = run.opening.run_id;
    let output = match bundle.short_outputs.get(&id) {
        Some(bytes) => KeptOutput::Inline(bytes.clone()),
        None => KeptOutput::Object(output_digest(bundle, id)?),
    };
    Some(NewRun {
        opening: run.opening.clone(),
        outcome: run.outcome.clone(),
        log: run.log,
        output,
    })
}
