//! The only crate with `unsafe` code: what the kernel offers, wrapped so that the rest of the house cannot misuse it. Linux only.
//!
//! A sandbox is described in full by a [`blueprint::Blueprint`] before anything is cloned; the cloned child then executes that description with
//! raw system calls, without allocating and without taking a lock, and reports the step and the errno if one fails.
#![allow(
    unsafe_code,
    reason = "this crate is the border: every other crate denies unsafe code"
)]

pub mod attendant;
pub mod blueprint;
pub mod caller;
pub mod cgroup;
mod child;
mod clone;
pub mod descendants;
pub mod doors;
mod enclose;
pub mod errand;
pub mod farewell;
mod fixed_time;
pub mod guest;
pub mod heap;
pub mod idmap;
mod init;
pub mod janitor;
pub mod landlock;
pub mod launch;
pub mod made_network;
pub mod mappings;
mod mount;
mod network;
pub mod proc;
pub mod program;
pub mod protocol;
mod raw;
pub mod routes;
pub mod seccomp;
pub mod signals;
pub mod spare_network;
mod steps;
pub mod usher;
pub mod vdso;
