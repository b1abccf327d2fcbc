//! `--deterministic` in the native backend: real programs, run twice in worlds that differ in everything but the program, print the same bytes. `cargo xtask determinism` runs this and writes
//! what it found into docs/determinism.md.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test file: what fails here fails the test"
)]

mod flags;
mod noisy;
mod solutions;
mod worlds;

use cofferdam_testkit::{Need, host};
use worlds::Worlds;

/// What the tests of this binary need of the host.
const NEEDS: [Need; 5] = [
    Need::Python,
    Need::Gcc,
    Need::Installed("/usr/bin/node"),
    Need::Installed("/usr/bin/perl"),
    Need::Installed("/usr/bin/bash"),
];

#[test]
fn programs_that_print_what_differs_between_runs_print_the_same() {
    let host = host!(NEEDS[0], NEEDS[1], NEEDS[2], NEEDS[3], NEEDS[4]);
    let worlds = Worlds::make(&host, &noisy::files());
    let findings: Vec<worlds::Finding> = noisy::ALL
        .iter()
        .map(|program| worlds.compare(program))
        .collect();
    worlds::keep("noisy", &findings);
    let broken: Vec<_> = findings
        .iter()
        .filter(|finding| finding.is_broken())
        .collect();
    assert!(broken.is_empty(), "{broken:#?}");
    // What is fixed would differ otherwise; but for the few that do by chance only.
    let unmoved: Vec<&str> = findings
        .iter()
        .filter(|finding| !finding.differs_without)
        .map(|finding| finding.program.as_str())
        .collect();
    assert!(unmoved.len() * 5 < findings.len(), "{unmoved:?}");
}

/// Every fourth of them: together they would take longer than a test may.
fn a_quarter_of_the_solutions(quarter: usize) {
    let host = host!(NEEDS[0], NEEDS[1]);
    let (origin, all) = solutions::all();
    let programs: Vec<_> = all.into_iter().skip(quarter).step_by(4).collect();
    let worlds = Worlds::make(&host, &programs);
    let findings: Vec<worlds::Finding> = programs
        .iter()
        .map(|(name, _)| worlds.compare_solution(origin, name))
        .collect();
    worlds::keep(&format!("solutions-{quarter}"), &findings);
    let broken: Vec<_> = findings
        .iter()
        .filter(|finding| finding.is_broken())
        .collect();
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(findings.len() >= solutions::LEAST / 4);
}

#[test]
fn solutions_of_exercises_print_the_same_results() {
    a_quarter_of_the_solutions(0);
}

#[test]
fn solutions_of_exercises_print_the_same_results_in_the_second_quarter() {
    a_quarter_of_the_solutions(1);
}

#[test]
fn solutions_of_exercises_print_the_same_results_in_the_third_quarter() {
    a_quarter_of_the_solutions(2);
}

#[test]
fn solutions_of_exercises_print_the_same_results_in_the_last_quarter() {
    a_quarter_of_the_solutions(3);
}
