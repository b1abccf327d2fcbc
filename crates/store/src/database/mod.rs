//! History as it is searched: one SQLite database.
//!
//! | file | subject |
//! | --- | --- |
//! | `open` | the connection: settings, access, transactions |
//! | `schema` | tables, and the steps from one format to the next |
//! | `run_row` | what is stored of one run, and the digest over it |
//! | `write` | runs come in |
//! | `query`, `plan`, `search`, `glob`, `commands` | runs are found |
//! | `read` | one run is read |
//! | `prune`, `remove` | runs go |
//! | `stats` | figures over all of them |

mod commands;
mod fault;
#[cfg(test)]
#[allow(dead_code, reason = "the tests from outside use the rest")]
#[path = "../../tests/database/fixture.rs"]
mod fixture;
mod glob;
mod open;
mod plan;
mod prune;
mod query;
mod read;
mod remove;
pub(crate) mod run_row;
mod schema;
mod search;
#[cfg(test)]
mod search_tests;
mod stats;
mod write;

pub(crate) use fault::Fault;
pub use open::{Access, History};
pub use prune::{PruneMode, PruneReason, Pruned, PrunedRun, Retention};
pub use query::{Page, Query, RunSummary, StatusFilter};
pub use stats::{Percentiles, Stats};
pub use write::{KeptOutput, NewRun};
