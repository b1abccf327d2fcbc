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
mod slow_readers;
mod support;
mod tokens;
mod uploads;
