//! Which name means which image: one small file, replaced whole, under a lock that is held for as long as that takes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use cofferdam_store::data_dir::create_private;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::ImageError;

/// Tags (`name:tag`) and what was asked for by digest (`name@sha256:…`), each with the id of its image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Names(pub(crate) BTreeMap<String, Digest>);

/// Held while names or images are changed.
#[derive(Debug)]
pub(crate) struct Changing {
    path: PathBuf,
    _lock: File,
}

impl Changing {
    /// Waits for whoever changes something now, which is never long.
    pub(crate) fn begin(dir: &Path) -> Result<Self, ImageError> {
        create_private(dir).map_err(ImageError::unwritable(dir))?;
        let lock = dir.join("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock)
            .map_err(ImageError::unwritable(&lock))?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
            .map_err(|errno| ImageError::unwritable(&lock)(errno.into()))?;
        Ok(Self {
            path: dir.join("names.json"),
            _lock: file,
        })
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Names)) -> Result<(), ImageError> {
        let mut names = Names::read(&self.path)?;
        change(&mut names);
        let text = serde_json::to_vec_pretty(&names).unwrap_or_default();
        let new = self.path.with_extension("new");
        let failed = ImageError::unwritable(&new);
        let mut file = File::create(&new).map_err(&failed)?;
        file.write_all(&text).map_err(&failed)?;
        file.sync_all().map_err(&failed)?;
        fs::rename(&new, &self.path).map_err(ImageError::unwritable(&self.path))
    }
}

impl Names {
    /// Without the lock: it is always whole.
    pub(crate) fn of(dir: &Path) -> Result<Self, ImageError> {
        Self::read(&dir.join("names.json"))
    }

    fn read(path: &Path) -> Result<Self, ImageError> {
        let text = match fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            other => other.map_err(ImageError::unreadable(path))?,
        };
        serde_json::from_slice(&text).map_err(|error| {
            let what = format!("the list of names `{}`", path.display());
            ImageError::refused(
                what,
                format!("{error}; remove it and name the images again"),
            )
        })
    }

    /// The names of one image: its tags, and what it can be pinned by.
    pub(crate) fn of_image(&self, id: &Digest) -> (Vec<String>, Vec<String>) {
        let own = self.0.iter().filter(|(_, of)| *of == id);
        let own = own.map(|(name, _)| name.clone());
        own.partition(|name| !name.contains('@'))
    }
}
