//! One program, many inputs: compiled once, then run for each input in a sandbox of its own. `request` is what a client sends, `carry_out` how it is done, `view` what it gets back.

mod carry_out;
mod request;
mod view;

pub(crate) use carry_out::{InputOutcome, InputResult, InputTask, Inputs, carry_out};
pub(crate) use request::{Base, InputRequest, check};
pub(crate) use view::InputView;
