//! What this host can enforce, found by really trying, and the command that would change what it cannot. Nothing is left behind.

mod backends;
mod examine;
mod facts;
mod inside;
mod layers;
mod limits;
mod not_given;
mod reasons;
mod report;
mod scratch;
mod trial;

pub use examine::examine;
pub use not_given::NotGiven;
pub use report::{About, Exactness, Finding, LimitFinding, Mark, Report};
