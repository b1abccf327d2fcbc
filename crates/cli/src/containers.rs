//! What the command line and the configuration say about containers, as the docker backend takes it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::limits::Limits;
use cofferdam_contract::request::BackendName;
use cofferdam_contract::units::parse_duration;
use cofferdam_docker::{Endpoint, Init, Progress, Pull, Settings};

use crate::arguments::ContainerArgs;
use crate::config::{self, Choice, DockerFlags, DockerKey, DockerSettings, Flags, Merged, Sources};
use crate::failure::Failure;
use crate::terminal::bar::Bar;

pub(crate) fn flags(args: &ContainerArgs) -> DockerFlags {
    DockerFlags {
        image: args.image.clone(),
        runtime: args.runtime.clone(),
        pull: args.pull.clone(),
    }
}

/// For a run whose configuration is known. A flag that would do nothing is a mistake.
pub(crate) fn settings(merged: &Merged, args: &ContainerArgs) -> Result<Settings, Failure> {
    let settings = of_configuration(&merged.docker);
    if merged.backend.value == BackendName::Docker {
        return Ok(with_bar(settings));
    }
    let given = [
        ("--image", &args.image),
        ("--runtime", &args.runtime),
        ("--pull", &args.pull),
    ];
    for (name, value) in given {
        if let Some(value) = value {
            let backend = merged.backend.value.as_str();
            let fix = format!(
                "is for containers, and this runs in the {backend} backend; add --backend docker"
            );
            return Err(Failure::problem(name, value, fix));
        }
    }
    Ok(settings)
}

/// For a verb that knows its backend and asks the configuration about nothing else.
pub(crate) fn load(
    config: Option<PathBuf>,
    backend: BackendName,
    args: &ContainerArgs,
) -> Result<Settings, Failure> {
    let flags = Flags {
        backend: Some(Choice::Here(backend)),
        docker: flags(args),
        ..Flags::default()
    };
    let merged = config::load(Sources::of_process(config, flags, Limits::DEFAULT))
        .map_err(|problems| Failure::problems(ErrorCode::ConfigInvalid, &problems))?;
    settings(&merged, args)
}

/// Each text was checked when it was read.
fn of_configuration(said: &DockerSettings) -> Settings {
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
fn with_bar(settings: Settings) -> Settings {
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
