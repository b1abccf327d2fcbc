//! Every promise of isolation, against programs that try to break it: as root with control groups, as root without, and as an ordinary user.
#![allow(
    clippy::unwrap_used,
    reason = "a fixture that cannot be made fails the test"
)]

mod calls;
mod files;
mod identity;
mod network;
mod processes;
mod workspace;
