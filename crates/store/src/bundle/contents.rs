//! One file of a bundle while it is read. It fails at its end, or before, when it is not what the archive and the manifest say; so whoever has read to the end has the right bytes.

use std::io::{self, BufReader, Read, Take};

use flate2::bufread::DeflateDecoder;
use sha2::Digest as _;

use crate::model::Digest;

use super::archive::{Entry, Method};
use super::format::EntryName;
use super::headers::bad;

type Compressed<'a> = BufReader<Take<&'a mut dyn Read>>;

enum Decoder<'a> {
    Stored(Compressed<'a>),
    Deflated(Box<DeflateDecoder<Compressed<'a>>>),
}

/// Reads, counts and checks.
pub(super) struct Contents<'a> {
    decoder: Decoder<'a>,
    name: EntryName,
    expected_bytes: u64,
    expected_crc32: u32,
    compressed: u64,
    /// Of the manifest; itself it has none there.
    expected_sha256: Option<Digest>,
    seen: u64,
    crc32: crc32fast::Hasher,
    sha256: sha2::Sha256,
}

impl<'a> Contents<'a> {
    pub(super) fn new(file: &'a mut dyn Read, entry: &Entry) -> Self {
        let compressed = BufReader::with_capacity(32 << 10, file.take(entry.compressed));
        Self {
            decoder: match entry.method {
                Method::Stored => Decoder::Stored(compressed),
                Method::Deflated => Decoder::Deflated(Box::new(DeflateDecoder::new(compressed))),
            },
            name: entry.name,
            expected_bytes: entry.bytes,
            expected_crc32: entry.crc32,
            compressed: entry.compressed,
            expected_sha256: None,
            seen: 0,
            crc32: crc32fast::Hasher::new(),
            sha256: sha2::Sha256::new(),
        }
    }

    pub(super) fn expecting(mut self, sha256: Digest) -> Self {
        self.expected_sha256 = Some(sha256);
        self
    }

    fn at_end(&self) -> io::Result<()> {
        let name = self.name;
        if self.seen != self.expected_bytes {
            return Err(bad(format!(
                "`{name}` has {} bytes and should have {}",
                self.seen, self.expected_bytes
            )));
        }
        if self.crc32.clone().finalize() != self.expected_crc32 {
            return Err(bad(format!("`{name}` is damaged: its checksum is wrong")));
        }
        if let Decoder::Deflated(decoder) = &self.decoder
            && decoder.total_in() != self.compressed
        {
            return Err(bad(format!("`{name}` has something after its end")));
        }
        let sha256 = Digest(self.sha256.clone().finalize().into());
        match self.expected_sha256 {
            Some(expected) if expected != sha256 => Err(bad(format!(
                "`{name}` is not what the manifest says: its SHA-256 is {sha256}"
            ))),
            _ => Ok(()),
        }
    }
}

impl Read for Contents<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let got = match &mut self.decoder {
            Decoder::Stored(from) => from.read(into),
            Decoder::Deflated(from) => from.read(into),
        }?;
        let new = into.get(..got).unwrap_or_default();
        self.seen = self
            .seen
            .saturating_add(u64::try_from(got).unwrap_or(u64::MAX));
        // A bomb stops here, not when it has gone off.
        if got == 0 || self.seen > self.expected_bytes {
            self.at_end()?;
        }
        self.crc32.update(new);
        self.sha256.update(new);
        Ok(got)
    }
}
