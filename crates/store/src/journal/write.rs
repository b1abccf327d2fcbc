//! Writing a journal. Two system calls for a run that says nothing: one makes and one ends the record; what is written is never read back here.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cofferdam_contract::ending::Stream;
use cofferdam_contract::units::Bytes;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;

use super::free;
use super::{CLOSING, FRAME_HEAD, LONGEST_FRAME, MAGIC, OPENING, OUTPUT};
use crate::data_dir::DataDir;
use crate::error::StoreError;
use crate::log;
use crate::model::{Closing, Opening, StreamSeen};
use crate::sift::redact::{Redactor, Rules};

/// The journal of a run that goes on. What is given to it is redacted first; there is no way around that.
#[derive(Debug)]
pub struct Journal {
    file: OwnedFd,
    path: PathBuf,
    rules: Rules,
    since: Instant,
    stdout: StreamLog,
    stderr: StreamLog,
    /// How many bytes of output may still be written.
    room: u64,
    /// Where the opening ends, and where the last whole frame does.
    opened: u64,
    good: u64,
    /// Why output is no longer written.
    trouble: Option<Errno>,
    frame: Vec<u8>,
}

/// Whether a journal takes any more output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    Left,
    Full,
}

#[derive(Debug, Default)]
struct StreamLog {
    /// Made when the first byte comes: most runs say little.
    redactor: Option<Redactor>,
    seen: StreamSeen,
    /// Whether the program wrote more than came here. Then what is still being looked at may be half a secret.
    is_cut: bool,
}

impl Journal {
    /// Makes the journal and writes down that the run is about to begin.
    pub fn begin(
        dir: &DataDir,
        opening: &Opening,
        rules: Rules,
        at_most: Bytes,
    ) -> Result<Self, StoreError> {
        let path = super::path(dir, opening.run_id);
        let taken = free::take(dir, opening.run_id, &path);
        let file = match taken.and_then(|taken| taken.map_or_else(|| create(&path), Ok)) {
            Err(Errno::NOENT) => {
                dir.create()?;
                create(&path)
            }
            other => other,
        };
        let failed = |errno: Errno| StoreError::io("write", &path)(errno.into());
        let file = file.map_err(failed)?;
        let mut journal = Self {
            file,
            path: path.clone(),
            rules,
            since: Instant::now(),
            stdout: StreamLog::default(),
            stderr: StreamLog::default(),
            room: at_most.get(),
            opened: 0,
            good: 0,
            trouble: None,
            frame: MAGIC.to_vec(),
        };
        let begun = take_lock(&journal.file).and_then(|()| journal.put_document(OPENING, opening));
        if let Err(errno) = begun {
            let _ = rustix::fs::unlink(&path);
            return Err(failed(errno));
        }
        journal.opened = journal.good;
        Ok(journal)
    }

    /// Whether there is any use in reading output for this journal.
    pub fn room(&self) -> Room {
        if self.room > 0 && self.trouble.is_none() {
            Room::Left
        } else {
            Room::Full
        }
    }

    /// Takes what the program wrote. Trouble with the disk is kept for the end: the program must not notice.
    pub fn output(&mut self, stream: Stream, bytes: &[u8]) {
        let amount = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let taken = if self.trouble.is_some() {
            0
        } else {
            amount.min(self.room)
        };
        self.room -= taken;
        let log = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        log.seen.bytes += amount;
        log.seen.lost += amount - taken;
        log.is_cut |= taken < amount;
        let taken = bytes.get(..usize::try_from(taken).unwrap_or(usize::MAX));
        let taken = taken.unwrap_or(bytes);
        if taken.is_empty() {
            return;
        }
        let mut clean = Vec::with_capacity(taken.len());
        let redactor = log
            .redactor
            .get_or_insert_with(|| Redactor::new(&self.rules));
        redactor.push(taken, &mut clean);
        self.put_output(stream, &clean);
    }

    /// Counts what went past without being read, because there was no room.
    pub fn passed(&mut self, stream: Stream, amount: u64) {
        let log = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        log.seen.bytes += amount;
        log.seen.lost += amount;
        log.is_cut = true;
    }

    /// The program wrote more than was read.
    pub fn cut(&mut self, stream: Stream) {
        match stream {
            Stream::Stdout => self.stdout.is_cut = true,
            Stream::Stderr => self.stderr.is_cut = true,
        }
    }

    /// Writes down how the run ended. When the disk is full, output makes room for it: how a run ended matters more than what it said.
    pub fn finish(mut self, mut closing: Closing) -> Result<(), StoreError> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.flush(stream);
        }
        closing.redactions += self.redactions();
        closing.stdout = self.stdout.seen;
        closing.stderr = self.stderr.seen;
        if self.put_document(CLOSING, &closing).is_ok() {
            return self.still_there();
        }
        for seen in [&mut closing.stdout, &mut closing.stderr] {
            seen.lost = seen.bytes;
        }
        let again = rustix::fs::ftruncate(&self.file, self.opened).and_then(|()| {
            self.good = self.opened;
            self.put_document(CLOSING, &closing)
        });
        again.map_err(|errno| StoreError::io("write", &self.path)(errno.into()))?;
        self.still_there()
    }

    /// Whoever removes the directory meanwhile removes the record with it.
    fn still_there(&self) -> Result<(), StoreError> {
        let gone = || std::io::Error::other("it was removed while the run went on");
        match rustix::fs::fstat(&self.file) {
            Ok(stat) if stat.st_nlink == 0 => Err(StoreError::io("keep", &self.path)(gone())),
            Ok(_) => Ok(()),
            Err(errno) => Err(StoreError::io("look at", &self.path)(errno.into())),
        }
    }

    fn flush(&mut self, stream: Stream) {
        let log = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let mut clean = Vec::new();
        if let Some(redactor) = &mut log.redactor {
            redactor.finish(&mut clean);
        }
        if log.is_cut {
            log.seen.lost += u64::try_from(clean.len()).unwrap_or(u64::MAX);
            clean.clear();
        }
        self.put_output(stream, &clean);
    }

    fn redactions(&self) -> u64 {
        let of = |log: &StreamLog| log.redactor.as_ref().map_or(0, Redactor::count);
        of(&self.stdout) + of(&self.stderr)
    }

    fn put_output(&mut self, stream: Stream, clean: &[u8]) {
        if clean.is_empty() || self.trouble.is_some() {
            return;
        }
        let at = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        let start = self.begin_frame(OUTPUT);
        log::encode_into(&mut self.frame, stream, at, clean);
        // Many small pieces must not make a large file.
        let beside = self.frame.len().saturating_sub(clean.len());
        self.room = self.room.saturating_sub(u64::try_from(beside).unwrap_or(0));
        if let Err(errno) = self.end_frame(start) {
            self.trouble = Some(errno);
            let log = match stream {
                Stream::Stdout => &mut self.stdout,
                Stream::Stderr => &mut self.stderr,
            };
            log.seen.lost += u64::try_from(clean.len()).unwrap_or(u64::MAX);
        }
    }

    fn put_document(&mut self, kind: u8, document: &impl Serialize) -> Result<(), Errno> {
        let start = self.begin_frame(kind);
        serde_json::to_writer(&mut self.frame, document).map_err(|_| Errno::INVAL)?;
        self.end_frame(start)
    }

    fn begin_frame(&mut self, kind: u8) -> usize {
        let start = self.frame.len();
        self.frame.extend_from_slice(&[0; FRAME_HEAD]);
        self.frame.push(kind);
        start
    }

    /// Fills in length and checksum and writes everything that waits, in one call. What could not be written whole is taken back, so that a later frame can be found.
    fn end_frame(&mut self, start: usize) -> Result<(), Errno> {
        let body = self.frame.get(start + FRAME_HEAD..).unwrap_or_default();
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        if body.len() > LONGEST_FRAME {
            // No reader would take it.
            self.frame.clear();
            return Err(Errno::FBIG);
        }
        let checksum = super::checksum(body);
        if let Some(head) = self.frame.get_mut(start..start + FRAME_HEAD) {
            let (first, second) = head.split_at_mut(4);
            first.copy_from_slice(&length.to_le_bytes());
            second.copy_from_slice(&checksum.to_le_bytes());
        }
        let written = write_all(&self.file, &self.frame);
        match written {
            Ok(()) => self.good += u64::try_from(self.frame.len()).unwrap_or(0),
            Err(_) => {
                let _ = rustix::fs::ftruncate(&self.file, self.good);
            }
        }
        self.frame.clear();
        written
    }
}

/// Appending, so that taking back the end of the file also moves where the next frame goes.
fn create(path: &std::path::Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
}

/// Whoever looks at the new file holds it for a moment; one that is stopped in that moment does not hold up the run.
fn take_lock(file: &OwnedFd) -> Result<(), Errno> {
    const PATIENCE: Duration = Duration::from_secs(5);
    const NAP: Duration = Duration::from_micros(200);
    let until = Instant::now() + PATIENCE;
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(NAP),
            other => return other,
        }
    }
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
