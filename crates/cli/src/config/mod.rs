//! The configuration: built-in defaults, then files, then the environment, then flags; the later one wins and every value knows
//! where it came from. Nothing is ever read from the current directory or a workspace: whoever wrote the work must not be able to
//! choose its limits.

mod docker;
mod environment;
mod file;
mod history;
mod load;
mod mode;
mod network;
mod serve;
mod serve_key;
mod setting;
mod shape;
mod show;
pub(crate) mod spelling;
mod suggest;

pub(crate) use cofferdam_project::yaml;
pub(crate) use docker::{DockerFlags, DockerKey, DockerSettings};
pub(crate) use history::{HistorySettings, Switch};
pub(crate) use load::{Sources, load};
pub(crate) use serve::{OVERCOMMIT, ServeSettings, check as check_serve, with_otlp_headers};
pub(crate) use serve_key::ServeKey;
pub(crate) use setting::{Flags, Merged, Origin, Setting};
pub(crate) use show::{json, origin, table};
