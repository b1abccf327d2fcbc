//! The daemon from outside: real sockets, real sandboxes.

mod artifacts;
mod bounds;
mod callbacks;
mod collector;
mod defaults;
mod events;
mod http;
mod inputs;
mod known;
mod languages;
mod lifecycle;
mod metrics;
mod network;
mod openapi;
#[allow(dead_code, reason = "the tests of the couriers use the rest")]
#[path = "../../../callback/tests/delivery/peer.rs"]
mod peer;
mod projects;
mod queue;
mod runs;
mod slow_readers;
mod support;
mod tokens;
mod traces;
mod uploads;
mod waiting;
