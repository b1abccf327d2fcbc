//! Projects, with their real toolchains: found, built, tested and restored inside the sandbox.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what helps a test may end it"
)]

mod attacks;
mod build;
mod contract;
mod dotnet;
mod examples;
mod fixture;
mod golden;
mod managers;
mod packages;
mod progress;
mod reports;
mod start;
mod test;
