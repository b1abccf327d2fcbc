//! Sandboxes that stand before their runs, with nothing in them and with a copy of an interpreter.

mod copies;
mod networks;
mod place;
mod seats;
