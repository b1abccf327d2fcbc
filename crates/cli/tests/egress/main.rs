//! The network of a run, with real servers and real clients: what is allowed is reached, by programs that know of proxies and by those that do not; nothing else is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on fails, with the reason"
)]

mod bounds;
#[cfg(feature = "wasm")]
mod components;
mod containers;
mod denied;
mod kept;
mod lies;
mod reached;
mod site;
