//! How much of a run is kept, and who looks at it before.

use std::fmt;

use cofferdam_contract::units::Bytes;

/// Sizes are of the contents as the run sees them, except `total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactLimits {
    pub per_file: Bytes,
    pub per_run: Bytes,
    pub files: u64,
    /// Of the whole store, compressed and without duplicates.
    pub total: Bytes,
}

impl Default for ArtifactLimits {
    fn default() -> Self {
        Self {
            per_file: Bytes::new(10 << 20),
            per_run: Bytes::new(100 << 20),
            files: 1_000,
            total: Bytes::new(2 << 30),
        }
    }
}

/// Looks for secrets in the contents of one file while they are read.
pub trait Scan {
    /// The next bytes, in order. A secret may begin in one piece and end in the next.
    fn push(&mut self, bytes: &[u8]);

    /// There are no more. Called once, unless a secret was found before.
    fn end(&mut self) {}

    /// Asked after each piece, so that reading stops at the first secret.
    fn found(&self) -> bool;
}

/// Who looks for secrets.
pub trait Scanner {
    /// Begins with a file.
    fn begin(&self) -> Box<dyn Scan + '_>;
}

/// What is kept of a run.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    pub limits: ArtifactLimits,
    /// With `None`, nobody looks.
    pub scanner: Option<&'a dyn Scanner>,
    /// Asked before each file: whether the rest is left out. With `None`, never.
    pub give_up: Option<&'a dyn Fn() -> bool>,
}

impl fmt::Debug for Rules<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("limits", &self.limits)
            .field("scanner", &self.scanner.map(|_| "…"))
            .finish()
    }
}
