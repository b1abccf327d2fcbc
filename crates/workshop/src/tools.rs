//! Whether the sandbox sees the tools of a project: it shows /usr. A Rust toolchain of the caller's is shown to it as well; for others it says what to do.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::request::{Mount, MountAccess};
use cofferdam_project::{Detection, Ecosystem, Project, ecosystem};

use crate::error::WorkError;

/// What a step gets beyond its own needs.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    pub(crate) mounts: Vec<Mount>,
    /// Stands before the usual places to look for programs.
    pub(crate) path: Option<String>,
}

const IN_VIEW: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/usr/local/sbin", "/usr/sbin"];
const RUST_INSIDE: &str = "/opt/rust";

/// Finds the tools of a project. What a person shows to the sandbox is believed to hold them.
pub(crate) fn find(project: &Project, shown: &[Mount]) -> Result<Tools, WorkError> {
    let missing = ecosystem::programs(project)
        .into_iter()
        .find(|program| !is_in_view(program));
    let Some(program) = missing.filter(|_| shown.is_empty()) else {
        return Ok(Tools::default());
    };
    if project.ecosystem == Ecosystem::Rust
        && let Some(sysroot) = rust_sysroot()
    {
        return Ok(Tools {
            mounts: vec![Mount {
                source: sysroot,
                target: RUST_INSIDE.into(),
                access: MountAccess::ReadOnly,
            }],
            path: Some(format!("{RUST_INSIDE}/bin")),
        });
    }
    let elsewhere = callers(program);
    let fix = match elsewhere {
        Some(at) => format!(
            "it is at {}, which the sandbox does not see; show its directory with --mount FROM:TO and name it with --env PATH=…",
            at.display()
        ),
        None => "install it where the sandbox sees it, below /usr".to_owned(),
    };
    let message = format!("{}: {program} is not there: {fix}", project.manifest);
    Err(WorkError::new(ErrorCode::BackendUnsupportedTask, message))
}

/// For commands that the project names itself: what there is, without a word about what there is not.
pub(crate) fn find_best_effort(found: &Detection, shown: &[Mount]) -> Tools {
    let rust = found
        .tops()
        .find(|project| project.ecosystem == Ecosystem::Rust);
    rust.and_then(|project| find(project, shown).ok())
        .unwrap_or_default()
}

fn is_in_view(program: &str) -> bool {
    IN_VIEW
        .iter()
        .any(|dir| Path::new(dir).join(program).exists())
}

/// In the caller's own search path; never in the directory that the caller happens to be in.
fn callers(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// Asked from the root directory: a file in the project must not choose what is run out here.
fn rust_sysroot() -> Option<PathBuf> {
    let answer = Command::new(callers("rustc")?)
        .args(["--print", "sysroot"])
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let sysroot = PathBuf::from(String::from_utf8(answer.stdout).ok()?.trim());
    sysroot.join("bin/cargo").is_file().then_some(sysroot)
}
