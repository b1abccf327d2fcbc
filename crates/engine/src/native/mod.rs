//! The native backend: namespaces, a root of its own, cgroups, seccomp and Landlock. Needs nothing installed and no privilege.

mod identity;
mod names;
mod root;
pub(crate) mod view;

pub(crate) use identity::{Lease, identify};
pub(crate) use root::{DEVICES, LINKS, Scratch, USR_FRIENDS, steps};
