//! Carries out what is asked of a project: finds the projects in a tree, runs their steps through the engine, each in the sandbox with the project as its workspace, and puts together what they
//! said and reported. Whoever asks looks on through a [`Watcher`]; what is shown to a person, and how, is not decided here.

mod act;
mod apart;
mod attempts;
pub mod cache;
mod carrier;
mod compared;
mod coverage;
mod ears;
mod error;
mod follow;
mod gather;
mod git;
mod kept;
mod outcome;
mod own;
mod request;
mod shelf;
mod step;
mod tee;
mod together;
mod tools;
mod watcher;

pub use act::{Wish, act};
pub use attempts::{Attempts, Tried};
pub use carrier::{Carrier, Engine};
pub use compared::{Slower, TestsDiff, compare};
pub use error::WorkError;
pub use outcome::{Counting, Ended, Outcome, ProjectOutcome, SCHEMA, StepOutcome, Tests, Verdict};
pub use own::{commands, task};
pub use shelf::Shelf;
pub use step::{Bench, Spent};
pub use together::{Together, used};
pub use watcher::{Begun, Watcher};
