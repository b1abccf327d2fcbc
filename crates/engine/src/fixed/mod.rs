//! Runs that must give the same each time, as far as Linux allows: what differs from run to run is asked about by the filter and answered here, from a clock that only the program moves and
//! from a seed. What is asked without a call, such as the processor's own counter, is out of reach, and the [`account`] says so.

mod account;
mod answers;
mod clock;
mod listing;
mod random;
pub(crate) mod view;

pub(crate) use account::variables;
pub(crate) use answers::{Answers, Caller, Taken};
pub(crate) use clock::offsets;
