//! `cofferdam golden`: cases that say what a command is expected to do, run in the sandbox and compared, or written down anew.

mod case;
mod tree;
mod verb;

pub(crate) use verb::golden;
