//! SHA-256 digests as registries write them, and readers that compute one of what passes through.

use std::fmt;
use std::io::{self, Read};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// `sha256:` and 64 hexadecimal digits; no other algorithm is known here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest {
    hex: String,
}

const PREFIX: &str = "sha256:";

impl Digest {
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix(PREFIX)?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (hex.len() == 64 && hex.bytes().all(is_hex)).then(|| Self {
            hex: hex.to_owned(),
        })
    }

    pub fn of(bytes: &[u8]) -> Self {
        Self {
            hex: HEXLOWER.encode(&Sha256::digest(bytes)),
        }
    }

    /// Without the algorithm: a plain file name.
    pub fn hex(&self) -> &str {
        &self.hex
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.hex)
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("is not sha256: and 64 hexadecimal digits")
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

/// Hashes what is read through it.
pub(crate) struct Hashing<R> {
    inner: R,
    state: Sha256,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            state: Sha256::new(),
        }
    }

    /// Of everything that was read.
    pub(crate) fn finish(self) -> Digest {
        Digest {
            hex: HEXLOWER.encode(&self.state.finalize()),
        }
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.state.update(buffer.get(..read).unwrap_or_default());
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_strictly_and_written_as_it_was() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::parse(empty), Some(Digest::of(b"")));
        assert_eq!(Digest::of(b"").to_string(), empty);
        let mut reader = Hashing::new(&b"abc"[..]);
        io::copy(&mut reader, &mut io::sink()).unwrap();
        assert_eq!(reader.finish(), Digest::of(b"abc"));
        let upper = empty.to_uppercase().replace("SHA", "sha");
        for bad in [
            "",
            "sha256:",
            "sha512:00",
            "sha256:../../etc",
            &upper,
            &empty[..70],
        ] {
            assert_eq!(Digest::parse(bad), None, "{bad}");
        }
    }
}
