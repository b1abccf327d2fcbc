//! Bonds on a real chain, by the command line and by the library: every verb, settling through whatever happens, a fleet whose rules are enforced there, and the demonstration.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test file: what fails here fails the test"
)]

mod demo;
mod node;
mod public;
mod settling;
#[path = "../../../chain/tests/settling/town.rs"]
mod town;
mod verbs;
mod world;
