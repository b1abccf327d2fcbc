//! A file system of a test's own, for what depends on how much room there is: nobody else fills or empties it meanwhile.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Something mounted for the length of a test. Takes root.
#[derive(Debug)]
pub struct Mounted(PathBuf);

impl Mounted {
    /// `options` as `mount -o` takes them.
    pub fn tmpfs(at: &Path, options: &str) -> Self {
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(at)
            .status();
        assert!(done.is_ok_and(|status| status.success()), "cannot mount");
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
