//! What lies in a directory, as one hash: names, kinds, modes and contents, or for a whole root file system what the kernel says of its files. Bounded; follows no link; what
//! is neither file nor directory nor link has no contents that could be hashed.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// Why an answer cannot be kept or found.
#[derive(Debug, thiserror::Error)]
pub enum Unkeyable {
    /// It may depend on more than it was given, or change it.
    #[error("{what}")]
    Impure { what: &'static str },
    #[error("`{}` holds more than {most}; give a smaller directory", path.display())]
    TooMuch { path: PathBuf, most: &'static str },
    #[error("`{}` is neither a file, nor a directory, nor a link", path.display())]
    Special { path: PathBuf },
    #[error("`{}` cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
}

const MOST_BYTES: u64 = 256 << 20;
const MOST_FILES: u32 = 50_000;
const MOST_OF_ROOT: u32 = 500_000;

/// What may still be read.
#[derive(Debug)]
pub(super) struct Reading {
    bytes: u64,
    files: u32,
    of_root: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Contents,
    /// Size, times and inode of each file. A change that leaves all of them takes a changed clock.
    Metadata,
}

impl Reading {
    pub(super) const fn new() -> Self {
        Self {
            bytes: MOST_BYTES,
            files: MOST_FILES,
            of_root: MOST_OF_ROOT,
        }
    }

    pub(super) fn contents(&mut self, top: &Path) -> Result<[u8; 32], Unkeyable> {
        self.walk(top, How::Contents)
    }

    pub(super) fn metadata(&mut self, top: &Path) -> Result<[u8; 32], Unkeyable> {
        self.walk(top, How::Metadata)
    }

    fn walk(&mut self, top: &Path, how: How) -> Result<[u8; 32], Unkeyable> {
        let mut hash = Sha256::new();
        // The place itself may be a link that the caller made; what is below is the stranger's.
        let found = fs::metadata(top).map_err(unreadable(top))?;
        if found.is_file() {
            self.file(top, top, &found, how, &mut hash)?;
            return Ok(hash.finalize().into());
        }
        let mut dirs = vec![top.to_owned()];
        while let Some(dir) = dirs.pop() {
            for path in sorted(&dir)? {
                let found = fs::symlink_metadata(&path).map_err(unreadable(&path))?;
                if found.is_dir() {
                    self.entry(top, &path, &found, how, b"d", &mut hash)?;
                    dirs.push(path);
                } else if found.is_symlink() {
                    self.entry(top, &path, &found, how, b"l", &mut hash)?;
                    let target = fs::read_link(&path).map_err(unreadable(&path))?;
                    piece(&mut hash, target.as_os_str().as_bytes());
                } else if found.is_file() {
                    self.file(top, &path, &found, how, &mut hash)?;
                } else if how == How::Metadata {
                    self.entry(top, &path, &found, how, b"s", &mut hash)?;
                } else {
                    return Err(Unkeyable::Special { path });
                }
            }
        }
        Ok(hash.finalize().into())
    }

    fn entry(
        &mut self,
        top: &Path,
        path: &Path,
        found: &fs::Metadata,
        how: How,
        kind: &[u8],
        hash: &mut Sha256,
    ) -> Result<(), Unkeyable> {
        let (left, most) = match how {
            How::Contents => (&mut self.files, "50000 files"),
            How::Metadata => (&mut self.of_root, "500000 files"),
        };
        *left = left.checked_sub(1).ok_or_else(|| Unkeyable::TooMuch {
            path: top.to_owned(),
            most,
        })?;
        piece(hash, kind);
        let name = path.strip_prefix(top).unwrap_or(path);
        // A single file has no name of its own inside.
        piece(hash, name.as_os_str().as_bytes());
        piece(hash, &found.mode().to_le_bytes());
        if how == How::Metadata {
            piece(hash, &stat_bytes(found));
        }
        Ok(())
    }

    fn file(
        &mut self,
        top: &Path,
        path: &Path,
        found: &fs::Metadata,
        how: How,
        hash: &mut Sha256,
    ) -> Result<(), Unkeyable> {
        self.entry(top, path, found, how, b"f", hash)?;
        if how == How::Metadata {
            return Ok(());
        }
        let mut options = File::options();
        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
        options
            .read(true)
            .custom_flags(i32::try_from(flags.bits()).unwrap_or(0));
        let is_top = top == path;
        let file = if is_top {
            File::open(path)
        } else {
            options.open(path)
        };
        let file = file.map_err(unreadable(path))?;
        let mut of_file = Sha256::new();
        let mut limited = file.take(self.bytes.saturating_add(1));
        let mut buffer = vec![0; 64 << 10];
        let mut read = 0;
        loop {
            match limited.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    of_file.update(buffer.get(..length).unwrap_or_default());
                    read += u64::try_from(length).unwrap_or(u64::MAX);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(path)(error)),
            }
        }
        self.bytes = self
            .bytes
            .checked_sub(read)
            .ok_or_else(|| Unkeyable::TooMuch {
                path: top.to_owned(),
                most: "256 MiB",
            })?;
        piece(hash, &of_file.finalize());
        Ok(())
    }
}

fn sorted(dir: &Path) -> Result<Vec<PathBuf>, Unkeyable> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable(dir))? {
        paths.push(entry.map_err(unreadable(dir))?.path());
    }
    paths.sort();
    Ok(paths)
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Unkeyable {
    let path = path.to_owned();
    move |source| Unkeyable::Unreadable { path, source }
}

fn piece(hash: &mut Sha256, bytes: &[u8]) {
    hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
    hash.update(bytes);
}

/// What changes when a file is replaced, written to, or gets or loses entries.
pub(super) fn stat_bytes(found: &fs::Metadata) -> Vec<u8> {
    let numbers = [
        found.dev(),
        found.ino(),
        found.size(),
        u64::from(found.mode()),
    ];
    let times = [
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec(),
    ];
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    let times = times.iter().flat_map(|number| number.to_le_bytes());
    numbers.chain(times).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_a_missing_directory_and_too_much_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let missing = Reading::new().contents(&dir.path().join("no"));
        assert!(matches!(missing, Err(Unkeyable::Unreadable { .. })));
        fs::write(dir.path().join("a"), [0; 100]).unwrap();
        let few = |bytes, files| Reading {
            bytes,
            files,
            of_root: 0,
        };
        assert!(few(100, 1).contents(dir.path()).is_ok());
        for mut small in [few(99, 1), few(100, 0)] {
            let found = small.contents(dir.path());
            assert!(matches!(found, Err(Unkeyable::TooMuch { .. })), "{found:?}");
        }
        let pipe = dir.path().join("pipe");
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        );
        made.unwrap();
        let found = Reading::new().contents(dir.path());
        assert!(matches!(found, Err(Unkeyable::Special { .. })), "{found:?}");
    }

    #[test]
    fn a_link_out_of_the_directory_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::write(&outside, "one").unwrap();
        let inside = dir.path().join("inside");
        fs::create_dir(&inside).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let before = Reading::new().contents(&inside).unwrap();
        fs::write(&outside, "two").unwrap();
        assert_eq!(Reading::new().contents(&inside).unwrap(), before);
    }

    #[test]
    fn a_root_is_known_by_what_the_kernel_says_of_its_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "one").unwrap();
        let before = Reading::new().metadata(dir.path()).unwrap();
        assert_eq!(Reading::new().metadata(dir.path()).unwrap(), before);
        fs::write(dir.path().join("a"), "two!").unwrap();
        assert_ne!(Reading::new().metadata(dir.path()).unwrap(), before);
    }
}
