//! What is told to a control plane, and how it gets there.
//!
//! [`message`] makes messages from facts; the [`cofferdam_store::outbox`] keeps them; the [`courier`] takes them out and sends them until the peer has them. [`policy`] decides which
//! addresses may be spoken to when a client chose them.
//!
//! Nothing here starts a run or waits for one, and nothing here keeps a token: a message carries the name of one, and [`token`] reads it anew for every attempt.

pub mod client;
pub mod courier;
pub mod message;
pub mod policy;
pub mod resolve;
pub mod schedule;
pub mod token;

pub use courier::{Courier, Event, Settings};
pub use message::ControlPlane;
pub use policy::Policy;
pub use resolve::Doorkeeper;
pub use token::{Bearer, Tokens};
