//! An empty directory of the host for what is tried on one. It goes when it has been tried; what a killed doctor left goes with the next.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_store::RunId;

pub(super) struct Scratch {
    pub(super) path: PathBuf,
}

const PREFIX: &str = "cofferdam-doctor-";
/// Nobody tries anything for that long.
const LEFT_AFTER: Duration = Duration::from_secs(600);

impl Scratch {
    pub(super) fn make(within: &Path) -> io::Result<Self> {
        sweep_best_effort(within, LEFT_AFTER);
        let path = within.join(format!("{PREFIX}{}", RunId::new()));
        std::fs::create_dir(&path)?;
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Only what is empty can be removed so, and only a directory: whatever else has such a name stays.
fn sweep_best_effort(within: &Path, left_after: Duration) {
    for entry in std::fs::read_dir(within).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let is_left = || {
            let age = entry.metadata().ok()?.modified().ok()?.elapsed().ok()?;
            Some(age >= left_after)
        };
        if is_ours && is_left() == Some(true) {
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_doctor_left_goes_and_what_is_in_use_or_not_ours_stays() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let old = Scratch::make(dir.path()).unwrap();
        let left = old.path.clone();
        std::mem::forget(old);
        std::fs::create_dir_all(at("cofferdam-doctor-full/inside")).unwrap();
        std::fs::create_dir(at("other")).unwrap();
        std::os::unix::fs::symlink("other", at("cofferdam-doctor-link")).unwrap();
        let new = Scratch::make(dir.path()).unwrap();
        assert!(left.exists(), "it may be in use");
        sweep_best_effort(dir.path(), Duration::ZERO);
        assert!(!left.exists() && !new.path.exists());
        assert!(at("cofferdam-doctor-full").exists() && at("other").exists());
        assert!(at("cofferdam-doctor-link").is_symlink());
    }
}
