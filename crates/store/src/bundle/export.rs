//! Runs into a bundle. The file appears under its name when it is whole, or not at all; what was there before stays until then.
//!
//! The same runs, provenance and key give the same bytes: names are in order, times are fixed, and nothing else is written that depends on the moment.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::database::KeptOutput;
use crate::error::StoreError;
use crate::id::RunId;
use crate::model::{Digest, Outcome, StoredRun};

use super::check::digests;
use super::format::{
    EntryName, FORMAT, Limits, Manifest, Missing, Progress, Provenance, VERSION,
    without_credentials,
};
use super::sides::Source;
use super::sign::SigningKey;
use super::writer::Writer;

#[derive(Debug, Clone)]
pub struct ExportOptions {
    pub artifacts: Artifacts,
    pub sign: Option<SigningKey>,
    /// Says also when the bundle was made, and by which version.
    pub provenance: Provenance,
    pub if_present: IfPresent,
    pub limits: Limits,
}

/// Whether the contents of artifacts come along. Their names and digests always do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Artifacts {
    #[default]
    With,
    Without,
}

/// What to do with a file that has the name of the bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IfPresent {
    #[default]
    Refuse,
    Replace,
}

/// What an export wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    pub path: PathBuf,
    pub runs: Vec<RunId>,
    /// Runs that still go on.
    pub skipped: Vec<SkippedRun>,
    /// What the runs refer to and is not in the bundle.
    pub missing: Vec<Missing>,
    /// Of the bundle's file.
    pub bytes: u64,
    pub artifact_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkippedRun {
    pub run_id: RunId,
    pub why: String,
}

/// Writes these runs to a new file.
pub fn export(
    source: &dyn Source,
    runs: &[RunId],
    options: &ExportOptions,
    to: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Exported, StoreError> {
    refuse_present(to, options.if_present)?;
    let (chosen, skipped) = choose(source, runs)?;
    let directory = directory_of(to);
    let failed = || StoreError::io("write the bundle", to);
    let temporary = tempfile::Builder::new()
        .prefix(".cofferdam-export-")
        .tempfile_in(&directory)
        // The name that it would have had helps nobody.
        .map_err(|error| failed()(error.kind().into()))?;
    let into = BufWriter::with_capacity(128 << 10, temporary.as_file());
    let manifest = write_bundle(source, &chosen, options, to, into, progress)?;
    let bytes = finish(temporary, options.if_present, to, &directory).map_err(failed())?;
    Ok(Exported {
        path: to.to_owned(),
        runs: chosen.iter().map(|run| run.opening.run_id).collect(),
        skipped,
        missing: manifest.missing,
        bytes,
        artifact_bytes: manifest.artifact_bytes,
    })
}

/// Early, before the work. It is found out again when the file gets its name.
fn refuse_present(to: &Path, if_present: IfPresent) -> Result<(), StoreError> {
    if if_present == IfPresent::Refuse && to.symlink_metadata().is_ok() {
        return Err(StoreError::io("write the bundle", to)(
            io::ErrorKind::AlreadyExists.into(),
        ));
    }
    Ok(())
}

fn choose(
    source: &dyn Source,
    runs: &[RunId],
) -> Result<(Vec<StoredRun>, Vec<SkippedRun>), StoreError> {
    let (mut chosen, mut skipped) = (Vec::new(), Vec::new());
    for &run_id in &runs.iter().copied().collect::<BTreeSet<_>>() {
        let run = source.run(run_id)?;
        match run.outcome {
            Outcome::Running => skipped.push(SkippedRun {
                run_id,
                why: "it has not ended".to_owned(),
            }),
            Outcome::Ended(_) | Outcome::Interrupted { .. } => chosen.push(run),
        }
    }
    match (chosen.is_empty(), skipped.first()) {
        (false, _) => Ok((chosen, skipped)),
        (true, skipped) => Err(StoreError::Invalid {
            field: "runs",
            value: skipped.map_or_else(String::new, |run| run.run_id.to_string()),
            why: match skipped {
                Some(_) => "none of these runs has ended; export them when they have".to_owned(),
                None => "no run to export".to_owned(),
            },
        }),
    }
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn finish(
    temporary: tempfile::NamedTempFile,
    if_present: IfPresent,
    to: &Path,
    directory: &Path,
) -> io::Result<u64> {
    temporary.as_file().sync_all()?;
    let bytes = temporary.as_file().metadata()?.len();
    match if_present {
        IfPresent::Refuse => temporary.persist_noclobber(to)?,
        IfPresent::Replace => temporary.persist(to)?,
    };
    // The file is whole and has its name; a directory that cannot be synced takes nothing from that.
    let _ = File::open(directory).and_then(|directory| directory.sync_all());
    Ok(bytes)
}

pub(super) fn write_bundle<W: Write + Seek>(
    source: &dyn Source,
    runs: &[StoredRun],
    options: &ExportOptions,
    to: &Path,
    into: W,
    progress: &mut dyn FnMut(Progress),
) -> Result<Manifest, StoreError> {
    let artifacts: BTreeSet<Digest> = runs.iter().flat_map(digests).collect();
    let notes = 2 + usize::from(options.sign.is_some());
    let files = artifacts.len() + 2 * runs.len() + notes;
    let mut writer = Writer::new(into, to, &options.limits, files, progress);
    for digest in artifacts {
        let name = EntryName::Artifact(digest);
        match options.artifacts {
            Artifacts::With => writer.add_object(source, name, digest)?,
            Artifacts::Without => writer.leave_out(name, digest, "exported without artifacts"),
        }
    }
    for run in runs {
        let id = run.opening.run_id;
        match source.output(id)? {
            KeptOutput::Inline(bytes) => writer.add_output(id, &bytes)?,
            KeptOutput::Object(digest) => {
                writer.add_object(source, EntryName::Output(id), digest)?;
            }
        }
    }
    let provenance = cleaned(&options.provenance);
    writer.add_json(EntryName::Provenance, &provenance)?;
    for run in runs {
        writer.add_json(EntryName::Run(run.opening.run_id), run)?;
    }
    let manifest = writer.manifest(|files, missing, artifact_bytes| Manifest {
        format: FORMAT.to_owned(),
        version: VERSION,
        created_at: provenance.exported_at,
        tool_version: provenance.cofferdam_version.clone(),
        run_count: u64::try_from(runs.len()).unwrap_or(u64::MAX),
        artifact_bytes,
        files,
        missing,
    });
    let signed = writer.add_json(EntryName::Manifest, &manifest)?;
    if let Some(key) = &options.sign {
        writer.add_json(EntryName::Signature, &key.sign(&signed))?;
    }
    writer.finish()?;
    Ok(manifest)
}

fn cleaned(provenance: &Provenance) -> Provenance {
    let mut provenance = provenance.clone();
    if let Some(git) = &mut provenance.git {
        git.remote_url = git.remote_url.as_deref().map(without_credentials);
    }
    provenance
}
