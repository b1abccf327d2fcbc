//! The settings of the backend, and what its daemon says of itself.

use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_contract::request::BackendName;
use cofferdam_contract::units::parse_duration;
use cofferdam_docker::{Endpoint, Init, Progress, Pull};
use cofferdam_engine::doctor::{Finding, Mark};
use cofferdam_engine::error::EngineError;
use cofferdam_server::backends::Backends;
use cofferdam_store::DataDir;

use super::missing;
use crate::config::{DockerKey, DockerSettings};
use crate::terminal::bar::Bar;

pub(crate) use cofferdam_docker::Settings;

/// Everything that can run something, with containers as they are wanted here.
pub(crate) fn backends(dir: Option<&DataDir>, settings: Settings) -> Backends {
    Backends::of_process(dir).with_docker(settings)
}

/// What the doctor says of it.
pub(crate) fn examine(settings: &Settings) -> Finding {
    match cofferdam_docker::examine(settings) {
        Ok(found) => {
            let runtimes = found.runtimes.join(", ");
            let (version, images) = (&found.version, found.images);
            Finding {
                name: BackendName::Docker.as_str(),
                mark: match found.lacks.is_empty() {
                    true => Mark::Ok,
                    false => Mark::Weaker,
                },
                found: format!(
                    "{version} at {}; runtimes {runtimes}; images {images}",
                    settings.endpoint
                ),
                why: (!found.lacks.is_empty())
                    .then(|| format!("the daemon lacks {}", found.lacks.join(", "))),
                fix: (!found.lacks.is_empty()).then(|| {
                    "runs that need it are refused; look at `docker info` for its warnings"
                        .to_owned()
                }),
            }
        }
        Err(EngineError::Unavailable { why, fix, .. }) => missing(why, fix),
        Err(other) => missing(other.to_string(), "look at the daemon's log".to_owned()),
    }
}

/// Each text was checked when it was read.
pub(crate) fn of_configuration(said: &DockerSettings) -> Settings {
    let built_in = Settings::default();
    let text = |key| Some(said.get(key)).filter(|text: &&str| !text.is_empty());
    let time = |key| text(key).and_then(|text| parse_duration(text).ok());
    Settings {
        endpoint: text(DockerKey::Host)
            .and_then(|text| Endpoint::parse(text).ok())
            .unwrap_or(built_in.endpoint),
        image: text(DockerKey::Image).map(str::to_owned),
        pull: match said.get(DockerKey::Pull) {
            "never" => Pull::Never,
            _ => Pull::Missing,
        },
        runtime: text(DockerKey::Runtime).map(str::to_owned),
        init: match said.get(DockerKey::Init) {
            "false" => Init::None,
            _ => Init::Daemons,
        },
        grace: time(DockerKey::StopGrace).unwrap_or(built_in.grace),
        patience: time(DockerKey::Patience).unwrap_or(built_in.patience),
        pull_patience: time(DockerKey::PullTimeout).unwrap_or(built_in.pull_patience),
        progress: None,
    }
}

/// Whoever looks at a terminal sees how far a pull has come.
pub(super) fn with_bar(settings: Settings) -> Settings {
    let bar = Arc::new(Mutex::new(Bar::new("pulling")));
    let tell = move |done, of| {
        let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
        bar.at(done, of);
    };
    Settings {
        progress: Some(Progress(Arc::new(tell))),
        ..settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_is_what_the_backend_has() {
        let said = of_configuration(&DockerSettings::default());
        assert_eq!(format!("{said:?}"), format!("{:?}", Settings::default()));
    }
}
