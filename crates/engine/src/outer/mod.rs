//! What the backends have in common whose walls another program of the host builds: the view that is put up, the attendant that goes first inside, and what is kept to hear it.

mod attended;
mod tool;
mod view;

pub(crate) use attended::{Attended, Hearing, Told, given, words};
pub(crate) use tool::{Outer, Owner, find, owner};
pub(crate) use view::{Entry, Mode, view};
