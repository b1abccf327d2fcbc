//! The verbs that do something with a project: `restore`, `build`, `test`, `lint` and `format`. Each command of the project runs through the engine, in the sandbox,
//! with the project as its workspace; what it says and reports is read afterwards.

mod act;
mod contract;
mod ears;
mod gather;
mod git;
mod outcome;
mod sheet;
mod step;
mod task;
mod tee;
mod tell;
mod tools;
mod verbs;

pub(crate) use task::task;
pub(crate) use verbs::{build, format, lint, restore, test};
