//! The only way out of a sandbox. [`Egress`] answers at the sockets that listen inside a sandbox's network namespace: it answers names, speaks as a proxy, and takes connections of programs that know
//! nothing of proxies. A program in this process [calls](Calls) instead. What is allowed is connected to from here; everything is written down.
//!
//! Decides by [`cofferdam_contract::network`], and makes no socket inside a namespace: they are given to it.

mod bounds;
mod calls;
mod dial;
mod dns;
mod gate;
mod head;
mod hello;
mod ledger;
mod names;
mod opening;
mod proxy;
mod refusal;
mod relay;
mod resolver;
mod socks;
mod transparent;
mod world;

pub use calls::{Calls, Desk, Reached, Unreached};
pub use gate::{Account, Door, Egress};
pub use names::RESOLVER;
