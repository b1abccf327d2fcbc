//! Projects as data: what lies in a directory tree, the commands that build and test it, and what those commands said. Reads files beneath a directory that it
//! holds and follows no link; starts no process, and writes no file but one that it is told to make.

pub mod action;
pub mod apart;
pub mod beneath;
pub mod commands;
pub mod coverage;
pub mod detect;
pub mod diagnostic;
pub mod ecosystem;
pub mod limits;
pub mod model;
pub mod report;
mod walk;
mod xml;
pub mod yaml;

pub use action::{Action, Cache, Options, Places, ReportAt, Sharing, Step, Unavailable};
pub use beneath::Beneath;
pub use detect::{Bounds, detect, detect_until};
pub use model::{Detection, Ecosystem, Framework, PackageManager, Project, ProjectKind};
