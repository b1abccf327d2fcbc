//! The private directory of one gVisor run: its bundle and runsc's own state. It goes when the run has; when we are killed, a process that waits for that removes it; and whatever an even
//! worse crash left is swept by the next run.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::FlockOperation;

/// Held for as long as the run needs its files.
#[derive(Debug)]
pub(super) struct Premises {
    dir: PathBuf,
    /// Locked: it says that we live.
    _lock: File,
    remover: Child,
}

/// Waits until we are gone, then tries for some seconds: runsc's last processes may still be writing.
const REMOVER: &str = "read -r _; for i in 1 2 3 4 5 6 7 8 9; do rm -rf -- \"$0\"; [ -e \"$0\" ] || break; sleep 0.$i; done; rmdir \"${0%/*}\"";
/// One that is being made has no lock yet for a moment.
const GRACE: Duration = Duration::from_secs(10);

impl Premises {
    /// Makes a fresh one that only its owner can look into. Another run may remove the directory around it, when it was the last there, in between.
    pub(super) fn make() -> io::Result<Self> {
        const TRIES: usize = 10;
        for _ in 0..TRIES {
            match Self::try_make() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => return other,
            }
        }
        Self::try_make()
    }

    fn try_make() -> io::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let base = base()?;
        sweep_best_effort(&base);
        let count = MADE.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let name = format!(
            "{}-{count}-{}",
            std::process::id(),
            now.unwrap_or_default().as_nanos()
        );
        let dir = base.join(name);
        DirBuilder::new().mode(0o700).create(&dir)?;
        let lock = File::open(&dir)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let remover = Command::new("/bin/sh")
            .arg("-c")
            .arg(REMOVER)
            .arg(&dir)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match remover {
            Ok(remover) => Ok(Self {
                dir,
                _lock: lock,
                remover,
            }),
            Err(error) => {
                let _ = std::fs::remove_dir(&dir);
                Err(error)
            }
        }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Premises {
    fn drop(&mut self) {
        // Ours by its handle, not by a number that could be somebody else's by now.
        let _ = self.remover.kill();
        let _ = self.remover.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
        // Goes only when it is empty.
        let _ = self.dir.parent().map(std::fs::remove_dir);
    }
}

/// Where all of them are: a directory of this user's alone.
fn base() -> io::Result<PathBuf> {
    let uid = rustix::process::geteuid();
    let parent = if uid.is_root() {
        PathBuf::from("/run")
    } else {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        runtime
            .filter(|dir| dir.is_absolute() && dir.is_dir())
            .unwrap_or_else(|| PathBuf::from("/tmp"))
    };
    let base = parent.join(format!("cofferdam-gvisor-{}", uid.as_raw()));
    match DirBuilder::new().mode(0o700).create(&base) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    check(&base, uid.as_raw())?;
    Ok(base)
}

/// In a directory that others may write to, somebody could have been there first.
fn check(base: &Path, uid: u32) -> io::Result<()> {
    let found = std::fs::symlink_metadata(base)?;
    if found.is_dir() && found.uid() == uid && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let said = format!(
        "`{}` is not a directory of ours alone; remove it",
        base.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, said))
}

/// Removes what belongs to nobody alive.
fn sweep_best_effort(base: &Path) {
    let Ok(listing) = std::fs::read_dir(base) else {
        return;
    };
    for found in listing.flatten() {
        let old = found
            .metadata()
            .and_then(|found| found.modified())
            .is_ok_and(|made| made.elapsed().is_ok_and(|age| age > GRACE));
        let Ok(dir) = File::open(found.path()) else {
            continue;
        };
        if old && rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = std::fs::remove_dir_all(found.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_directory_that_others_could_write_to_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let own = top.path().join("own");
        DirBuilder::new().mode(0o700).create(&own).unwrap();
        assert!(check(&own, uid).is_ok());
        assert!(check(&own, uid + 1).is_err());
        let link = top.path().join("link");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        assert!(check(&link, uid).is_err());
        let open = std::fs::Permissions::from_mode(0o770);
        std::fs::set_permissions(&own, open).unwrap();
        assert!(check(&own, uid).is_err());
    }

    #[test]
    fn what_somebody_alive_holds_is_not_swept_and_what_nobody_holds_is() {
        let top = tempfile::tempdir().unwrap();
        let (held, left) = (top.path().join("held"), top.path().join("left"));
        for dir in [&held, &left] {
            std::fs::create_dir_all(dir.join("bundle/rootfs")).unwrap();
        }
        let lock = File::open(&held).unwrap();
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        sweep_best_effort(top.path());
        assert!(left.exists(), "it is too young");
        let long_ago = SystemTime::now() - 2 * GRACE;
        for dir in [&held, &left] {
            File::open(dir).unwrap().set_modified(long_ago).unwrap();
        }
        sweep_best_effort(top.path());
        assert!(held.exists() && !left.exists());
    }
}
