//! The tool that builds the walls: where it is, who it is started as, and everything that is prepared for it before anything is started.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use cofferdam_contract::request::{MountAccess, Request, WorkspaceAccess};
use cofferdam_sys::blueprint::Blueprint;
use cofferdam_sys::errand::Departure;
use cofferdam_sys::program::Program;
use rustix::io::Errno;

use super::attended::Attended;
use crate::error::EngineError;
use crate::host::{Host, Privilege};

/// A run behind walls that a tool builds, ready to be started.
#[derive(Debug)]
pub(crate) struct Outer {
    pub(crate) blueprint: Blueprint,
    pub(crate) program: Program,
    pub(crate) departure: Departure,
    pub(crate) attended: Attended,
    /// For the record.
    pub(crate) isolation: BTreeMap<String, String>,
}

/// Whose files the program writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Of the directories that the program may write to.
    Of { uid: u32, gid: u32 },
    /// It writes to nobody's.
    Nobody,
}

/// Where tools are looked for besides PATH: an empty or foreign PATH must not decide about isolation.
const PLACES: [&str; 5] = [
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/bin",
    "/usr/local/sbin",
];

/// Finds a tool of the host's.
pub(crate) fn find(
    tool: &'static str,
    backend: &'static str,
    package: &str,
) -> Result<PathBuf, EngineError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    PLACES
        .into_iter()
        .map(PathBuf::from)
        .chain(std::env::split_paths(&path).filter(|dir| dir.is_absolute()))
        .map(|dir| dir.join(tool))
        .find(|place| is_executable(place))
        .ok_or_else(|| EngineError::Unavailable {
            backend,
            why: format!("there is no `{tool}` on this host"),
            fix: format!("install it with `apt-get install {package}`, or use --backend native"),
        })
}

fn is_executable(place: &Path) -> bool {
    std::fs::metadata(place)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Where root starts the run, the program is whoever owns what it may write to, as it is in a native sandbox; never root. An ordinary user is only himself.
pub(crate) fn owner(request: &Request, host: &Host) -> Result<Owner, EngineError> {
    if let Privilege::User { uid, gid } = host.privilege {
        return Ok(Owner::Of { uid, gid });
    }
    let workspace = request
        .workspace
        .iter()
        .filter(|workspace| workspace.access == WorkspaceAccess::ReadWrite)
        .map(|workspace| &workspace.path);
    let mounts = request
        .mounts
        .iter()
        .filter(|mount| mount.access == MountAccess::ReadWrite)
        .map(|mount| &mount.source);
    let mut owner = Owner::Nobody;
    let refused = |path: &Path, why: &str| EngineError::Unavailable {
        backend: request.backend.as_str(),
        why: format!("`{}` {why}", path.display()),
        fix: "give it to an ordinary user with chown, use :ro, or use --backend native".to_owned(),
    };
    for path in workspace.chain(mounts) {
        let found = std::fs::metadata(path).map_err(|error| EngineError::Unreadable {
            what: "cannot open",
            path: path.display().to_string(),
            errno: error
                .raw_os_error()
                .map_or(Errno::IO, Errno::from_raw_os_error),
        })?;
        let this = Owner::Of {
            uid: found.uid(),
            gid: found.gid(),
        };
        if found.uid() == 0 {
            return Err(refused(
                path,
                "belongs to root, and nothing runs there as root",
            ));
        }
        if owner != Owner::Nobody && owner != this {
            return Err(refused(
                path,
                "belongs to another user than the rest that the program may write to",
            ));
        }
        owner = this;
    }
    Ok(owner)
}
