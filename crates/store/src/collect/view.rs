//! One run as a directory, for whoever wants files: `run.json`, `stdout.txt`, `stderr.txt` and `artifacts/…`, with a link `latest` to the one written last.
//!
//! It is written beside its place and put there at once. An older view of the same run is replaced as a whole, with whatever was added to it; anything else of that name is
//! left alone, and the view refused. Paths of artifacts come from a run or from somebody's bundle: each is walked below a directory that we hold, and nothing is overwritten.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use cofferdam_contract::ending::Stream;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use tempfile::TempDir;

use super::beneath;
use super::names::unescape;
use crate::error::StoreError;
use crate::id::RunId;
use crate::log::{self, Chunk};
use crate::model::{Artifact, Outcome, StoredRun};
use crate::objects::Objects;

const LATEST: &str = "latest";

/// Writes the view and answers where it is: `into/<run id>`.
pub fn write_view(
    run: &StoredRun,
    chunks: &[Chunk],
    objects: &Objects,
    into: &Path,
) -> Result<PathBuf, StoreError> {
    fs::create_dir_all(into).map_err(StoreError::io("make the directory", into))?;
    check_latest(&into.join(LATEST))?;
    let unfinished = tempfile::Builder::new()
        .prefix(".unfinished-")
        .tempdir_in(into)
        // The name that it would have had helps nobody.
        .map_err(|error| StoreError::io("write to", into)(error.kind().into()))?;
    fill(run, chunks, objects, unfinished.path())?;
    let name = run.opening.run_id.to_string();
    let place = into.join(&name);
    put_in_place(unfinished, &place, run.opening.run_id)?;
    point_latest_at(&name, into)?;
    Ok(place)
}

fn fill(run: &StoredRun, chunks: &[Chunk], objects: &Objects, at: &Path) -> Result<(), StoreError> {
    let failed = || StoreError::io("write to", at);
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(at, flags, Mode::empty()).map_err(|e| failed()(e.into()))?;
    let mut json = serde_json::to_vec_pretty(run).map_err(|e| failed()(e.into()))?;
    json.push(b'\n');
    let files = [
        ("run.json", json),
        ("stdout.txt", log::stream(chunks, Stream::Stdout)),
        ("stderr.txt", log::stream(chunks, Stream::Stderr)),
    ];
    for (name, contents) in files {
        let file = create(dir.as_fd(), name.as_bytes()).map_err(|e| failed()(e.into()))?;
        File::from(file).write_all(&contents).map_err(failed())?;
    }
    let artifacts = match &run.outcome {
        Outcome::Ended(closing) => closing.artifacts.as_slice(),
        Outcome::Running | Outcome::Interrupted { .. } => &[],
    };
    let below = step(dir.as_fd(), b"artifacts").map_err(|e| failed()(e.into()))?;
    for artifact in artifacts {
        write_artifact(below.as_fd(), artifact, objects, at)?;
    }
    Ok(())
}

fn write_artifact(
    top: BorrowedFd<'_>,
    artifact: &Artifact,
    objects: &Objects,
    at: &Path,
) -> Result<(), StoreError> {
    let refused = |why: String| StoreError::Invalid {
        field: "artifacts[].path",
        value: artifact.path.clone(),
        why,
    };
    let path = checked_path(&artifact.path).map_err(|why| refused(why.to_owned()))?;
    let (parent, name) = beneath::split(&path);
    let file = make_dirs(top, parent)
        .and_then(|parent| create(parent.as_fd(), name))
        .map_err(|error| match error {
            Errno::EXIST | Errno::NOTDIR | Errno::LOOP => {
                refused("another artifact has this place".to_owned())
            }
            Errno::NAMETOOLONG => refused("a name is too long for this file system".to_owned()),
            other => StoreError::io("write the artifacts to", at)(other.into()),
        })?;
    let mut contents = objects.reader(&artifact.digest)?;
    let mut file = File::from(file);
    io::copy(&mut contents, &mut file).map_err(StoreError::io("copy an artifact to", at))?;
    // What a run wrote may be started again, but is nobody else's to write, and never takes its owner's rights.
    let mode = Mode::from_raw_mode(artifact.mode & 0o755 | 0o600);
    rustix::fs::fchmod(&file, mode).map_err(|e| StoreError::io("write to", at)(e.into()))
}

/// The bytes of a path that stays below the place it is written to.
fn checked_path(text: &str) -> Result<Vec<u8>, &'static str> {
    let path = unescape(text).ok_or("it is not spelled as a path is")?;
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" => return Err("it has an empty name or begins with `/`"),
            b"." | b".." => return Err("it has `.` or `..` in it"),
            name if name.contains(&0) => return Err("it has a NUL in it"),
            _ => {}
        }
    }
    Ok(path)
}

fn make_dirs(top: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let mut at = beneath::open_dir(top, b".")?;
    if !path.is_empty() {
        for name in path.split(|byte| *byte == b'/') {
            at = step(at.as_fd(), name)?;
        }
    }
    Ok(at)
}

/// Enters a directory, which is made where it is missing.
fn step(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => beneath::open_dir(parent, name),
        Err(error) => Err(error),
    }
}

fn create(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR)
}

fn put_in_place(unfinished: TempDir, place: &Path, id: RunId) -> Result<(), StoreError> {
    let failed = || StoreError::io("put the view at", place);
    let rename = |flags| rustix::fs::renameat_with(CWD, unfinished.path(), CWD, place, flags);
    match rename(RenameFlags::NOREPLACE) {
        Ok(()) => {
            // There is nothing left under its old name.
            let _ = unfinished.keep();
            Ok(())
        }
        Err(Errno::EXIST) if is_view_of(place, id) => {
            rename(RenameFlags::EXCHANGE).map_err(|e| failed()(e.into()))?;
            // Now it is the older one.
            unfinished
                .close()
                .map_err(StoreError::io("remove the older view of", place))
        }
        Err(Errno::EXIST) => Err(StoreError::Invalid {
            field: "into",
            value: place.display().to_string(),
            why: "it is there already and is not a view of this run; move it away, or choose another directory"
                .to_owned(),
        }),
        Err(error) => Err(failed()(error.into())),
    }
}

/// Whether we wrote this: a directory, not a link to one, with the run's record in it.
fn is_view_of(place: &Path, id: RunId) -> bool {
    #[derive(serde::Deserialize)]
    struct OfRun {
        run_id: RunId,
    }
    let is_dir = fs::symlink_metadata(place).is_ok_and(|found| found.is_dir());
    let record = place.join("run.json");
    let is_file = fs::symlink_metadata(&record).is_ok_and(|found| found.is_file());
    is_dir
        && is_file
        && fs::read(&record)
            .ok()
            .and_then(|json| serde_json::from_slice::<OfRun>(&json).ok())
            .is_some_and(|of| of.run_id == id)
}

/// Before anything is written: a file or a directory of that name is somebody else's.
fn check_latest(link: &Path) -> Result<(), StoreError> {
    if fs::symlink_metadata(link).is_ok_and(|found| !found.is_symlink()) {
        return Err(StoreError::Invalid {
            field: "into",
            value: link.display().to_string(),
            why: "it is there already and is not a link; move it away, or choose another directory"
                .to_owned(),
        });
    }
    Ok(())
}

fn point_latest_at(name: &str, into: &Path) -> Result<(), StoreError> {
    let link = into.join(LATEST);
    let failed = || StoreError::io("point to the newest view with", &link);
    let beside = tempfile::Builder::new()
        .prefix(".latest-")
        .make_in(into, |path| std::os::unix::fs::symlink(name, path))
        .map_err(failed())?;
    beside
        .into_temp_path()
        .persist(&link)
        .map_err(|refused| failed()(refused.error))
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
