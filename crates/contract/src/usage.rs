//! What a run used, as the kernel counted it. A figure that nothing measured is absent, never invented.

use std::time::Duration;

use crate::units::Bytes;

/// What a run used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub wall: Duration,
    /// Of the whole tree.
    pub cpu: Duration,
    /// The tree's peak where a cgroup counted it, otherwise the highest that was seen.
    pub memory_peak: Option<Bytes>,
    /// Processes and threads alive at once, at most.
    pub processes_peak: Option<u64>,
    /// Bytes that the program wrote to stdout and stderr and that we read, kept or not.
    pub output: Bytes,
    /// Scratch space in use at the end.
    pub disk: Option<Bytes>,
}

impl Default for Bytes {
    fn default() -> Self {
        Self::new(0)
    }
}
