//! The command line as a person meets it: whole sessions to the letter, terminals of every kind, and JSON as its page describes it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what helps a test may end it"
)]

mod json;
mod mask;
mod terminal;
mod transcript;
