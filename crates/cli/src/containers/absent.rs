//! A binary without the docker backend: containers are known by name, and refused.

use cofferdam_engine::doctor::Finding;
use cofferdam_server::backends::Backends;
use cofferdam_store::DataDir;

use super::missing;
use crate::config::DockerSettings;

/// There is nothing to be set.
#[derive(Debug)]
pub(crate) struct Settings;

pub(crate) fn backends(dir: Option<&DataDir>, _: Settings) -> Backends {
    Backends::of_process(dir)
}

pub(crate) fn examine(_: &Settings) -> Finding {
    missing(
        "this binary was built without it".to_owned(),
        "build with the cargo feature `docker`".to_owned(),
    )
}

pub(crate) fn of_configuration(_: &DockerSettings) -> Settings {
    Settings
}

pub(super) fn with_bar(settings: Settings) -> Settings {
    settings
}
