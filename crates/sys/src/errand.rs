//! What a sandbox is built for. It comes apart from the [`crate::blueprint::Blueprint`], since a sandbox can stand and wait before anybody knows what will run in it.

use rustix::process::Resource;

use crate::program::Program;

/// A program, and the limits that it carries itself.
#[derive(Debug)]
pub struct Errand {
    pub program: Program,
    /// Set before the program is executed; soft and hard.
    pub rlimits: Vec<(Resource, u64)>,
}
