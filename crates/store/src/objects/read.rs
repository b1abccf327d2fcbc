//! Reading contents back. Nothing that does not have its digest is delivered as whole.

use std::fmt;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use flate2::read::DeflateDecoder;
use sha2::Digest as _;

use super::format::{Form, HEAD, Head};
use crate::error::StoreError;
use crate::model::Digest;

/// A stream of checked contents.
///
/// Up to 8 MiB are checked before the first byte is delivered. Beyond that, the check comes with the last bytes: if it fails, they are not delivered, and the read fails with
/// `InvalidData`. So whoever reaches the end without an error has read what was stored; whoever stops before has read unchecked bytes.
#[derive(Debug)]
pub struct ObjectReader {
    bytes: u64,
    from: Source,
}

#[derive(Debug)]
enum Source {
    Checked(Cursor<Vec<u8>>),
    Unchecked(Box<Unchecked>),
}

struct Unchecked {
    path: PathBuf,
    digest: Digest,
    contents: Contents,
    hash: sha2::Sha256,
    left: u64,
}

enum Contents {
    Plain(File),
    Deflate(Box<DeflateDecoder<File>>),
}

const CHECKED_FIRST: u64 = 8 << 20;

impl ObjectReader {
    pub(super) fn open(path: PathBuf, digest: &Digest) -> Result<Self, StoreError> {
        let (head, file) = open(&path)?;
        let mut unchecked = Unchecked {
            path,
            digest: *digest,
            contents: Contents::of(head, file),
            hash: sha2::Sha256::new(),
            left: head.bytes,
        };
        let from = if head.bytes <= CHECKED_FIRST {
            Source::Checked(Cursor::new(unchecked.read_all()?))
        } else {
            Source::Unchecked(Box::new(unchecked))
        };
        Ok(Self {
            bytes: head.bytes,
            from,
        })
    }

    /// How long the contents are.
    pub fn length(&self) -> u64 {
        self.bytes
    }
}

impl Read for ObjectReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.from {
            Source::Checked(contents) => contents.read(into),
            Source::Unchecked(contents) => contents.read(into).map_err(as_io),
        }
    }
}

/// All of the contents, checked.
pub(super) fn whole(path: &Path, digest: &Digest) -> Result<Vec<u8>, StoreError> {
    let (head, file) = open(path)?;
    let mut unchecked = Unchecked {
        path: path.to_owned(),
        digest: *digest,
        contents: Contents::of(head, file),
        hash: sha2::Sha256::new(),
        left: head.bytes,
    };
    unchecked.read_all()
}

fn open(path: &Path) -> Result<(Head, File), StoreError> {
    let failed = || StoreError::io("read", path);
    let mut file = File::open(path).map_err(failed())?;
    let size = file.metadata().map_err(failed())?.len();
    let mut head = [0; HEAD];
    match file.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(damaged(path, "it has no whole head"));
        }
        Err(error) => return Err(failed()(error)),
    }
    let head = Head::read(&head, size).map_err(|why| damaged(path, why))?;
    Ok((head, file))
}

fn damaged(path: &Path, why: &str) -> StoreError {
    StoreError::Damaged {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}

fn as_io(error: StoreError) -> io::Error {
    match error {
        StoreError::Io { source, .. } => source,
        damaged => io::Error::new(io::ErrorKind::InvalidData, damaged),
    }
}

impl Contents {
    fn of(head: Head, file: File) -> Self {
        match head.form {
            Form::Plain => Self::Plain(file),
            Form::Deflate => Self::Deflate(Box::new(DeflateDecoder::new(file))),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(into),
            Self::Deflate(decoder) => decoder.read(into),
        }
    }
}

impl Unchecked {
    fn read_all(&mut self) -> Result<Vec<u8>, StoreError> {
        // The length is a claim until it is checked, so room is made as the contents come.
        let room = usize::try_from(self.left.min(1 << 20)).unwrap_or(0);
        let mut contents = Vec::with_capacity(room);
        let mut piece = vec![0; usize::try_from(self.left.min(64 << 10)).unwrap_or(0)];
        loop {
            match self.read(&mut piece)? {
                0 => return Ok(contents),
                read => contents.extend_from_slice(piece.get(..read).unwrap_or_default()),
            }
        }
    }

    /// Like [`Read::read`]; the last bytes come only when all of them are what was stored.
    fn read(&mut self, into: &mut [u8]) -> Result<usize, StoreError> {
        if self.left == 0 {
            // Again each time: an end that was bad once stays bad. And contents of no length have only this.
            self.check_end()?;
            return Ok(0);
        }
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX);
        let wanted = wanted.min(into.len());
        let into = into.get_mut(..wanted).unwrap_or_default();
        if into.is_empty() {
            return Ok(0);
        }
        let read = self.read_some(into)?;
        if read == 0 {
            return Err(damaged(&self.path, "it ends before its end"));
        }
        self.hash.update(into.get(..read).unwrap_or_default());
        self.left -= u64::try_from(read).unwrap_or(self.left);
        if self.left == 0 {
            self.check_end()?;
        }
        Ok(read)
    }

    fn read_some(&mut self, into: &mut [u8]) -> Result<usize, StoreError> {
        loop {
            match self.contents.read(into) {
                Ok(read) => return Ok(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error().is_some() => {
                    return Err(StoreError::io("read", &self.path)(error));
                }
                Err(_) => return Err(damaged(&self.path, "it cannot be unpacked")),
            }
        }
    }

    fn check_end(&mut self) -> Result<(), StoreError> {
        if self.read_some(&mut [0])? != 0 {
            return Err(damaged(&self.path, "it goes on after its end"));
        }
        let found = Digest(self.hash.clone().finalize().into());
        if found == self.digest {
            Ok(())
        } else {
            Err(damaged(&self.path, "its contents have another checksum"))
        }
    }
}

impl fmt::Debug for Unchecked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unchecked")
            .field("path", &self.path)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}
