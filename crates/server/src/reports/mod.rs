//! What is told to others about runs: to the operator's control plane, and to addresses that clients named.
//!
//! | file | subject |
//! | --- | --- |
//! | `outgoing` | when something is told, and that nothing is lost on the way into the outbox |
//! | `heartbeat` | that a run goes on |
//! | `couriers` | how reports leave |
//! | `contents` | what the reports say |
//! | `session` | whether the daemon before this one said that it ends |

mod contents;
mod couriers;
mod heartbeat;
mod outgoing;
mod session;

pub(crate) use outgoing::{About, LOOKUPS, Reports, Told};
