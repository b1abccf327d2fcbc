//! The bubblewrap backend: walls that the host's `bwrap` builds, limits that are ours.

mod arguments;
mod outer;

pub(crate) use outer::{TOOL_PROCESSES, draw, find};
