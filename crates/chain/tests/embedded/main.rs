//! A chain of one's own: it does with transactions what another node does, loses nothing, and says what is wrong with a question.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test file: what fails here fails the test"
)]

mod beside_anvil;
mod questions;
mod settling;
mod world;
