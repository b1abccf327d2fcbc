//! What was sent of a workspace, to tell afterwards what the program changed.

use std::collections::BTreeMap;

/// Everything that was sent, by its path relative to the workspace.
#[derive(Debug, Default)]
pub(crate) struct Manifest {
    pub(crate) entries: BTreeMap<Vec<u8>, Sent>,
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sent {
    Dir,
    File { mode: u32, contents: Contents },
    Link { target: Vec<u8> },
}

/// A file's contents, without keeping them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) size: u64,
    pub(crate) digest: [u8; 32],
}

/// Not above this many, on the way in and on the way back.
pub(crate) const MOST_ENTRIES: usize = 1_000_000;
