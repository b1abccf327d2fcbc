//! The backend against a real Docker daemon, started by each test with everything of its own.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the functions beside a test are as much test as it is"
)]

mod endings;
mod files;
mod images;
mod limits;
mod podman;
mod streams;
mod support;
mod sweep;
mod trouble;
mod walls;
