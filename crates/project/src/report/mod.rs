//! Test reports: one model, a reader for each format, a writer for JUnit. Reports are written by the project itself, so that nothing in them is trusted: sizes and depths
//! are bounded, and counts come from the cases.

mod budget;
mod events;
mod few;
mod go_json;
mod jest;
mod junit;
mod junit_write;
mod libtest;
mod mocha;
mod model;
mod place;
mod tally;
mod tap;
mod text;
mod trx;
mod vstest;

pub use budget::Budget;
pub use junit_write::junit;
pub use model::{
    BadReport, Counts, Format, MAX_REPORT, Status, TestCase, TestReport, parse, parse_within,
};
pub use tally::Tally;

#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod tests;
