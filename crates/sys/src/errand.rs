//! What a sandbox is built for. It comes apart from the [`crate::blueprint::Blueprint`], since a sandbox can stand and wait before anybody knows what will run in it.

use rustix::process::Resource;

use crate::program::Program;

/// A program, and the limits that it carries itself.
#[derive(Debug)]
pub struct Errand {
    pub program: Program,
    /// Set before the program is executed; soft and hard.
    pub rlimits: Vec<(Resource, u64)>,
    /// For a program that builds walls itself: what it leaves behind before it begins.
    pub departure: Option<Departure>,
}

/// Who starts a tool that builds walls: not us. It gets a fresh session keyring, and the descriptors of [`crate::blueprint::Blueprint::trees`] under their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    /// The user and group that it becomes, without any other group; `None` where we may only be ourselves.
    pub identity: Option<(u32, u32)>,
}
