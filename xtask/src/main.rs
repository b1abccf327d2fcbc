//! The project's own chores: `cargo xtask help` lists them. Nothing here is shipped.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a chore talks to the person who started it"
)]

mod bench;
mod conformance;
mod contracts;
mod deb;
mod determinism;
mod generate;
mod install;
mod marks;
mod picture;
mod process;
mod readme;
mod seccomp_table;
mod slowest;
mod svg;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask test [-- NEXTEST ARGS]   install what the tests need, then formatting, lints, tidy, doc tests and all tests
cargo xtask tidy                     check what the compiler cannot: file heads and sizes, crate arrows, links, proofs
cargo xtask generate [--check]       write the generated files (schemas, tables, the picture and the table in README.md), or only say whether they are current
cargo xtask deb [--binary FILE] [--out DIR] [--compression xz|zstd|gzip|none]
                                     a Debian package in target/debian, of a build of the profile dist or of this binary
cargo xtask bench [--quick] [--json] [--unprivileged] [--daemon] [--wasm] [--backends] [--soak TIME]
                                     measure against bare processes and bubblewrap; fails when a promise is broken
cargo xtask bench peers [--quick] [--rounds N] [--out DIR]
                                     measure against every sandbox that can be had; writes docs/benchmarks/peers.{json,svg} and the table in README.md
cargo xtask bench scale [--quick] [--out DIR]
                                     measure a run as their number grows; writes docs/benchmarks/scale.{json,svg}
cargo xtask conformance              run hostile programs against every backend; writes docs/conformance.md
cargo xtask contracts [--check]      compile contracts/ and write what came of it, or only say whether that is current
cargo xtask determinism              run programs twice in worlds that differ; writes the table in docs/determinism.md
cargo xtask help                     this text
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = root();
    let outcome = match args.get(1..).unwrap_or_default() {
        ["test"] => test::run(&root, &[]),
        ["test", "--", nextest @ ..] => test::run(&root, nextest),
        ["tidy"] => tidy::run(&root),
        ["conformance"] => conformance::run(&root),
        ["determinism"] => determinism::run(&root),
        ["contracts"] => contracts::run(&root, generate::Mode::Write),
        ["contracts", "--check"] => contracts::run(&root, generate::Mode::Check),
        ["generate"] => generate::run(&root, generate::Mode::Write),
        ["generate", "--check"] => generate::run(&root, generate::Mode::Check),
        ["deb", flags @ ..] => {
            deb::Options::parse(flags).and_then(|options| deb::run(&root, &options))
        }
        ["bench", "scale", flags @ ..] => bench::scale::Options::parse(flags)
            .and_then(|options| bench::scale::run(&root, &options)),
        ["bench", "peers", flags @ ..] => bench::peers::Options::parse(flags)
            .and_then(|options| bench::peers::run(&root, &options)),
        ["bench", flags @ ..] => {
            bench::Options::parse(flags).and_then(|options| bench::run(&root, options))
        }
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(format!(
            "there is no chore `{}`; these exist:\n{HELP}",
            other.join(" ")
        )),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The repository: the directory above this package.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}
