//! Work for many machines over NATS JetStream: the queue, who holds what, answers, their verification, and the ledger of who kept the rules. What runs a payload is the caller's.

mod cancel;
mod carry;
pub mod class;
mod connect;
pub mod coordinator;
mod error;
pub mod judge;
mod ledger;
mod look;
pub mod model;
pub mod names;
mod objects;
mod outcome;
pub mod public;
mod queue;
mod store;
pub mod supervise;
pub mod worker;

pub use carry::{LARGEST, LARGEST_RECORD, LARGEST_REQUEST};
pub use connect::{Address, Fleet, Sign};
pub use error::FleetError;
pub use ledger::{Enforcer, LocalLedger};
pub use look::{Drain, JobSummary, QueueDepth, Status, WorkerView};
pub use queue::{Accepted, Errand, Submission, scope_of};
