//! The public library: takes a granted request through planning, a backend and supervision to a record that can be trusted.
//!
//! Start reading in [`pipeline`].

mod ahead;
pub mod backend;
mod block_device;
mod bubblewrap;
pub mod capture;
mod changes;
mod cpu_account;
mod denials;
mod disk;
mod disk_walk;
pub mod doctor;
pub mod error;
mod feed;
mod fixed;
pub mod gpu;
mod gvisor;
pub mod headstart;
pub mod host;
pub mod interpreter;
mod live_usage;
mod memory_count;
mod native;
mod outer;
mod outlet;
pub mod pipeline;
mod pipes;
mod plan;
pub mod pool;
mod program;
mod reach;
pub mod recording;
mod rlimits;
mod settle;
mod stand;
mod supervise;
mod walls;
mod watch;
mod zygote;

pub use cancel::cancel_on_signals;
pub use cofferdam_sys::heap;

mod cancel;

/// The page's example is compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
mod page {}
