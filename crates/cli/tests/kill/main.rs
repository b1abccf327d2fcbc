//! Ends that come from outside: a person, a crash, a kill at the worst moment. Nothing may be left of a run, whatever happened to it.

mod crash;
mod host_backend;
mod person;
