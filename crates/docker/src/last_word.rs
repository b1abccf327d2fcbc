//! What is said about a program last. The daemon's exit code is all there is: a signal is 128 and its number, and a program that could not be executed looks like one
//! that returned 126 or 127, so that is looked up: in the image, which no program can change, and in what was sent of the workspace, which the program may have
//! changed since.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use bollard::Docker;
use bollard::errors::Error;
use bollard::query_parameters::ContainerArchiveInfoOptionsBuilder;
use cofferdam_contract::ending::{SetupFailure, SetupFailureKind};
use cofferdam_contract::network::Network;
use cofferdam_contract::request::{Request, Workspace};
use cofferdam_engine::backend::Reported;

use crate::container::{self, SCRATCH};
use crate::course::{Failed, Place};
use crate::daemon::{self, Maker};
use crate::files::{Manifest, Sent};
use crate::image::Image;
use crate::settings::Init;

const NOT_EXECUTABLE: i64 = 126;
const NOT_FOUND: i64 = 127;
const CATATONIT_FAILED: i64 = 1;

/// A container that has ended.
#[derive(Debug)]
pub(crate) struct Ended<'a> {
    pub(crate) id: &'a str,
    pub(crate) code: i64,
    pub(crate) has_printed: bool,
    pub(crate) sent: Option<&'a Manifest>,
}

impl Place<'_> {
    /// From the exit code.
    pub(crate) async fn last_word(&self, ended: &Ended<'_>, request: &Request) -> Reported {
        // Podman's init has one code for everything that it cannot execute.
        let failed = |own: i64| match self.flavour.maker {
            Maker::Docker => ended.code == own,
            Maker::Podman => ended.code == own || ended.code == CATATONIT_FAILED,
        };
        let is_suspicious = failed(NOT_FOUND) || failed(NOT_EXECUTABLE);
        // Whoever started the program inside says so by its code, and has nothing else to say.
        let has_starter = self.settings.init == Init::Daemons || *self.network != Network::Denied;
        if is_suspicious && !ended.has_printed && has_starter {
            let candidates = container::candidates(request, self.image);
            match look(self.client, ended, &candidates).await {
                Looked::Absent if failed(NOT_FOUND) => {
                    return Reported::NeverStarted(not_found(request, self.image));
                }
                Looked::NotExecutable if failed(NOT_EXECUTABLE) => {
                    return Reported::NeverStarted(not_executable(request));
                }
                Looked::Absent | Looked::NotExecutable | Looked::Found => {}
            }
        }
        Reported::Exited {
            code: i32::try_from(ended.code).unwrap_or(i32::MAX),
        }
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

async fn look(client: &Docker, ended: &Ended<'_>, candidates: &[String]) -> Looked {
    for path in candidates {
        // The scratch space is gone with the program.
        if path.starts_with(&format!("{SCRATCH}/")) {
            return Looked::Found;
        }
        let looked = match (Path::new(path).strip_prefix(Workspace::INSIDE), ended.sent) {
            (Ok(below), Some(sent)) => look_in(sent, below),
            _ => look_at(client, ended.id, path).await,
        };
        match looked {
            Looked::Absent => {}
            Looked::Found | Looked::NotExecutable => return looked,
        }
    }
    Looked::Absent
}

async fn look_at(client: &Docker, id: &str, path: &str) -> Looked {
    let at = ContainerArchiveInfoOptionsBuilder::default()
        .path(path)
        .build();
    match client.get_container_archive_info(id, Some(at)).await {
        Ok(found) if found.file_mode & 0o111 == 0 => Looked::NotExecutable,
        Err(error) if daemon::status(&error) == Some(404) => Looked::Absent,
        Ok(_) | Err(_) => Looked::Found,
    }
}

/// As it was before the program could change anything. What a link leads to is not followed: that counts as found, and the program's code as its own.
fn look_in(sent: &Manifest, below: &Path) -> Looked {
    let mut way = Vec::new();
    for part in below.components() {
        let Component::Normal(part) = part else {
            return Looked::Found;
        };
        if !way.is_empty() {
            way.push(b'/');
        }
        way.extend_from_slice(part.as_bytes());
        match sent.entries.get(&way) {
            None => return Looked::Absent,
            Some(Sent::Link { .. }) => return Looked::Found,
            Some(Sent::File { mode, .. }) if mode & 0o111 == 0 => return Looked::NotExecutable,
            Some(Sent::File { .. } | Sent::Dir) => {}
        }
    }
    Looked::Found
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
