//! A file that is written after strangers have run: its directory is held from before they began, and its name is replaced and never written through, so that no link
//! that they planted leads anywhere.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use cofferdam_contract::codes::ErrorCode;
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::failure::Failure;

#[derive(Debug)]
pub(super) struct Sheet {
    path: PathBuf,
    dir: OwnedFd,
    name: std::ffi::OsString,
}

impl Sheet {
    /// Before anything runs.
    pub(super) fn hold(flag: &str, path: &Path) -> Result<Self, Failure> {
        let Some(name) = path.file_name() else {
            return Err(Failure::problem(
                flag,
                &path.to_string_lossy(),
                "is no file; name one",
            ));
        };
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or_else(|| Path::new("."));
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(parent, flags, Mode::empty())
            .map_err(|errno| failed(path, &errno.into()))?;
        Ok(Self {
            path: path.to_owned(),
            dir,
            name: name.to_owned(),
        })
    }

    pub(super) fn write(&self, text: &str) -> Result<(), Failure> {
        self.replace(text.as_bytes())
            .map_err(|error| failed(&self.path, &error))
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let fresh = format!(".cofferdam-{}", std::process::id());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // One that is there already is a stranger's, or a crash left it.
        let _ = rustix::fs::unlinkat(&self.dir, &*fresh, AtFlags::empty());
        let mode = Mode::from_raw_mode(0o644);
        let mut file = File::from(rustix::fs::openat(&self.dir, &*fresh, flags, mode)?);
        let written = file.write_all(bytes).and_then(|()| {
            Ok(rustix::fs::renameat(
                &self.dir,
                &*fresh,
                &self.dir,
                &*self.name,
            )?)
        });
        if written.is_err() {
            let _ = rustix::fs::unlinkat(&self.dir, &*fresh, AtFlags::empty());
        }
        written
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot write `{}`", path.display());
    Failure::io(ErrorCode::OutputWriteFailed, &what, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_was_planted_meanwhile_is_replaced_and_not_followed() {
        let top = tempfile::tempdir().unwrap();
        let outside = top.path().join("outside");
        std::fs::write(&outside, "safe").unwrap();
        let dir = top.path().join("project");
        std::fs::create_dir(&dir).unwrap();
        let sheet = Sheet::hold("--junit", &dir.join("out.xml")).unwrap();
        std::os::unix::fs::symlink(&outside, dir.join("out.xml")).unwrap();
        sheet.write("new").unwrap();
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "safe");
        assert_eq!(std::fs::read_to_string(dir.join("out.xml")).unwrap(), "new");
        // The directory itself became a link: what is held is the one that was named.
        std::fs::rename(&dir, top.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(top.path(), &dir).unwrap();
        sheet.write("newer").unwrap();
        assert_eq!(
            std::fs::read_to_string(top.path().join("moved/out.xml")).unwrap(),
            "newer"
        );
        assert!(!top.path().join("out.xml").exists());
        assert!(Sheet::hold("--junit", Path::new("/no/such/dir/x")).is_err());
        assert!(Sheet::hold("--junit", Path::new("/")).is_err());
    }
}
