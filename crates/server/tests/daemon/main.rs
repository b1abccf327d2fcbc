//! The daemon from outside: real sockets, real sandboxes.

mod artifacts;
mod bounds;
mod defaults;
mod events;
mod http;
mod languages;
mod lifecycle;
mod openapi;
mod queue;
mod runs;
mod support;
mod tokens;
