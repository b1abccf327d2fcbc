//! The system call filter: the table of decisions generated from `policies/native.toml`, the BPF program made from it, its installation in
//! the child, and the supervisor's end of a notified refusal. It decides nothing itself: what is allowed, and why, stands in the policy.

mod assembler;
mod filter;
mod install;
mod model;
mod notify;
#[rustfmt::skip]
mod table;
#[cfg(test)]
mod tests;
mod tree;

pub use filter::{Denied, Filter, errno_for, name_of, reason_of};
pub use install::{Listener, install};
pub use model::{Variant, Variants};
pub use notify::{
    Answered, Notification, Received, SharedMapping, answer, is_waiting, let_through, receive,
    respond,
};
