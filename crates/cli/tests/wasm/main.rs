//! Programs in WebAssembly: that they do what native ones do, that no module passes a limit or a wall, and that nothing but what was compiled here is ever run.
#![cfg(feature = "wasm")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test file: what fails here fails the test"
)]

mod cache;
mod components;
mod deterministic;
mod files;
mod hostile;
mod limits;
mod modules;
mod payload;
mod same;
mod streams;

use std::path::PathBuf;

use cofferdam_testkit::Host;

/// A module as text, in a file of the test's own.
fn wat(host: &Host, name: &str, text: &str) -> PathBuf {
    let path = host.dir().join(format!("{name}.wat"));
    std::fs::write(&path, text).expect("write the module");
    path
}

/// `run --backend wasm` with these flags, then the module, then its arguments.
fn run_args(flags: &[&str], module: &std::path::Path, args: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = ["run", "--backend", "wasm"].map(str::to_owned).to_vec();
    all.extend(flags.iter().map(|flag| (*flag).to_owned()));
    all.push(module.to_string_lossy().into_owned());
    if !args.is_empty() {
        all.push("--".to_owned());
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
    }
    all
}
