//! `cofferdam serve` as its users meet it: the real process on a real port, as root and as an ordinary user, under load and under attack.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the functions beside a test are as much test as it is"
)]

mod api;
mod client;
mod daemon;
mod examples;
mod framing;
mod images;
mod load;
mod projects;
mod user;
#[cfg(feature = "wasm")]
mod wasm;
