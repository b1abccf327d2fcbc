//! What can be asked, one file for each subject; `table` has the list.

mod about;
mod diff;
mod execute;
mod export;
mod output;
mod runs;
mod submit;
pub(crate) mod table;

pub(crate) use execute::{ExecuteAnswer, ExecuteMetrics, ExecuteRequest, told};
pub(crate) use runs::{ListAnswer, ListQuery};
pub(crate) use submit::{BatchAnswer, BatchItem};
