//! What is said about a program last. The daemon's exit code is all there is: a signal is 128 and its number, and a program that could not be executed looks like one
//! that returned 126 or 127, so that is looked up.

use bollard::Docker;
use bollard::errors::Error;
use bollard::query_parameters::ContainerArchiveInfoOptionsBuilder;
use cofferdam_contract::ending::{SetupFailure, SetupFailureKind};
use cofferdam_contract::request::Request;
use cofferdam_engine::backend::Reported;

use crate::container::{self, SCRATCH};
use crate::course::Failed;
use crate::daemon::{self, Flavour, Maker};
use crate::image::Image;
use crate::settings::{Init, Settings};

const NOT_EXECUTABLE: i64 = 126;
const NOT_FOUND: i64 = 127;
const CATATONIT_FAILED: i64 = 1;

/// From the exit code of a container that has ended.
pub(crate) async fn of(
    client: &Docker,
    flavour: Flavour,
    id: &str,
    code: i64,
    request: &Request,
    image: &Image,
    settings: &Settings,
) -> Reported {
    // Podman's init has one code for everything that it cannot execute.
    let failed = |own: i64| match flavour.maker {
        Maker::Docker => code == own,
        Maker::Podman => code == own || code == CATATONIT_FAILED,
    };
    let is_suspicious = failed(NOT_FOUND) || failed(NOT_EXECUTABLE);
    if is_suspicious && settings.init == Init::Daemons {
        match look(client, id, &container::candidates(request, image)).await {
            Looked::Absent if failed(NOT_FOUND) => {
                return Reported::NeverStarted(not_found(request, image));
            }
            Looked::NotExecutable if failed(NOT_EXECUTABLE) => {
                return Reported::NeverStarted(not_executable(request));
            }
            Looked::Absent | Looked::NotExecutable | Looked::Found => {}
        }
    }
    Reported::Exited {
        code: i32::try_from(code).unwrap_or(i32::MAX),
    }
}

/// From the daemon's refusal to start a container; a daemon that did not answer is lost.
pub(crate) fn not_started(
    error: &Error,
    request: &Request,
    image: &Image,
) -> Result<SetupFailure, Failed> {
    let Error::DockerResponseServerError { message, .. } = error else {
        return Err(Failed::Lost(daemon::lost(error)));
    };
    let is_about_exec =
        message.contains("exec: ") || message.contains("starting container process");
    if is_about_exec && (message.contains("not found") || message.contains("no such file")) {
        return Ok(not_found(request, image));
    }
    if is_about_exec && message.contains("permission denied") {
        return Ok(not_executable(request));
    }
    Ok(SetupFailure {
        kind: SetupFailureKind::Sandbox,
        step: "start the container".to_owned(),
        message: format!(
            "the daemon could not start the container: {}; `cofferdam doctor` shows what it can do",
            daemon::reason(error)
        ),
        errno: None,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    Found,
    Absent,
    NotExecutable,
}

async fn look(client: &Docker, id: &str, candidates: &[String]) -> Looked {
    for path in candidates {
        // The scratch space is gone with the program.
        if path.starts_with(&format!("{SCRATCH}/")) {
            return Looked::Found;
        }
        let at = ContainerArchiveInfoOptionsBuilder::default()
            .path(path)
            .build();
        match client.get_container_archive_info(id, Some(at)).await {
            Ok(found) if found.file_mode & 0o111 == 0 => return Looked::NotExecutable,
            Ok(_) => return Looked::Found,
            Err(error) if daemon::status(&error) == Some(404) => {}
            Err(_) => return Looked::Found,
        }
    }
    Looked::Absent
}

fn name(request: &Request) -> String {
    let name = request.argv.first().map(|name| name.to_string_lossy());
    name.unwrap_or_default().into_owned()
}

fn not_found(request: &Request, image: &Image) -> SetupFailure {
    let name = name(request);
    SetupFailure {
        kind: SetupFailureKind::ProgramNotFound,
        message: format!(
            "`{name}` was not found in the image `{}`; use one that has it, or show it with --workspace DIR",
            image.name
        ),
        step: format!("execve {name}"),
        errno: Some(2),
    }
}

fn not_executable(request: &Request) -> SetupFailure {
    let name = name(request);
    SetupFailure {
        kind: SetupFailureKind::ProgramNotExecutable,
        message: format!("`{name}` cannot be executed: Permission denied (os error 13)"),
        step: format!("execve {name}"),
        errno: Some(13),
    }
}
