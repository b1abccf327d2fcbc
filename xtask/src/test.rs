//! `cargo xtask test`: everything that must hold before a change is good, in one command. Stops at the first step that fails and
//! names it; the test runner goes last, so that its summary is what a person sees, and which tests took longest.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::process::{cargo, watch};
use crate::{install, slowest, tidy};

/// Read by the tests that boot a guest.
const KERNEL_VARIABLE: &str = "COFFERDAM_TEST_KERNEL";

/// For the crates of the workspace only.
const LINTER: &str = "--config=build.rustc-workspace-wrapper=\"clippy-driver\"";

pub(crate) fn run(root: &Path, nextest_args: &[&str]) -> Result<(), String> {
    let kernel = step("what the tests need", || {
        install::packages()?;
        install::nextest(root)?;
        install::schemathesis_best_effort(root)?;
        install::dotnet_best_effort(root)?;
        install::managers_best_effort(root)?;
        install::chain_best_effort(root)?;
        install::guest_best_effort(root)
    })?;
    step("formatting", || {
        watch(cargo(root).args(["fmt", "--all", "--check"]))
    })?;
    step("tidy", || tidy::run(root))?;
    step("lints, while everything is compiled", || {
        watch(linting(root).args(["test", "--no-run", "--workspace", LINTER]))
    })?;
    step("doc tests", || {
        watch(linting(root).args(["test", "--quiet", "--doc", "--workspace", LINTER]))
    })?;
    println!("\n== tests");
    let mut nextest = linting(root);
    nextest
        .args(["nextest", "run", "--workspace", LINTER])
        .args(nextest_args);
    if let Some(kernel) = kernel {
        nextest.env(KERNEL_VARIABLE, kernel);
    }
    let tested = watch(&mut nextest).map_err(|error| format!("step `tests`: {error}"));
    slowest::show_best_effort(root);
    tested
}

/// Cargo with clippy for the compiler, and every warning an error. Clippy is the compiler, and says more; so the workspace is compiled once for the lints and for the tests, and what it depends on
/// is not looked at twice.
fn linting(root: &Path) -> Command {
    let mut command = cargo(root);
    // As `cargo clippy` itself hands on `-D warnings`.
    command.env(
        "CLIPPY_ARGS",
        "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__",
    );
    command
}

/// One step with a heading before it and its time after it.
fn step<T>(name: &str, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    println!("\n== {name}");
    let start = Instant::now();
    let outcome = work().map_err(|error| format!("step `{name}`: {error}"));
    println!(
        "-- {name}: {} in {}",
        if outcome.is_ok() { "good" } else { "FAILED" },
        seconds(start.elapsed())
    );
    outcome
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_step_is_named() {
        assert_eq!(step("good", || Ok(3)), Ok(3));
        let failed = step("formatting", || Err::<(), _>("bad".to_owned()));
        assert_eq!(failed, Err("step `formatting`: bad".to_owned()));
    }
}
