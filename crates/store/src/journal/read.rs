//! Reading a journal: of a run that has ended, that was cut off, or that still goes on. Whatever the file holds, reading it ends and nothing is made up.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::{CLOSING, FRAME_HEAD, LONGEST_FRAME, MAGIC, OPENING, OUTPUT};
use crate::data_dir::DataDir;
use crate::error::StoreError;
use crate::id::RunId;
use crate::log::{self, Chunk};
use crate::model::{Closing, Opening};

/// What a journal holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Read {
    /// Absent when whoever wrote it came no further than making the file: nothing had been started.
    pub opening: Option<Opening>,
    pub chunks: Vec<Chunk>,
    pub closing: Option<Closing>,
    /// How many bytes of it made sense.
    pub end: u64,
}

/// Whether somebody is still writing a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    Alive,
    Gone,
}

/// Opens without following a link and without waiting for a pipe: the directory is ours, but nothing is lost by care.
fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// A journal as whoever adopts it finds it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Found {
    /// Somebody writes it; only its opening is read, since the rest is not whole yet and may be long.
    Alive(Read),
    /// Nobody does any more.
    Left(Read),
    /// It has no whole first frame, and somebody holds it.
    BeingMade,
    /// It has no whole first frame: it is just being made, or its maker was killed before anything was started.
    Unborn,
    /// It begins as none of ours does, or what it begins with is damaged.
    NotUnderstood,
}

/// Reads a journal under its lock, if nobody else has it. The lock is gone when this returns: who acts on what was found must know that nobody has begun to write meanwhile.
pub(crate) fn look(path: &Path) -> io::Result<Found> {
    let mut file = open(path)?;
    let writer = lock(&file)?;
    let at_most = match writer {
        // The frame that passes this is the first.
        Writer::Alive => 1,
        Writer::Gone => u64::MAX,
    };
    let read = read_from(&mut file, 0, at_most)?;
    if read.opening.is_none() && writer == Writer::Alive {
        return Ok(Found::BeingMade);
    }
    if read.opening.is_none() {
        return Ok(if is_beginning(&mut file)? {
            Found::Unborn
        } else {
            Found::NotUnderstood
        });
    }
    Ok(match writer {
        Writer::Alive => Found::Alive(read),
        Writer::Gone => Found::Left(read),
    })
}

/// Makes place for a run that begins anew, because whoever was to run it was killed before it had begun. For whoever knows that nobody else runs it now.
pub fn remove_unborn(dir: &DataDir, run: RunId) -> Result<(), StoreError> {
    const TRIES: usize = 100;
    let path = super::path(dir, run);
    for _ in 0..TRIES {
        match look(&path) {
            Ok(Found::Unborn) => {
                return std::fs::remove_file(&path).map_err(StoreError::io("remove", &path));
            }
            // The kernel is about to end what holds it.
            Ok(Found::BeingMade) => std::thread::sleep(std::time::Duration::from_millis(10)),
            Ok(Found::Alive(_) | Found::Left(_) | Found::NotUnderstood) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(StoreError::io("read", &path)(error)),
        }
    }
    Ok(())
}

/// Removes a journal whose writer was killed in the middle of taking in what is known elsewhere, so that it is taken in again and whole. For whoever knows that nobody else writes it.
pub fn remove_unfinished(dir: &DataDir, run: RunId) -> Result<(), StoreError> {
    let path = super::path(dir, run);
    match look(&path) {
        Ok(Found::Left(read)) if read.closing.is_none() => {
            std::fs::remove_file(&path).map_err(StoreError::io("remove", &path))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(StoreError::io("read", &path)(error)),
    }
}

/// Whether this could be the beginning of a journal: nothing, part of the magic, or part of a first frame.
fn is_beginning(file: &mut File) -> io::Result<bool> {
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(0))?;
    let mut head = Vec::new();
    let longest = MAGIC.len() + FRAME_HEAD;
    file.take(u64::try_from(longest).unwrap_or(0))
        .read_to_end(&mut head)?;
    let Some((magic, frame)) = head.split_first_chunk::<{ MAGIC.len() }>() else {
        return Ok(MAGIC.starts_with(&head));
    };
    let Some((length, _)) = frame.split_first_chunk::<4>() else {
        return Ok(magic == MAGIC);
    };
    let whole = u64::try_from(longest).unwrap_or(0) + u64::from(u32::from_le_bytes(*length));
    Ok(magic == MAGIC && size < whole)
}

/// The lock goes with the file.
fn lock(file: &File) -> io::Result<Writer> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Writer::Gone),
        Err(Errno::WOULDBLOCK) => Ok(Writer::Alive),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
pub(crate) fn writer(path: &Path) -> io::Result<Writer> {
    lock(&open(path)?)
}

/// The journal of a run, if it is still there.
pub fn of_run(dir: &DataDir, run: RunId) -> Result<Option<Read>, StoreError> {
    Ok(follow(dir, run, 0)?.map(|(read, _)| read))
}

/// What came after `from`, where an earlier call ended, and whether more may come. `None` when the journal has been adopted.
pub fn follow(dir: &DataDir, run: RunId, from: u64) -> Result<Option<(Read, Writer)>, StoreError> {
    follow_some(dir, run, from, u64::MAX)
}

/// The same, no more than a frame beyond `at_most` bytes of it, for whoever reads slower than it can be read.
pub fn follow_some(
    dir: &DataDir,
    run: RunId,
    from: u64,
    at_most: u64,
) -> Result<Option<(Read, Writer)>, StoreError> {
    let path = super::path(dir, run);
    // Asked before reading: what a writer wrote last is there when it is gone.
    let found = open(&path).and_then(|mut file| {
        let writer = lock(&file)?;
        let read = read_from(&mut file, from, at_most)?;
        let is_still = is_still(&file, &path, from.max(read.end))?;
        Ok((read, writer, is_still))
    });
    match found {
        Ok((read, writer, is_still)) => {
            let is_other = |opening: &Opening| opening.run_id != run;
            let is_known = is_still && !read.opening.as_ref().is_some_and(is_other);
            Ok(is_known.then_some((read, writer)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io("read", path)(error)),
    }
}

/// Whether the file is still what its name names, and whole: while it was read without a lock, its run may have ended and been adopted, and the file emptied for another.
fn is_still(file: &File, path: &Path, seen: u64) -> io::Result<bool> {
    let ours = file.metadata()?;
    let named = std::fs::symlink_metadata(path)?;
    let is_same = (ours.dev(), ours.ino()) == (named.dev(), named.ino());
    Ok(is_same && ours.len() >= seen)
}

fn read_from(file: &mut File, from: u64, at_most: u64) -> io::Result<Read> {
    let mut found = Read::default();
    if !file.metadata()?.is_file() {
        return Ok(found);
    }
    file.seek(SeekFrom::Start(from))?;
    let mut file = io::BufReader::new(file);
    if from == 0 {
        let mut magic = [0; MAGIC.len()];
        if file.read_exact(&mut magic).is_err() || magic != *MAGIC {
            return Ok(found);
        }
        found.end = u64::try_from(MAGIC.len()).unwrap_or(0);
    } else {
        found.end = from;
    }
    while let Some(body) = next_body(&mut file)? {
        if !take(&mut found, &body) {
            break;
        }
        found.end += u64::try_from(FRAME_HEAD + body.len()).unwrap_or(0);
        if found.end.saturating_sub(from) >= at_most {
            break;
        }
    }
    Ok(found)
}

/// `None` at the end, and where a frame is not whole.
fn next_body(file: &mut impl io::Read) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; FRAME_HEAD];
    match file.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let [a, b, c, d, e, f, g, h] = head;
    let length = u32::from_le_bytes([a, b, c, d]);
    let checksum = u32::from_le_bytes([e, f, g, h]);
    let fits = usize::try_from(length).is_ok_and(|length| length <= LONGEST_FRAME);
    if !fits {
        return Ok(None);
    }
    let mut body = Vec::new();
    file.take(u64::from(length)).read_to_end(&mut body)?;
    let whole = u32::try_from(body.len()) == Ok(length) && super::checksum(&body) == checksum;
    Ok(whole.then_some(body))
}

/// False where the frame makes no sense; nothing after it is believed.
fn take(found: &mut Read, body: &[u8]) -> bool {
    let Some((kind, content)) = body.split_first() else {
        return false;
    };
    match *kind {
        OPENING => match serde_json::from_slice(content) {
            Ok(opening) => {
                found.opening = Some(opening);
                true
            }
            Err(_) => false,
        },
        OUTPUT => match log::decode(content) {
            Ok(chunks) => {
                found.chunks.extend(chunks);
                true
            }
            Err(_) => false,
        },
        CLOSING => match serde_json::from_slice(content) {
            Ok(closing) => {
                found.closing = Some(closing);
                true
            }
            Err(_) => false,
        },
        _ => false,
    }
}
