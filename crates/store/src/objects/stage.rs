//! Contents on their way into the store: read, hashed and compressed, but without a name until somebody commits to them.

use std::borrow::Cow;
use std::io::{self, BufWriter, Read, Seek as _, SeekFrom, Write};

use flate2::write::DeflateEncoder;
use sha2::Digest as _;
use tempfile::NamedTempFile;

use super::format::{self, Form, HEAD, Head};
use super::shelf::{Objects, Stored};
use crate::error::StoreError;
use crate::model::Digest;

/// Contents that are read and not yet kept. Dropped without [`Staged::commit`], nothing is left of them.
#[derive(Debug)]
pub struct Staged<'a> {
    objects: &'a Objects,
    digest: Digest,
    head: Head,
    body: Body<'a>,
}

#[derive(Debug)]
pub enum Staging<'a> {
    Ready(Staged<'a>),
    /// There was more than allowed. Nothing is left of it.
    TooLarge,
}

#[derive(Debug)]
enum Body<'a> {
    Memory(Cow<'a, [u8]>),
    /// Already written, head and all.
    File(NamedTempFile),
}

/// Up to this size contents stay in memory until they are kept, so that those which are there already cost no writing.
const IN_MEMORY: usize = 256 << 10;

const PIECE: usize = 64 << 10;

impl<'a> Staged<'a> {
    pub(super) fn of(
        objects: &'a Objects,
        digest: Digest,
        contents: Cow<'a, [u8]>,
    ) -> Result<Self, StoreError> {
        let bytes = length(&contents);
        let packed =
            format::pack(&contents).map_err(StoreError::io("compress for", objects.dir()))?;
        let (form, body) = match packed {
            Some(packed) => (Form::Deflate, Cow::Owned(packed)),
            None => (Form::Plain, contents),
        };
        Ok(Self {
            objects,
            digest,
            head: Head {
                form,
                bytes,
                stored: length(&body),
            },
            body: Body::Memory(body),
        })
    }

    pub(super) fn read(
        objects: &'a Objects,
        mut from: impl Read,
        at_most: u64,
    ) -> Result<Staging<'a>, StoreError> {
        let unread = || StoreError::io("read what is to be stored in", objects.dir());
        let in_memory = u64::try_from(IN_MEMORY).unwrap_or(u64::MAX);
        let mut beginning = Vec::new();
        from.by_ref()
            .take(in_memory.min(at_most).saturating_add(1))
            .read_to_end(&mut beginning)
            .map_err(unread())?;
        if length(&beginning) > at_most {
            return Ok(Staging::TooLarge);
        }
        if beginning.len() <= IN_MEMORY {
            let digest = Digest::of(&beginning);
            return Self::of(objects, digest, Cow::Owned(beginning)).map(Staging::Ready);
        }
        let form = if format::shrinks(&beginning).map_err(unread())? {
            Form::Deflate
        } else {
            Form::Plain
        };
        let mut writing = Writing::begin(objects, form)?;
        writing.push(&beginning)?;
        drop(beginning);
        let mut piece = vec![0; PIECE];
        loop {
            let read = match from.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(unread()(error)),
            };
            let read = piece.get(..read).unwrap_or_default();
            if writing.bytes.saturating_add(length(read)) > at_most {
                return Ok(Staging::TooLarge);
            }
            writing.push(read)?;
        }
        writing.finish().map(Staging::Ready)
    }

    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    pub fn bytes(&self) -> u64 {
        self.head.bytes
    }

    /// How much larger the store gets by keeping them: nothing, where it has them already.
    pub fn adds(&self) -> u64 {
        if self.objects.contains(&self.digest) {
            0
        } else {
            self.stored().stored_bytes
        }
    }

    pub fn commit(self) -> Result<Stored, StoreError> {
        if let Some(stored) = self.objects.known(&self.digest)? {
            return Ok(stored);
        }
        let stored = self.stored();
        let file = match self.body {
            Body::File(file) => file,
            Body::Memory(body) => {
                let mut file = self.objects.new_file()?;
                let written = file
                    .write_all(&self.head.to_bytes())
                    .and_then(|()| file.write_all(&body));
                written.map_err(StoreError::io("write", self.objects.path(&self.digest)))?;
                file
            }
        };
        self.objects.shelve(file, stored)
    }

    fn stored(&self) -> Stored {
        Stored {
            digest: self.digest,
            bytes: self.head.bytes,
            stored_bytes: self.head.file_bytes().unwrap_or(u64::MAX),
        }
    }
}

/// Contents that go to a file while they are read.
struct Writing<'a> {
    objects: &'a Objects,
    form: Form,
    to: Encoder,
    hash: sha2::Sha256,
    bytes: u64,
}

enum Encoder {
    Plain(BufWriter<NamedTempFile>),
    Deflate(DeflateEncoder<BufWriter<NamedTempFile>>),
}

impl<'a> Writing<'a> {
    fn begin(objects: &'a Objects, form: Form) -> Result<Self, StoreError> {
        let mut file = BufWriter::with_capacity(PIECE, objects.new_file()?);
        // The lengths are known at the end.
        file.write_all(&[0; HEAD])
            .map_err(StoreError::io("write to", objects.dir()))?;
        let to = match form {
            Form::Plain => Encoder::Plain(file),
            Form::Deflate => Encoder::Deflate(DeflateEncoder::new(file, format::level())),
        };
        Ok(Self {
            objects,
            form,
            to,
            hash: sha2::Sha256::new(),
            bytes: 0,
        })
    }

    fn push(&mut self, piece: &[u8]) -> Result<(), StoreError> {
        self.hash.update(piece);
        self.bytes = self.bytes.saturating_add(length(piece));
        let written = match &mut self.to {
            Encoder::Plain(file) => file.write_all(piece),
            Encoder::Deflate(encoder) => encoder.write_all(piece),
        };
        written.map_err(StoreError::io("write to", self.objects.dir()))
    }

    fn finish(self) -> Result<Staged<'a>, StoreError> {
        let failed = || StoreError::io("write to", self.objects.dir());
        let file = match self.to {
            Encoder::Plain(file) => file,
            Encoder::Deflate(encoder) => encoder.finish().map_err(failed())?,
        };
        let mut file = file.into_inner().map_err(|e| failed()(e.into_error()))?;
        let end = file.stream_position().map_err(failed())?;
        let head = Head {
            form: self.form,
            bytes: self.bytes,
            stored: end.saturating_sub(u64::try_from(HEAD).unwrap_or(0)),
        };
        file.seek(SeekFrom::Start(0))
            .and_then(|_| file.write_all(&head.to_bytes()))
            .map_err(failed())?;
        Ok(Staged {
            objects: self.objects,
            digest: Digest(self.hash.finalize().into()),
            head,
            body: Body::File(file),
        })
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
