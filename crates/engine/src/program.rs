//! From a granted request to what `execve` needs: arguments, environment, working directory, and the paths to try for a bare name.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use cofferdam_contract::request::{BackendName, Request, Workspace};
use cofferdam_sys::program::Program;
use rustix::io::Errno;

use crate::error::EngineError;

/// The directory that is the program's own to write in, inside the sandbox.
pub(crate) const HOME: &str = "/home/sandbox";
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What a program without isolation keeps of the caller's environment: enough to find its tools, nothing that is likely to be secret.
const HOST_INHERITS: [&str; 8] = [
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "TERM",
];

/// Lays the program out for the sandbox's init.
pub(crate) fn lay_out(request: &Request) -> Result<Program, EngineError> {
    let env = environment(request);
    let cwd = working_directory(request);
    let candidates = candidates(&request.argv[0], &env);
    let cwd = c_string(cwd.into_encoded_bytes())?;
    let candidates = candidates
        .into_iter()
        .map(c_string)
        .collect::<Result<Vec<_>, _>>()?;
    let argv = request
        .argv
        .iter()
        .map(|arg| c_string(arg.as_bytes().to_vec()))
        .collect::<Result<Vec<_>, _>>()?;
    let env = env
        .into_iter()
        .map(|(name, value)| c_string([name.as_bytes(), b"=", value.as_bytes()].concat()))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Program::new(cwd, candidates, argv, env))
}

/// What every program in a sandbox has.
pub(crate) fn clean_environment() -> Vec<(OsString, OsString)> {
    [
        ("PATH", PATH),
        ("HOME", HOME),
        ("USER", "sandbox"),
        ("LOGNAME", "sandbox"),
        ("SHELL", "/bin/sh"),
        ("LANG", "C.UTF-8"),
        ("TMPDIR", "/tmp"),
    ]
    .into_iter()
    .map(|(name, value)| (name.into(), value.into()))
    .collect()
}

/// Where the program starts, and the paths to try for it.
pub(crate) fn place(request: &Request) -> (OsString, Vec<OsString>) {
    let env = environment(request);
    let name = request.argv.first().map(OsString::as_os_str);
    let candidates = candidates(name.unwrap_or_default(), &env);
    let candidates = candidates.into_iter().map(OsString::from_vec).collect();
    (working_directory(request), candidates)
}

/// The clean environment, then what the caller added or replaced.
pub(crate) fn environment(request: &Request) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = match request.backend {
        BackendName::Native
        | BackendName::Bubblewrap
        | BackendName::Gvisor
        | BackendName::Docker => clean_environment(),
        // A stranger's module gets no variable that it was not given.
        BackendName::Wasm => Vec::new(),
        BackendName::Host => HOST_INHERITS
            .iter()
            .filter_map(|name| Some(((*name).into(), std::env::var_os(name)?)))
            .collect(),
    };
    for (name, value) in &request.env {
        match env.iter_mut().find(|(present, _)| present == name) {
            Some((_, present)) => present.clone_from(value),
            None => env.push((name.clone(), value.clone())),
        }
    }
    env
}

fn working_directory(request: &Request) -> OsString {
    if let Some(cwd) = &request.cwd {
        return cwd.clone().into_os_string();
    }
    match (request.backend, &request.workspace) {
        (BackendName::Wasm | BackendName::Docker, Some(_)) => Workspace::INSIDE.into(),
        (BackendName::Wasm | BackendName::Docker, None) => HOME.into(),
        (BackendName::Host, Some(workspace)) => workspace.path.clone().into_os_string(),
        (BackendName::Host, None) => ".".into(),
        (BackendName::Native | BackendName::Bubblewrap | BackendName::Gvisor, Some(_)) => {
            Workspace::INSIDE.into()
        }
        (BackendName::Native | BackendName::Bubblewrap | BackendName::Gvisor, None) => HOME.into(),
    }
}

/// As a shell looks: a name with a slash is a path, any other is tried in each directory of PATH.
fn candidates(name: &OsStr, env: &[(OsString, OsString)]) -> Vec<Vec<u8>> {
    if name.as_bytes().contains(&b'/') {
        return vec![name.as_bytes().to_vec()];
    }
    let path = env
        .iter()
        .find(|(name, _)| name == "PATH")
        .map_or(OsStr::new(PATH), |(_, path)| path.as_os_str());
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name).into_os_string().into_vec())
        .collect()
}

/// The program as the caller named it.
pub(crate) fn name(request: &Request) -> String {
    request
        .argv
        .first()
        .map(|arg| arg.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Why a program was not found, with the reason that people meet most: it is on the host, and not in view.
pub(crate) fn not_found(request: &Request) -> String {
    let name = name(request);
    let inside = match request.backend {
        BackendName::Native
        | BackendName::Bubblewrap
        | BackendName::Gvisor
        | BackendName::Docker => " inside the sandbox",
        BackendName::Host | BackendName::Wasm => "",
    };
    let mut message = format!("`{name}` was not found{inside}");
    if request.backend == BackendName::Host {
        return message;
    }
    if name.contains('/') && request.workspace.is_none() {
        message.push_str("; show it the directory with --workspace DIR or --mount DIR:DIR:ro");
    } else if let Some(place) = on_host(&name) {
        message.push_str("; the host has it at ");
        message.push_str(&place);
        message.push_str(", which is not in view: add --mount for its directory");
    }
    message
}

fn on_host(name: &str) -> Option<String> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|place| place.is_file())?;
    Some(found.display().to_string())
}

fn c_string(bytes: Vec<u8>) -> Result<CString, EngineError> {
    // The grant has refused NUL bytes with a better message; this is for names that reach us another way.
    CString::new(bytes).map_err(|_| EngineError::System {
        doing: "lay out the program",
        errno: Errno::INVAL,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_looked_up_and_a_path_is_not() {
        let env = vec![("PATH".into(), "/a:relative:/b".into())];
        assert_eq!(
            candidates(OsStr::new("x"), &env),
            [b"/a/x".to_vec(), b"/b/x".to_vec()]
        );
        assert_eq!(candidates(OsStr::new("./x"), &env), [b"./x".to_vec()]);
    }
}
