//! The database from outside: what comes in is found, goes, and is watched over.

mod files;
mod fixture;
mod pruning;
mod reading;

mod tampering;
mod writing;
