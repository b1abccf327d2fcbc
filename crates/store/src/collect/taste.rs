//! What is learned of a file while its contents go into the store: how they begin, and whether they hold a secret.

use std::io::{self, Read};

use super::limits::Scan;

/// Passes contents on. At the first secret it fails, so that no more of the file is read or written.
pub(super) struct Taste<'a, R> {
    from: R,
    /// Until the end.
    scan: Option<Box<dyn Scan + 'a>>,
    beginning: Vec<u8>,
    verdict: Verdict,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Clean,
    Secret,
    /// The file could not be read; what, for people.
    Unreadable(String),
}

/// Enough for every magic number, and to tell text from other bytes.
const BEGINNING: usize = 8 << 10;

impl<'a, R: Read> Taste<'a, R> {
    pub(super) fn new(from: R, scan: Option<Box<dyn Scan + 'a>>) -> Self {
        Self {
            from,
            scan,
            beginning: Vec::new(),
            verdict: Verdict::Clean,
        }
    }

    pub(super) fn into_parts(self) -> (Vec<u8>, Verdict) {
        (self.beginning, self.verdict)
    }

    fn taste(&mut self, piece: &[u8]) {
        let room = BEGINNING.saturating_sub(self.beginning.len());
        self.beginning
            .extend_from_slice(piece.get(..room).unwrap_or(piece));
        let Some(mut scan) = self.scan.take() else {
            return;
        };
        if piece.is_empty() {
            scan.end();
        } else {
            scan.push(piece);
        }
        if scan.found() {
            self.verdict = Verdict::Secret;
        }
        if !piece.is_empty() {
            self.scan = Some(scan);
        }
    }
}

impl<R: Read> Read for Taste<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let read = match self.from.read(into) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => {
                self.verdict = Verdict::Unreadable(error.to_string());
                return Err(error);
            }
        };
        self.taste(into.get(..read).unwrap_or_default());
        match self.verdict {
            Verdict::Clean => Ok(read),
            Verdict::Secret | Verdict::Unreadable(_) => Err(io::Error::other("a secret")),
        }
    }
}
