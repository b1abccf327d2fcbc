//! What is still to be told to others, kept until they have it: a durable queue in `outbox.db`.
//!
//! | file | subject |
//! | --- | --- |
//! | `message` | what goes in, what comes out, and which of it is refused |
//! | `schema` | the file: settings, tables, faults |
//! | `queue` | messages come in, many in one commit |
//! | `claim` | one message is taken, and how that ended |
//! | `clock` | time that goes backwards |
//! | `holder` | who takes messages, and whether it still lives |
//! | `inspect` | figures, lists, and what is removed with age |
//!
//! The promises. What `enqueue` has taken is on the disk, and stays there until it is delivered or given up; what is given up is kept. Messages of one run to one peer leave in the order
//! in which they came, except heartbeats, which never wait for anything and are forgotten when they are stale. A message is with one taker at a time. If the taker dies, the message is
//! taken up again, under the same key. So a peer may see a message twice, never under two keys.
//!
//! The outbox sends nothing itself and knows no token: a message carries the name of one.

mod claim;
mod clock;
mod holder;
mod inspect;
mod message;
mod queue;
mod schema;
#[cfg(test)]
mod tests;

pub use claim::{Delivery, Retry};
pub use inspect::{Entry, Figures, Standing};
pub use message::{Enqueued, Kind, Message, MessageId, Peer, TraceHeaders};
pub use queue::{Limits, Outbox};
