//! Diagnostics: what compilers, linters and package managers say about the source, as file, line, column, severity, code and message; and the same as SARIF.

mod lines;
mod model;
mod python;
mod rustc;
mod sarif;

pub use model::{Diagnostic, Severity, Speaker, read, relative};
pub use sarif::sarif;

#[cfg(test)]
mod tests;
