//! Settling on a real chain (anvil), through outages, blocks that are taken back, prices that rise and a contract that refuses.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test file: what fails here fails the test"
)]

mod cases;
mod town;
mod world;
