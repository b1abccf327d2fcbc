//! A directory for one run alone: made before it, locked while it lasts, removed after it. What a killed process left is removed by whoever comes next.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::beneath;
use crate::data_dir::DataDir;
use crate::error::StoreError;
use crate::id::RunId;

/// A directory that goes when this goes.
#[derive(Debug)]
pub struct PrivateDir {
    path: PathBuf,
    /// Held for as long as the directory is somebody's.
    _lock: File,
}

impl PrivateDir {
    pub fn create(dir: &DataDir, run: RunId) -> Result<Self, StoreError> {
        let path = dir.work().join(run.to_string());
        let failed = || StoreError::io("make the directory", &path);
        let private = |recursive: bool, path: &Path| {
            DirBuilder::new()
                .recursive(recursive)
                .mode(0o700)
                .create(path)
        };
        private(true, &dir.work()).map_err(failed())?;
        private(false, &path).map_err(failed())?;
        let lock = File::open(&path).map_err(failed())?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| failed()(errno.into()))?;
        Ok(Self { path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file below. For the time before anything runs in here: no name can be a link by then.
    pub fn place(&self, relative: &str, bytes: &[u8], mode: u32) -> Result<(), StoreError> {
        let path = self.path.join(relative);
        let failed = || StoreError::io("write", &path);
        let is_plain = Path::new(relative)
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !is_plain || relative.is_empty() {
            return Err(failed()(io::ErrorKind::InvalidInput.into()));
        }
        if let Some(parent) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(parent)
                .map_err(failed())?;
        }
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode & 0o755)
            .open(&path)
            .and_then(|mut file| file.write_all(bytes))
            .map_err(failed())
    }

    /// Writes a file anew, also after a program ran in here and may have made any name a link: no link is followed, neither on the way nor at its end.
    pub fn replace(&self, relative: &str, bytes: &[u8], mode: u32) -> Result<(), StoreError> {
        let path = self.path.join(relative);
        let failed = |error| StoreError::io("write", &path)(error);
        self.write_anew(relative, bytes, mode).map_err(failed)
    }

    fn write_anew(&self, relative: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut dir = rustix::fs::open(&self.path, flags, Mode::empty())?;
        let mut names = relative.split('/').peekable();
        while let Some(name) = names.next() {
            if matches!(name, "" | "." | "..") {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            if names.peek().is_some() {
                dir = rustix::fs::openat(&dir, name, flags, Mode::empty())?;
                continue;
            }
            match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
            let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let mode = Mode::from_raw_mode(mode & 0o755);
            let file = rustix::fs::openat(&dir, name, new | OFlags::NOFOLLOW, mode)?;
            return File::from(file).write_all(bytes);
        }
        Err(io::ErrorKind::InvalidInput.into())
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        // What cannot be removed now, the next one tries again.
        let _ = remove_tree(&self.path);
    }
}

/// One that is just being made has no lock yet.
const GRACE: Duration = Duration::from_secs(2);

/// Removes the directories whose makers are gone.
pub fn sweep_best_effort(dir: &DataDir) {
    sweep_older_best_effort(dir, GRACE);
}

fn sweep_older_best_effort(dir: &DataDir, grace: Duration) {
    for entry in fs::read_dir(dir.work()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours = name
            .to_str()
            .is_some_and(|name| name.parse::<RunId>().is_ok());
        if !is_ours || is_young(&entry.path(), grace) {
            continue;
        }
        let Ok(lock) = open_left(&entry.path()) else {
            continue;
        };
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = remove_tree(&entry.path());
        }
    }
}

/// Removes what a killed process left of this run, however young it is: for whoever knows that nobody else makes it now.
pub fn remove_left(dir: &DataDir, run: RunId) -> Result<(), StoreError> {
    const TRIES: usize = 100;
    let path = dir.work().join(run.to_string());
    let lock = match open_left(&path) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StoreError::io("open", &path)(error)),
    };
    for _ in 0..TRIES {
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            break;
        }
        // The kernel is about to end what holds it.
        std::thread::sleep(Duration::from_millis(10));
    }
    remove_tree(&path).map_err(StoreError::io("remove", &path))
}

/// The program may have closed its directory to us.
fn open_left(path: &Path) -> io::Result<File> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            beneath::open_up(rustix::fs::CWD, path);
            File::open(path)
        }
        other => other,
    }
}

/// Removes a tree that a program made. Nothing of it runs any more.
fn remove_tree(top: &Path) -> io::Result<()> {
    beneath::remove(rustix::fs::CWD, top)
}

fn is_young(dir: &Path, grace: Duration) -> bool {
    let made = fs::symlink_metadata(dir).and_then(|found| found.modified());
    made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age < grace))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Gid, Uid};

    use super::*;

    #[test]
    fn what_is_written_anew_follows_no_link() {
        let top = tempfile::tempdir().unwrap();
        let dir = DataDir::at(top.path().join("data"));
        let private = PrivateDir::create(&dir, RunId::new()).unwrap();
        private.place("in/event.json", b"1", 0o644).unwrap();
        let file = private.path().join("in/event.json");
        private.replace("in/event.json", b"2", 0o644).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"2");
        let outside = top.path().join("outside");
        fs::write(&outside, "safe").unwrap();
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&outside, &file).unwrap();
        private.replace("in/event.json", b"3", 0o644).unwrap();
        assert_eq!(fs::read(&outside).unwrap(), b"safe");
        assert_eq!(fs::read(&file).unwrap(), b"3");
        fs::remove_dir_all(private.path().join("in")).unwrap();
        std::os::unix::fs::symlink(top.path(), private.path().join("in")).unwrap();
        assert!(private.replace("in/outside", b"4", 0o644).is_err());
        assert!(private.replace("../outside", b"4", 0o644).is_err());
        assert!(private.replace("", b"4", 0o644).is_err());
        assert_eq!(fs::read(&outside).unwrap(), b"safe");
    }

    #[test]
    fn a_directory_is_private_takes_plain_names_and_goes() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        let private = PrivateDir::create(&dir, RunId::new()).unwrap();
        let path = private.path().to_owned();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o700
        );
        private.place("a/b.txt", b"x", 0o4777).unwrap();
        let mode = fs::metadata(path.join("a/b.txt"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777 & !0o022, 0o755 & !0o022);
        for bad in ["", "..", "/etc/x", "a/../../x", "a/b.txt"] {
            assert!(private.place(bad, b"", 0o644).is_err(), "{bad}");
        }
        sweep_best_effort(&dir);
        assert!(path.exists());
        drop(private);
        assert!(!path.exists());
    }

    #[test]
    fn a_run_that_is_taken_up_again_finds_its_place_free() {
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        let run = RunId::new();
        remove_left(&dir, run).unwrap();
        fs::create_dir_all(dir.work().join(run.to_string()).join("deep")).unwrap();
        assert!(PrivateDir::create(&dir, run).is_err());
        remove_left(&dir, run).unwrap();
        PrivateDir::create(&dir, run).unwrap();
    }

    #[test]
    fn what_a_killed_process_left_is_swept() {
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        let left = dir.work().join(RunId::new().to_string());
        fs::create_dir_all(left.join("deep")).unwrap();
        let somebody_elses = dir.work().join("notes");
        fs::create_dir_all(&somebody_elses).unwrap();
        // However long this takes, it is younger than that.
        sweep_older_best_effort(&dir, Duration::from_secs(3600));
        assert!(left.exists(), "it may just be being made");
        let old = std::time::SystemTime::now() - Duration::from_secs(60);
        File::open(&left).unwrap().set_modified(old).unwrap();
        sweep_best_effort(&dir);
        assert!(!left.exists() && somebody_elses.exists());
    }

    /// Deeper than any stack, and closed on the way: for root, whom nothing is closed to, and for anybody else.
    #[test]
    fn no_tree_is_too_deep_or_too_closed_to_be_removed() {
        deep_and_closed_tree_goes();
        what_closed_itself_is_left_behind_goes();
        let as_somebody = || {
            let (user, group) = (Uid::from_raw(65534), Gid::from_raw(65534));
            if rustix::process::geteuid().is_root() {
                // Of this thread alone.
                rustix::thread::set_thread_groups(&[]).unwrap();
                rustix::thread::set_thread_res_gid(group, group, group).unwrap();
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            }
            deep_and_closed_tree_goes();
            what_closed_itself_is_left_behind_goes();
        };
        std::thread::spawn(as_somebody).join().unwrap();
    }

    fn what_closed_itself_is_left_behind_goes() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        let closed = |run: RunId| {
            let left = dir.work().join(run.to_string());
            fs::create_dir_all(left.join("inner")).unwrap();
            fs::set_permissions(&left, fs::Permissions::from_mode(0o0)).unwrap();
            left
        };
        let left = closed(RunId::new());
        sweep_older_best_effort(&dir, Duration::ZERO);
        assert!(!left.exists());
        let run = RunId::new();
        closed(run);
        remove_left(&dir, run).unwrap();
        PrivateDir::create(&dir, run).unwrap();
    }

    fn deep_and_closed_tree_goes() {
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        let private = PrivateDir::create(&dir, RunId::new()).unwrap();
        let top = private.path().to_owned();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut here = rustix::fs::open(&top, flags, Mode::empty()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
            here = rustix::fs::openat(&here, "d", flags, Mode::empty()).unwrap();
        }
        drop(here);
        private.place("closed/inner/file", b"x", 0o644).unwrap();
        std::os::unix::fs::symlink("/etc", top.join("closed/link")).unwrap();
        for closed in ["closed/inner", "closed"] {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(top.join(closed), fs::Permissions::from_mode(0o0)).unwrap();
        }
        drop(private);
        assert!(!top.exists());
        assert!(Path::new("/etc").exists());
    }
}
