//! What outlives a run.
//!
//! A run writes a [`journal`]: one file of its own, appended to while it goes on and locked for as long as its writer lives. [`adopt`] moves finished journals, many at a time and
//! in one transaction, into the [`database`]; whatever reads history does that first. So a run pays for two small writes and never waits for the database, a reader sees every run,
//! and a crash leaves either a whole record or one that says `interrupted`.
//!
//! Nothing secret is written: what goes into a journal goes through [`sift`] first, and there is no other way in.

pub mod adopt;
pub mod audit;
pub mod beneath;
pub mod bundle;
pub mod chain_state;
pub mod collect;
pub mod data_dir;
pub mod database;
pub mod error;
pub mod id;
pub mod journal;
pub mod keyring;
pub mod log;
pub mod model;
pub mod objects;
pub mod outbox;
pub mod private_dir;
pub mod random;
pub mod results;
pub mod settlements;
pub mod sift;
mod sqlite;
pub mod upkeep;
pub mod vouched;

// The tests of the database share their runs with the tests from outside.
#[cfg(test)]
extern crate self as cofferdam_store;

pub use data_dir::DataDir;
pub use database::History;
pub use error::StoreError;
pub use id::RunId;
pub use outbox::Outbox;
