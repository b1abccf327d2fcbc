//! The Docker backend: a container of its own for each run, by the API of a Docker or Podman daemon. Same request, same limits, same record as the native backend;
//! what the daemon is asked to hold is in [`container`], what it cannot hold is held here, and what nobody holds is refused.
//!
//! Start reading in [`course`].

mod aftermath;
pub mod build;
mod container;
pub mod course;
mod daemon;
mod examine;
mod feed;
mod files;
mod hold;
mod image;
pub mod images;
mod last_word;
mod meter;
mod network;
mod owner;
mod ping;
mod ready;
mod scratch;
pub mod settings;
mod sweep;
mod watch;

pub use course::run;
pub use examine::{Examined, examine};
pub use settings::{Endpoint, Init, Progress, Pull, Settings};
