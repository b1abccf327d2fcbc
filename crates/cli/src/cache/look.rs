//! Which caches there are, and how large each is. Everything is looked at below a directory that is held; no link is followed, and a tree that is deeper than any tool makes it is said to be
//! counted in part.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cofferdam_project::Cache;
use cofferdam_workshop::cache;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::place;
use crate::arguments::cache::WhichCaches;
use crate::failure::Failure;
use crate::terminal::waiting::Waiting;

/// One cache of one place.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) place: PathBuf,
    /// The project that it belongs to, where that is known.
    pub(super) project: Option<String>,
    pub(super) cache: Cache,
    pub(super) size: Size,
    pub(super) is_used: bool,
    pub(super) last_used: Option<SystemTime>,
}

/// What a tree holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Size {
    /// On the disk.
    pub(super) bytes: u64,
    pub(super) files: u64,
    /// Something could not be looked at.
    pub(super) is_partial: bool,
}

/// Each level holds a descriptor; no package manager nests half as deep.
const MAX_DEPTH: usize = 400;
/// A path of a project, and no more.
const MAX_NOTE: usize = 4096;

pub(super) fn find(which: &WhichCaches) -> Result<Vec<Volume>, Failure> {
    let mut found = Vec::new();
    let _waiting = Waiting::on("measuring caches");
    for place in places(which)? {
        let Ok(dir) = open_dir(rustix::fs::CWD, &place) else {
            continue;
        };
        let project = project(&place);
        let wanted = |cache: &Cache| which.tools.is_empty() || which.tools.contains(cache);
        for cache in Cache::ALL.into_iter().filter(wanted) {
            let Ok(volume) = open_dir(&dir, cache.as_str()) else {
                continue;
            };
            let (is_used, last_used) = cache::seen(&place, cache);
            found.push(Volume {
                place: place.clone(),
                project: project.clone(),
                cache,
                size: measure(volume),
                is_used,
                last_used,
            });
        }
    }
    Ok(found)
}

fn places(which: &WhichCaches) -> Result<Vec<PathBuf>, Failure> {
    if let Some(named) = &which.cache_dir {
        let failed = |error| place::failed(named, &error);
        return Ok(vec![named.canonicalize().map_err(failed)?]);
    }
    if let Some(project) = &which.project {
        let root = project.canonicalize().map_err(|error| {
            let what = format!("--project: cannot use `{}`", project.display());
            Failure::io(
                cofferdam_contract::codes::ErrorCode::InputUnreadable,
                &what,
                &error,
            )
        })?;
        return Ok(vec![place::of_project(&root)?]);
    }
    let all = place::all()?;
    let entries = match std::fs::read_dir(&all) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(place::failed(&all, &error)),
    };
    let mut places: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    places.sort();
    Ok(places)
}

fn project(place: &Path) -> Option<String> {
    let note = place.join(place::PROJECT);
    let is_file = note.symlink_metadata().ok()?.is_file();
    let bytes = is_file.then(|| std::fs::read(&note).ok()).flatten()?;
    let bytes = bytes.get(..bytes.len().min(MAX_NOTE))?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}

fn open_dir(
    from: impl std::os::fd::AsFd,
    name: impl rustix::path::Arg,
) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(from, name, flags, Mode::empty())
}

fn measure(top: OwnedFd) -> Size {
    let mut size = Size::default();
    let mut open = Vec::new();
    let enter = |dir: OwnedFd, open: &mut Vec<Dir>, size: &mut Size| match Dir::new(dir) {
        Ok(dir) if open.len() < MAX_DEPTH => open.push(dir),
        _ => size.is_partial = true,
    };
    enter(top, &mut open, &mut size);
    while let Some(dir) = open.last_mut() {
        let entry = match dir.read() {
            Some(Ok(entry)) => entry,
            Some(Err(_)) => {
                size.is_partial = true;
                open.pop();
                continue;
            }
            None => {
                open.pop();
                continue;
            }
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let Ok(fd) = dir.fd() else {
            continue;
        };
        let Ok(stat) = rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        size.bytes = size
            .bytes
            .saturating_add(stat.st_blocks.unsigned_abs() * 512);
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            match open_dir(fd, name) {
                Ok(below) => enter(below, &mut open, &mut size),
                Err(_) => size.is_partial = true,
            }
        } else {
            size.files += 1;
        }
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_measured_without_following_links() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("volume");
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        std::fs::write(top.join("a/b/file"), vec![1; 100_000]).unwrap();
        std::os::unix::fs::symlink("/usr", top.join("a/link")).unwrap();
        let size = measure(open_dir(rustix::fs::CWD, &top).unwrap());
        assert_eq!((size.files, size.is_partial), (2, false));
        assert!((100_000..200_000).contains(&size.bytes), "{size:?}");
    }

    #[test]
    fn a_tree_without_end_is_counted_in_part() {
        let dir = tempfile::tempdir().unwrap();
        let mut here = open_dir(rustix::fs::CWD, dir.path()).unwrap();
        for _ in 0..MAX_DEPTH + 5 {
            rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
            here = open_dir(&here, "d").unwrap();
        }
        let size = measure(open_dir(rustix::fs::CWD, dir.path()).unwrap());
        assert!(size.is_partial);
    }
}
