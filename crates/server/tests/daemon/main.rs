//! The daemon from outside: real sockets, real sandboxes.

mod artifacts;
mod bounds;
mod events;
mod http;
mod inputs;
mod languages;
mod lifecycle;
mod openapi;
mod queue;
mod runs;
mod support;
mod tokens;
