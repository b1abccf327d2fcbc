//! What other parts of the store do for the database: contents by their digest, and the output of a run that still goes on.
//!
//! Until those parts are here, contents are plain files at the places where the store keeps them, and a run that goes on has no output to show.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::data_dir::DataDir;
use crate::error::StoreError;
use crate::id::RunId;
use crate::log::Chunk;
use crate::model::Digest;

/// What a run that goes on has written so far.
pub(crate) fn live_output(dir: &DataDir, id: RunId) -> Result<Vec<Chunk>, StoreError> {
    let _ = dir;
    Err(StoreError::Invalid {
        field: "run",
        value: id.to_string(),
        why: "it has not ended, and its output is still in its journal".to_owned(),
    })
}

/// Contents, by their digest.
#[derive(Debug)]
pub(crate) struct Objects {
    root: PathBuf,
}

/// One of the contents that are there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) digest: Digest,
    pub(crate) stored_bytes: u64,
    pub(crate) modified: SystemTime,
}

impl Objects {
    pub(crate) fn open(dir: &DataDir) -> Self {
        Self {
            root: dir.objects(),
        }
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        let name = digest.to_string();
        let (folder, file) = name.split_at(2);
        self.root.join(folder).join(file)
    }

    pub(crate) fn get(&self, digest: &Digest) -> Result<Vec<u8>, StoreError> {
        let path = self.path(digest);
        let bytes = fs::read(&path).map_err(StoreError::io("read", &path))?;
        if Digest::of(&bytes) == *digest {
            return Ok(bytes);
        }
        let why = "its contents are not those that its name says".to_owned();
        Err(StoreError::Damaged { path, why })
    }

    /// `None` when it is not there.
    pub(crate) fn find(&self, digest: &Digest) -> Option<Found> {
        let metadata = fs::metadata(self.path(digest)).ok()?;
        Some(Found {
            digest: *digest,
            stored_bytes: metadata.len(),
            modified: metadata.modified().ok()?,
        })
    }

    /// How many bytes that freed.
    pub(crate) fn remove(&self, digest: &Digest) -> Result<u64, StoreError> {
        let path = self.path(digest);
        let freed = fs::metadata(&path).map_or(0, |found| found.len());
        match fs::remove_file(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            other => other
                .map(|()| freed)
                .map_err(StoreError::io("remove", &path)),
        }
    }

    /// Everything that is there. Files with other names are not ours and are left out.
    pub(crate) fn all(&self) -> Result<Vec<Found>, StoreError> {
        let mut found = Vec::new();
        let folders = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
            other => other.map_err(StoreError::io("list", &self.root))?,
        };
        for folder in folders.flatten() {
            let Ok(files) = fs::read_dir(folder.path()) else {
                continue;
            };
            for file in files.flatten() {
                let mut name = folder.file_name();
                name.push(file.file_name());
                let digest = name.to_str().and_then(|name| name.parse().ok());
                found.extend(digest.and_then(|digest| self.find(&digest)));
            }
        }
        Ok(found)
    }

    #[cfg(test)]
    pub(crate) fn put(&self, bytes: &[u8]) -> Result<Digest, StoreError> {
        let digest = Digest::of(bytes);
        let path = self.path(&digest);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(StoreError::io("make", folder))?;
        }
        fs::write(&path, bytes).map_err(StoreError::io("write", &path))?;
        Ok(digest)
    }
}
