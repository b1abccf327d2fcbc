//! What backends in crates of their own share with those in this one: the output limit and its sinks, a look at how directories grow, the history, the settling of the
//! ending, the record. Nothing of what is promised about a run is decided twice.
//!
//! - [`Ledger`] is for a program that runs in this process and whose backend knows how it ended.
//! - [`OpenRun`] is for one that runs elsewhere: the backend brings bytes and evidence, and the ending is settled here.

mod books;
mod ledger;
mod open_run;
mod way_out;

pub use cofferdam_egress::{Calls, Reached, Unreached};
pub use cofferdam_sys::farewell::{Address, Farewell};

pub use crate::plan::choose;
pub use ledger::{Directories, Handed, Ledger, Outcome, Outputs};
pub use open_run::{End, Ends, Filling, OpenRun, Reported, Taken, is_readable, open, readable};
pub use way_out::{NAME_SERVER, WayOut, tell_program, usher_program};
