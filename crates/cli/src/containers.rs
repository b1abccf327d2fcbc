//! What the command line and the configuration say about containers, as the docker backend takes it.

#[cfg_attr(not(feature = "docker"), path = "containers/absent.rs")]
mod daemon;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::limits::Limits;
use cofferdam_contract::request::BackendName;
use cofferdam_engine::doctor::{Finding, Mark};

use crate::arguments::{ContainerArgs, Places};
use crate::config::{self, DockerFlags, Flags, Merged, Sources};
use crate::failure::Failure;

#[cfg(feature = "docker")]
pub(crate) use daemon::of_configuration;
pub(crate) use daemon::{Settings, backends, examine};

pub(crate) fn flags(args: &ContainerArgs) -> DockerFlags {
    DockerFlags {
        image: args.image.clone(),
        runtime: args.runtime.clone(),
        pull: args.pull.clone(),
    }
}

/// For a run whose configuration is known. A flag that would do nothing is a mistake.
pub(crate) fn settings(merged: &Merged, args: &ContainerArgs) -> Result<Settings, Failure> {
    let settings = daemon::of_configuration(&merged.docker);
    if merged.backend.value == BackendName::Docker {
        return Ok(daemon::with_bar(settings));
    }
    // An image is a root of the native backend too.
    let image = match merged.backend.value {
        BackendName::Native => &None,
        _ => &args.image,
    };
    let given = [
        ("--image", image),
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

/// For a verb that knows its backend. What the mode in force says of it is for the verb to ask.
pub(crate) fn load(
    places: &Places,
    backend: BackendName,
    args: &ContainerArgs,
) -> Result<(Settings, Merged), Failure> {
    let flags = Flags {
        mode: places.mode,
        backend: Some(backend),
        docker: flags(args),
        ..Flags::default()
    };
    let sources = Sources::of_process(places.config.clone(), flags, Limits::DEFAULT);
    let merged = config::load(sources)
        .map_err(|problems| Failure::problems(ErrorCode::ConfigInvalid, &problems))?;
    Ok((settings(&merged, args)?, merged))
}

/// What the doctor says where there is no daemon to be used.
pub(crate) fn missing(why: String, fix: String) -> Finding {
    Finding {
        name: BackendName::Docker.as_str(),
        mark: Mark::Missing,
        found: "no daemon answers; only --backend docker needs one".to_owned(),
        why: Some(why),
        fix: Some(fix),
    }
}
