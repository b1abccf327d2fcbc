//! The verbs that do something with a project: `restore`, `build`, `test`, `lint`, `format`, `start` and `task`. What they do is done by the workshop; here is what a person asks for and is shown.

mod act;
mod screen;
mod sheet;
mod task;
mod tell;
mod verbs;

pub(crate) use task::task;
pub(crate) use tell::Tell;
pub(crate) use verbs::{build, format, lint, restore, start, test};
