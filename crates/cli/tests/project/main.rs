//! Projects, with their real toolchains: found, built, tested and restored inside the sandbox.

mod attacks;
mod build;
mod contract;
mod dotnet;
mod fixture;
mod packages;
mod reports;
mod test;
