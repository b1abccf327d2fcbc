//! Modes: what each allows, refused by the rule's name before anything runs; caches as volumes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what helps a test may end it"
)]

mod burst;
mod caches;
mod disk_io;
mod gpu;
mod policy;
mod refusal;
mod refused;
mod serving;
