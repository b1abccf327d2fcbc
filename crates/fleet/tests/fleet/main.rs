//! A fleet on a real server: agreement, lies, silence, crashes and restarts. What is promised: everything accepted ends, once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test file: what fails here fails the test"
)]

mod doors;
mod jobs;
mod lies;
mod needs;
mod rounds;
mod silence;
mod traps;
mod world;
