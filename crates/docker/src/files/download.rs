//! The way back: the workspace as the program left it, compared with what was sent. What changed is listed, and written into the caller's directory where that was
//! asked for. The archive is a stranger's: its names, its sizes and its links are checked before anything is done with them.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::DownloadFromContainerOptionsBuilder;
use bytes::Bytes;
use cofferdam_contract::record::{Change, ChangeKind};
use cofferdam_contract::request::WorkspaceAccess;
use cofferdam_engine::backend;
use cofferdam_engine::error::EngineError;
use futures_util::StreamExt as _;
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use tar::{Archive, EntryType};
use tokio::sync::mpsc;

use super::beneath::{Beneath, Unplaced, shown};
use super::carried::Carried;
use super::manifest::{Contents, MOST_ENTRIES, Manifest, Sent};
use crate::daemon;

/// What came back.
#[derive(Debug)]
pub(crate) struct Brought {
    pub(crate) changes: Vec<Change>,
    /// More than the limit, so that the rest was left behind.
    pub(crate) is_over: bool,
}

/// Why it did not all come back.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The daemon's.
    Daemon(bollard::errors::Error),
    /// Ours, with the place.
    Here { path: String, errno: Errno },
    /// It takes longer than anybody wants to wait.
    TooLong(Duration),
    /// The caller does not want it any more.
    GivenUp,
}

impl Trouble {
    pub(crate) fn into_error(self) -> EngineError {
        match self {
            Self::Daemon(error) => daemon::refused("bring the workspace back")(error),
            Self::Here { path, errno } => EngineError::Unreadable {
                what: "workspace: cannot write back",
                path,
                errno,
            },
            Self::TooLong(limit) => daemon::unavailable(
                format!(
                    "could not bring the workspace back: not all of it came within {} s",
                    limit.as_secs()
                ),
                format!(
                    "{HALF_WAY}; let the program leave less, or wait longer with sandbox.docker.pull_timeout"
                ),
            ),
            Self::GivenUp => daemon::unavailable(
                "the run was given up while its workspace came back".to_owned(),
                format!("{HALF_WAY}; run it again to have the rest"),
            ),
        }
    }
}

const HALF_WAY: &str =
    "files that came are whole, the others are as they were, and what did not come was not removed";

/// Brings a directory back. `most` is how many bytes may come beyond those that were sent.
pub(crate) async fn bring(
    client: &Docker,
    container: &str,
    carried: &Carried,
    sent: Manifest,
    most: Option<u64>,
) -> Result<Brought, Trouble> {
    let place = DownloadFromContainerOptionsBuilder::default()
        .path(&carried.inside)
        .build();
    let mut stream = client.download_from_container(container, Some(place));
    let (to, pieces) = mpsc::channel::<Piece>(4);
    let target = match carried.access {
        WorkspaceAccess::ReadWrite => Target::Dir(carried.path.clone()),
        WorkspaceAccess::CopyOnWrite | WorkspaceAccess::ReadOnly => Target::Nowhere,
    };
    let most = most.map(|most| most.saturating_add(sent.bytes));
    let unpacking = tokio::task::spawn_blocking(move || unpack(pieces, target, &sent, most));
    let mut failed = None;
    while let Some(piece) = stream.next().await {
        match piece {
            Ok(piece) => {
                // Nobody wants the rest.
                if to.send(Piece::Bytes(piece)).await.is_err() {
                    break;
                }
            }
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    if failed.is_none() {
        let _ = to.send(Piece::End).await;
    }
    drop(to);
    let unpacked = unpacking.await.unwrap_or(Err(Trouble::Here {
        path: String::new(),
        errno: Errno::IO,
    }));
    match failed {
        Some(error) => Err(Trouble::Daemon(error)),
        None => unpacked,
    }
}

/// A part of the archive. One that breaks off is not one that ends: what is missing then was not removed by the program.
enum Piece {
    Bytes(Bytes),
    End,
}

enum Target {
    Dir(PathBuf),
    /// Only compared.
    Nowhere,
}

fn unpack(
    pieces: mpsc::Receiver<Piece>,
    target: Target,
    sent: &Manifest,
    most: Option<u64>,
) -> Result<Brought, Trouble> {
    let into = match &target {
        Target::Dir(path) => Some(Beneath::open(path).map_err(|errno| Trouble::Here {
            path: path.display().to_string(),
            errno,
        })?),
        Target::Nowhere => None,
    };
    let mut unpacking = Unpacking {
        into,
        top: Top::default(),
        sent,
        left: most,
        seen: BTreeMap::new(),
        changes: Vec::new(),
    };
    let mut archive = Archive::new(Pieces {
        pieces,
        rest: Bytes::new(),
        is_whole: false,
    });
    let broken = |error: &io::Error| Trouble::Here {
        path: ARCHIVE.to_owned(),
        errno: Errno::from_io_error(error).unwrap_or(Errno::IO),
    };
    let entries = archive.entries().map_err(|error| broken(&error))?;
    for entry in entries {
        let mut entry = entry.map_err(|error| broken(&error))?;
        if unpacking.entry(&mut entry)? == Room::None {
            return Ok(unpacking.finish(true));
        }
    }
    // The library stops at the first empty block, or where there is no more. Only two empty blocks are an end that somebody wrote.
    let mut rest = archive.into_inner();
    let mut second = [1; EMPTY_BLOCK];
    rest.read_exact(&mut second)
        .map_err(|error| broken(&error))?;
    if second != [0; EMPTY_BLOCK] {
        return Err(broken(&io::ErrorKind::InvalidData.into()));
    }
    io::copy(&mut rest, &mut io::sink()).map_err(|error| broken(&error))?;
    // An archive without even the workspace is of something else.
    if unpacking.top.0.is_none() {
        return Err(broken(&io::ErrorKind::UnexpectedEof.into()));
    }
    unpacking.remove_missing()?;
    Ok(unpacking.finish(false))
}

const EMPTY_BLOCK: usize = 512;
const ARCHIVE: &str = "the archive of the workspace";

#[derive(Debug, PartialEq, Eq)]
enum Room {
    Left,
    None,
}

struct Unpacking<'a> {
    into: Option<Beneath>,
    top: Top,
    sent: &'a Manifest,
    left: Option<u64>,
    seen: BTreeMap<Vec<u8>, Sent>,
    changes: Vec<Change>,
}

impl Unpacking<'_> {
    fn entry<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>) -> Result<Room, Trouble> {
        if self.top.0.is_none() {
            let learnt = self
                .top
                .learn(&entry.path_bytes(), entry.header().entry_type());
            return learnt.map(|()| Room::Left).map_err(|errno| Trouble::Here {
                path: ARCHIVE.to_owned(),
                errno,
            });
        }
        let Some(path) = self.top.below(&entry.path_bytes()) else {
            return Ok(Room::Left);
        };
        if self.seen.len() >= MOST_ENTRIES {
            return Ok(Room::None);
        }
        let mode = entry.header().mode().unwrap_or(0o644) & 0o777;
        let here = |errno| Trouble::Here {
            path: shown(&path),
            errno,
        };
        let found = match entry.header().entry_type() {
            EntryType::Directory => {
                if !matches!(self.sent.entries.get(&path), Some(Sent::Dir)) {
                    if let Some(into) = &self.into {
                        into.make_dir(&path, mode).map_err(here)?;
                    }
                    self.note(&path);
                }
                Sent::Dir
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                let found = Sent::Link { target };
                if self.sent.entries.get(&path) != Some(&found) {
                    if let (Some(into), Sent::Link { target }) = (&self.into, &found) {
                        into.make_link(&path, target).map_err(here)?;
                    }
                    self.note(&path);
                }
                found
            }
            EntryType::Regular | EntryType::Continuous => {
                let size = entry.size();
                if self.take(size) == Room::None {
                    return Ok(Room::None);
                }
                self.file(&path, mode, size, entry)?
            }
            EntryType::Link => match self.linked(entry) {
                Some((from, mode, contents)) => {
                    // One more name takes nothing in the container, and as much as the file here.
                    if self.take(contents.size) == Room::None {
                        return Ok(Room::None);
                    }
                    let found = Sent::File { mode, contents };
                    self.copy(&path, &from, &found)?;
                    found
                }
                None => return Ok(Room::Left),
            },
            // Pipes, devices and sockets stay where they were made.
            _ => return Ok(Room::Left),
        };
        self.seen.insert(path, found);
        Ok(Room::Left)
    }

    /// Takes so much of what may come.
    fn take(&mut self, size: u64) -> Room {
        let Some(left) = &mut self.left else {
            return Room::Left;
        };
        match left.checked_sub(size) {
            Some(rest) => {
                *left = rest;
                Room::Left
            }
            None => Room::None,
        }
    }

    /// Written without a name while it is read, and given one only if it is not what was sent.
    fn file(
        &mut self,
        path: &[u8],
        mode: u32,
        size: u64,
        from: &mut impl Read,
    ) -> Result<Sent, Trouble> {
        let here = |errno| Trouble::Here {
            path: shown(path),
            errno,
        };
        let new = match &self.into {
            Some(into) => Some(into.begin().map_err(here)?),
            None => None,
        };
        let copied = copy(from, new.as_ref()).and_then(|contents| match contents.size == size {
            true => Ok(contents),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        });
        let contents =
            copied.map_err(|error| here(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        let found = Sent::File { mode, contents };
        let is_changed = self.sent.entries.get(path) != Some(&found);
        if let (Some(into), Some(new), true) = (&self.into, new, is_changed) {
            into.place(new, path, mode).map_err(here)?;
        }
        if is_changed {
            self.note(path);
        }
        Ok(found)
    }

    /// A second name of a file that came before.
    fn linked<R: Read>(&self, entry: &tar::Entry<'_, R>) -> Option<(Vec<u8>, u32, Contents)> {
        let from = self.top.below(&entry.link_name_bytes()?)?;
        match *self.seen.get(&from)? {
            Sent::File { mode, contents } => Some((from, mode, contents)),
            Sent::Dir | Sent::Link { .. } => None,
        }
    }

    /// A second name becomes a second file: links between files of the caller's are not for a stranger to make.
    fn copy(&mut self, path: &[u8], from: &[u8], found: &Sent) -> Result<(), Trouble> {
        if self.sent.entries.get(path) == Some(found) {
            return Ok(());
        }
        self.note(path);
        let (Some(into), Sent::File { mode, .. }) = (&self.into, found) else {
            return Ok(());
        };
        let here = |errno| Trouble::Here {
            path: shown(path),
            errno,
        };
        let mut original = into.read(from).map_err(here)?;
        let new = into.begin().map_err(here)?;
        copy(&mut original, Some(&new))
            .map_err(|error| here(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        into.place(new, path, *mode).map_err(here)
    }

    /// What was sent and did not come back, the deepest first.
    fn remove_missing(&mut self) -> Result<(), Trouble> {
        for (path, _) in self.sent.entries.iter().rev() {
            if self.seen.contains_key(path) {
                continue;
            }
            if let Some(into) = &self.into {
                into.remove(path).map_err(|errno| Trouble::Here {
                    path: shown(path),
                    errno,
                })?;
            }
            self.changes.push(change(path, ChangeKind::Deleted));
        }
        Ok(())
    }

    fn note(&mut self, path: &[u8]) {
        let kind = match self.sent.entries.contains_key(path) {
            true => ChangeKind::Modified,
            false => ChangeKind::Added,
        };
        self.changes.push(change(path, kind));
    }

    fn finish(mut self, is_over: bool) -> Brought {
        self.changes.sort_by(|a, b| a.path.cmp(&b.path));
        Brought {
            changes: self.changes,
            is_over,
        }
    }
}

fn change(path: &[u8], kind: ChangeKind) -> Change {
    Change {
        path: backend::readable(path),
        kind,
    }
}

/// The parts of a name, without those that mean nothing; `None` for one that leads anywhere else.
fn parts(name: &[u8]) -> Option<Vec<&[u8]>> {
    let parts = name.split(|&byte| byte == b'/');
    let parts: Vec<&[u8]> = parts.filter(|part| !matches!(*part, b"" | b".")).collect();
    let is_strange = |part: &&[u8]| *part == b".." || part.contains(&0);
    (!parts.iter().any(is_strange)).then_some(parts)
}

/// What the archive calls the workspace itself, which comes first: `work/` from Docker, `/` from Podman. Everything else is below that.
#[derive(Debug, Default)]
struct Top(Option<Vec<Vec<u8>>>);

impl Top {
    /// The path below the workspace; `None` for the workspace itself and for what is not below it.
    fn below(&self, name: &[u8]) -> Option<Vec<u8>> {
        let top = self.0.as_ref()?;
        let parts = parts(name)?;
        let (first, rest) = parts.split_at_checked(top.len())?;
        let is_below = first == top.as_slice() && !rest.is_empty();
        is_below.then(|| rest.join(&b'/'))
    }

    /// Takes the first entry; one that is no directory is not a workspace.
    fn learn(&mut self, name: &[u8], kind: EntryType) -> Result<(), Errno> {
        let parts = parts(name).filter(|_| kind == EntryType::Directory);
        let parts = parts.ok_or(Errno::INVAL)?;
        self.0 = Some(parts.into_iter().map(<[u8]>::to_vec).collect());
        Ok(())
    }
}

fn copy(from: &mut impl Read, to: Option<&Unplaced>) -> io::Result<Contents> {
    let mut digest = Sha256::new();
    let mut size = 0;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let chunk = buffer.get(..read).unwrap_or_default();
        digest.update(chunk);
        size += read as u64;
        if let Some(to) = to {
            (&to.file).write_all(chunk)?;
        }
    }
    Ok(Contents {
        size,
        digest: digest.finalize().into(),
    })
}

/// An archive that comes in pieces.
struct Pieces {
    pieces: mpsc::Receiver<Piece>,
    rest: Bytes,
    is_whole: bool,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.pieces.blocking_recv() {
                Some(Piece::Bytes(piece)) => self.rest = piece,
                Some(Piece::End) => self.is_whole = true,
                None if self.is_whole => return Ok(0),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let most = self.rest.len().min(buffer.len());
        let piece = self.rest.split_to(most);
        if let Some(room) = buffer.get_mut(..most) {
            room.copy_from_slice(&piece);
        }
        Ok(most)
    }
}

#[cfg(test)]
#[path = "download_tests.rs"]
mod tests;
