//! The contract on an embedded EVM: what it promises, who may not, and what holds after whatever anybody does.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test file: what fails here fails the test"
)]

mod attacks;
mod money;
mod properties;
mod world;
