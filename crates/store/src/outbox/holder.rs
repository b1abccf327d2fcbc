//! Who takes messages. A holder is a locked file for as long as its process lives, so that what a killed one had taken is taken up at once and not when its lease ends. The lock says it
//! also across pid namespaces, where a process number says nothing.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::data_dir::DataDir;
use crate::error::StoreError;
use crate::id::RunId;

#[derive(Debug)]
pub(super) struct Holder {
    name: String,
    path: PathBuf,
    /// The lock lives as long as this is open.
    _lock: File,
}

impl Holder {
    pub(super) fn new(dir: &DataDir) -> Result<Self, StoreError> {
        let name = RunId::new().to_string();
        let path = lock_file(dir, &name);
        let lock = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(StoreError::io("make", &path))?;
        lock.lock().map_err(StoreError::io("lock", &path))?;
        Ok(Self {
            name,
            path,
            _lock: lock,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // One that stays is removed by the next look at it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether the holder of this name is certainly gone. Where that cannot be told, its lease decides.
pub(super) fn is_gone(dir: &DataDir, name: &str) -> bool {
    let path = lock_file(dir, name);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) => return error.kind() == std::io::ErrorKind::NotFound,
    };
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = fs::remove_file(&path);
            true
        }
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
    }
}

/// Removes what killed processes left that had taken nothing, so that nobody asks for them by name.
pub(super) fn sweep_best_effort(dir: &DataDir) {
    /// One that is just being made has no lock yet.
    const GRACE: Duration = Duration::from_secs(60);
    for entry in fs::read_dir(dir.couriers()).into_iter().flatten().flatten() {
        let made = entry.metadata().and_then(|found| found.modified());
        let is_old = made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > GRACE));
        let path = entry.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        if let Some(name) = name.filter(|name| is_old && name.parse::<RunId>().is_ok()) {
            is_gone(dir, name);
        }
    }
}

/// The names come from the database; one that is not an id names no file.
fn lock_file(dir: &DataDir, name: &str) -> PathBuf {
    let name = name
        .parse::<RunId>()
        .map_or_else(|_| "none".to_owned(), |id| id.to_string());
    dir.couriers().join(format!("{name}.lock"))
}
