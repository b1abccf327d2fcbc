//! Whether the sandbox sees the tools of a project: it shows /usr. A Rust toolchain of the caller's is shown to it as well; for others it says what to do.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::request::{BackendName, Mount, MountAccess};
use cofferdam_project::{Action, Detection, Ecosystem, Project, ecosystem};

use crate::error::WorkError;
use crate::step::Bench;

/// What a step gets beyond its own needs.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    pub(crate) mounts: Vec<Mount>,
    /// Stands before the usual places to look for programs.
    pub(crate) path: Option<String>,
}

const IN_VIEW: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/usr/local/sbin", "/usr/sbin"];
const RUST_INSIDE: &str = "/opt/rust";
/// Programs of the caller's that are shown one by one.
const BESIDE_INSIDE: &str = "/opt/rust-tools";
/// How long a compiler may take to say where it is.
const PATIENCE: Duration = Duration::from_secs(30);
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
/// No path is longer.
const LONGEST_ANSWER: u64 = 4096;

/// Finds the tools of a project. What a person shows to the sandbox is believed to hold them, and so is an image.
pub(crate) fn find(
    project: &Project,
    action: Action,
    bench: &Bench<'_>,
) -> Result<Tools, WorkError> {
    if matches!(bench.backend, BackendName::Host | BackendName::Docker) || !bench.mounts.is_empty()
    {
        return Ok(Tools::default());
    }
    let mut tools = Tools::default();
    for program in ecosystem::programs(project, action) {
        if is_in_view(program) || tools.holds(program) {
            continue;
        }
        let is_rust = project.ecosystem == Ecosystem::Rust;
        let found = is_rust && tools.add_rust(program, bench);
        if !found {
            return Err(missing(project, program));
        }
    }
    Ok(tools)
}

impl Tools {
    fn holds(&self, program: &str) -> bool {
        self.mounts
            .iter()
            .any(|mount| mount.source.join("bin").join(program).is_file())
    }

    /// A toolchain of the caller's, or one more program beside it.
    fn add_rust(&mut self, program: &str, bench: &Bench<'_>) -> bool {
        let (source, target) = match program {
            "cargo" | "rustc" => (rust_sysroot(bench), RUST_INSIDE.to_owned()),
            _ => (callers(program), format!("{BESIDE_INSIDE}/{program}")),
        };
        let Some(source) = source else {
            return false;
        };
        let dir = match program {
            "cargo" | "rustc" => format!("{RUST_INSIDE}/bin"),
            _ => BESIDE_INSIDE.to_owned(),
        };
        self.mounts.push(Mount {
            source,
            target: target.into(),
            access: MountAccess::ReadOnly,
        });
        self.path = Some(match self.path.take() {
            Some(path) => format!("{path}:{dir}"),
            None => dir,
        });
        true
    }
}

fn missing(project: &Project, program: &str) -> WorkError {
    let fix = match callers(program) {
        Some(at) => format!(
            "it is at {}, which the sandbox does not see; show its directory with --mount FROM:TO and name it with --env PATH=…",
            at.display()
        ),
        None => "install it where the sandbox sees it, below /usr".to_owned(),
    };
    let message = format!("{}: {program} is not there: {fix}", project.manifest);
    WorkError::new(ErrorCode::BackendUnsupportedTask, message)
}

/// For commands that the project names itself: what there is, without a word about what there is not.
pub(crate) fn find_best_effort(found: &Detection, bench: &Bench<'_>) -> Tools {
    let rust = found
        .tops()
        .find(|project| project.ecosystem == Ecosystem::Rust);
    rust.and_then(|project| find(project, Action::Build, bench).ok())
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

/// Asked from the root directory: a file in the project must not choose what is run out here. Nothing is fetched for an answer, and it is not waited for long.
fn rust_sysroot(bench: &Bench<'_>) -> Option<PathBuf> {
    let mut asked = Command::new(callers("rustc")?)
        .args(["--print", "sysroot"])
        .current_dir("/")
        .env("RUSTUP_AUTO_INSTALL", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let until = Instant::now() + PATIENCE;
    let is_over = loop {
        match asked.try_wait() {
            Ok(None) if Instant::now() >= until || bench.is_over() => break false,
            Ok(None) => std::thread::sleep(BETWEEN_LOOKS),
            Ok(Some(_)) => break true,
            Err(_) => break false,
        }
    };
    if !is_over {
        let _ = asked.kill();
        let _ = asked.wait();
        return None;
    }
    let mut answer = String::new();
    let told = asked.stdout.take()?.take(LONGEST_ANSWER);
    BufReader::new(told).read_line(&mut answer).ok()?;
    let sysroot = PathBuf::from(answer.trim());
    sysroot.join("bin/cargo").is_file().then_some(sysroot)
}
