//! Runs that other machines carry out: what is sent to them, what comes back, and both ends of it. The fleet between them is `cofferdam-fleet`.

mod brought;
mod errand;
mod front_door;
mod outer;
mod workplace;

pub(crate) use errand::{Errand, Given, Sent};
pub(crate) use front_door::{Away, FrontDoor};
pub use workplace::{CarriedOut, Refused, Workplace, document_of};
