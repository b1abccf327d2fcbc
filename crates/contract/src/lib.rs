//! The contract between whoever asks for work and whoever does it: pure data and decisions, no I/O.

pub mod canonical;
pub mod codes;
mod decimal;
pub mod ending;
pub mod enforcement;
pub mod envelope;
mod envelope_check;
mod fields;
pub mod ids;
mod json_path;
pub mod limits;
pub mod mode;
pub mod output_format;
pub mod payload;
pub mod problem;
pub mod record;
pub mod request;
mod request_check;
pub mod schema;
mod schema_cost;
pub mod seal;
pub mod signal;
pub mod strict_json;
pub mod task;
pub mod units;
pub mod usage;
pub mod verdict;
