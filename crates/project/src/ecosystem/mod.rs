//! One file for each ecosystem: how its projects are recognised, and which commands do what with them.

mod dotnet;
mod go;
mod java;
mod members;
mod node;
mod node_restore;
mod node_test;
mod python;
mod runner;
mod rust;

pub(crate) use runner::find;
pub use runner::{programs, steps};
