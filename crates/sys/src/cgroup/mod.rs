//! Control groups: one per run, version 1 or 2, made under the caller's own group so that the caller's bounds hold too.

mod attributes;
mod find;
mod v1;
mod v2;

pub use find::{Hierarchy, find};
pub use run::{Bounds, CgroupError, Counters, Current, Entry, IoBounds, RunGroup};

mod run;
