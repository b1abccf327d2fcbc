//! Where package managers keep what they fetched. One place for each project unless one is named: what a project leaves there is nobody else's.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use cofferdam_contract::codes::ErrorCode;

use crate::failure::Failure;

/// The directory that holds a directory for each cache.
pub(crate) fn place(named: Option<&Path>, root: &Path) -> Result<PathBuf, Failure> {
    let place = match named {
        Some(named) => named.to_owned(),
        None => own(root, |name| std::env::var_os(name).map(PathBuf::from))?,
    };
    make(&place)?;
    place.canonicalize().map_err(|error| failed(&place, &error))
}

/// Which project a place belongs to, for people who look at it later.
pub(crate) fn remember_best_effort(place: &Path, root: &Path) {
    let note = place.join(PROJECT);
    if note.symlink_metadata().is_err() {
        let _ = std::fs::write(note, root.as_os_str().as_encoded_bytes());
    }
}

/// Holds the path of the project.
pub(crate) const PROJECT: &str = ".project";
/// Where the caches of a project are, also when there are none yet.
pub(crate) fn of_project(root: &Path) -> Result<PathBuf, Failure> {
    own(root, |name| std::env::var_os(name).map(PathBuf::from))
}

/// The directory that holds a place for each project.
pub(crate) fn all() -> Result<PathBuf, Failure> {
    let base = base(|name| std::env::var_os(name).map(PathBuf::from))?;
    Ok(base.join("cofferdam/projects"))
}

fn own(root: &Path, variable: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, Failure> {
    Ok(base(variable)?.join("cofferdam/projects").join(name(root)))
}

fn base(variable: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, Failure> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let base = variable("XDG_CACHE_HOME")
        .filter(absolute)
        .or_else(|| Some(variable("HOME").filter(absolute)?.join(".cache")));
    base.ok_or_else(|| {
        Failure::problem(
            "--cache-dir",
            "",
            "says where packages are kept, and neither XDG_CACHE_HOME nor HOME does; name a directory",
        )
    })
}

/// The path in a form that is one name, for people to recognise and to remove.
fn name(root: &Path) -> String {
    const KEPT: usize = 40;
    let text = root.to_string_lossy();
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in root.as_os_str().as_encoded_bytes() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let last = text.rsplit('/').next().unwrap_or_default();
    let plain: String = last
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        .take(KEPT)
        .collect();
    format!("{plain}-{hash:016x}")
}

/// Readable inside, where whoever looks is somebody else.
pub(crate) fn make(dir: &Path) -> Result<(), Failure> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(dir)
        .map_err(|error| failed(dir, &error))
}

pub(crate) fn failed(dir: &Path, error: &std::io::Error) -> Failure {
    let what = format!("--cache-dir: cannot use `{}`", dir.display());
    Failure::io(ErrorCode::InputUnreadable, &what, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_project_has_a_cache_of_its_own() {
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/home/me"));
        let a = own(Path::new("/src/a b"), home).unwrap();
        let b = own(Path::new("/other/a b"), home).unwrap();
        assert!(a.starts_with("/home/me/.cache/cofferdam/projects"));
        assert!(a.to_string_lossy().contains("/ab-") && a != b);
        assert!(own(Path::new("/x"), |_| None).is_err());
        assert!(own(Path::new("/x"), |_| Some("relative".into())).is_err());
    }
}
