//! The gVisor backend: a kernel of its own in user space, the host's `runsc`, driven directly by a bundle of ours. No daemon takes part.

mod bundle;
mod outer;
mod premises;

pub(crate) use outer::{draw, find, tasks_on_host};
