//! The daemon: HTTP in front of the engine, with a bounded queue between them.
//!
//! Start reading in [`server`] for connections, in `routes` for what can be asked, in `runner` for how a run gets its turn.

mod accepted;
mod answers;
mod app;
mod archive;
mod asked_files;
mod asked_limits;
mod asked_network;
mod asked_tags;
mod auth;
pub mod backends;
mod body;
mod capacity;
mod ceilings;
pub mod config;
mod docs;
mod events;
mod fault;
mod guide;
mod hands;
mod head;
mod idempotency;
mod inputs;
mod kept;
mod known;
mod language;
mod live;
pub mod log;
mod metrics;
mod middleware;
mod notify;
pub mod openapi;
mod patience;
mod payload;
mod pieces;
mod process;
mod project;
mod queue;
mod random;
mod reports;
mod routes;
mod runner;
mod self_test;
pub mod server;
mod submission;
mod takeup;
pub mod tokens;
mod trace;
mod upload;
mod view;
mod weight;
mod work;
mod workspace;

pub use config::Config;
pub use server::{Running, Server, StartError};
