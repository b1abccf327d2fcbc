//! The whole way of a payload: sealed, executed, verified; and every way in which a stranger can get it wrong or lie about it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test file: what fails here fails the test"
)]

mod answers;
mod bounds;
mod doctor;
mod exchange;
mod refused;
mod verified;
