//! The images that are unpacked here, as they are shown, and a file that one passes through.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_images::Stored;
use rustix::fs::{Mode, OFlags};

use super::Listed;
use crate::failure::Failure;

pub(super) fn listed(stored: Stored) -> Listed {
    Listed {
        store: "native",
        names: stored.names,
        id: stored.image.id.to_string(),
        digests: stored.digests,
        size_bytes: stored.image.size_bytes,
        created: stored.image.unpacked_at.as_second(),
    }
}

/// A file without a name, which goes with this process, however that ends.
pub(super) struct Passing(File);

impl Passing {
    pub(super) fn new() -> Result<Self, Failure> {
        let dir = std::env::temp_dir();
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(&dir, flags, Mode::RUSR | Mode::WUSR);
        file.map(|file| Self(file.into())).map_err(|errno| {
            let what = format!("cannot make a file in `{}`", dir.display());
            Failure::io(ErrorCode::OutputWriteFailed, &what, &errno.into())
        })
    }

    pub(super) fn file(&self) -> &File {
        &self.0
    }

    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}
