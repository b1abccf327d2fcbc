//! Delivery to a real peer that misbehaves. Everything stays on loopback.

mod address;
mod answers;
mod crash;
mod days;
mod fixture;
mod many;
mod peer;
mod tls;
