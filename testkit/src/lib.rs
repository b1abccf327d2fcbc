//! What the integration tests stand on: a fixture that starts the real binary on the real kernel, programs that attack it, and a check that nothing is left
//! behind. Development only; it knows the binary by its command line and its record, never by its types.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a fixture that cannot do its work fails the test, with the reason"
)]

pub mod anvil;
mod chance;
mod clean;
pub mod desk;
pub mod docker;
mod finished;
mod host;
pub mod hostile;
mod launch;
pub mod maven;
mod mounted;
pub mod nats;
mod need;
pub mod podman;
mod process;
mod ready;
pub mod registry;
pub mod shape;
mod started;
mod terminal;
pub mod wasi;
mod way;

pub use chance::Chance;
pub use desk::Desk;
pub use finished::Finished;
pub use host::Host;
pub use launch::Launch;
pub use mounted::Mounted;
pub use need::Need;
pub use process::Process;
pub use started::Started;
pub use terminal::{Shown, Terminal};
pub use way::Way;

/// The fixture for one test, with what the test needs of the host. Without that the test fails in CI, and elsewhere says that it was skipped and returns.
#[macro_export]
macro_rules! host {
    ($($need:expr),* $(,)?) => {
        match $crate::Host::new(env!("CARGO_BIN_EXE_cofferdam"), &[$($need),*]) {
            Some(host) => host,
            None => return,
        }
    };
}

/// A desk for one test.
#[macro_export]
macro_rules! desk {
    () => {
        $crate::Desk::new(env!("CARGO_BIN_EXE_cofferdam"))
    };
}
