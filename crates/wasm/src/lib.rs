//! The WebAssembly backend: modules (WASI preview 1) and components (WASI preview 2, commands) inside the same limits as any other run, in this process. Code is compiled in the
//! native sandbox, and only what was compiled there is ever loaded.
//!
//! Start reading in [`run`].

mod cache;
mod calls;
pub mod compile;
mod component_files;
mod component_network;
mod connection;
mod engines;
mod fixed;
mod guest;
mod held;
mod load;
mod memory;
mod outcome;
mod pace;
mod prepare;
mod run;
mod runtime;
mod settings;
mod shelf;
mod stdio;
mod steady;
mod ticker;
mod wait;
mod workshop;

pub use engines::{Flavour, VERSION};
pub use run::{Code, Wasm};
pub use settings::{CompileBounds, Compiler, Determinism, Instances, Settings};
