//! Bundles from end to end, and every way in which one can be wrong.

mod archive;
mod exporting;
mod importing;
mod memory;
mod mutation;
mod refusals;
mod samples;
mod zipped;
