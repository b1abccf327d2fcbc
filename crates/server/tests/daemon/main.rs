//! The daemon from outside: real sockets, real sandboxes.

mod artifacts;
mod bounds;
mod collector;
mod events;
mod http;
mod languages;
mod lifecycle;
mod metrics;
mod openapi;
mod queue;
mod runs;
mod support;
mod tokens;
mod traces;
