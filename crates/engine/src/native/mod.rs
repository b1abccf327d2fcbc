//! The native backend: namespaces, a root of its own, cgroups, seccomp and Landlock. Needs nothing installed and no privilege.

mod identity;
mod root;
mod view;

pub(crate) use identity::identify;
pub(crate) use root::{Scratch, steps};
