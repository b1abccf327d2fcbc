//! Reading a stranger's tree: everything is opened below one directory that is held, no link is followed, a pipe does not wait, and sizes are bounded.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

/// A directory that is held open.
#[derive(Debug)]
pub struct Beneath {
    dir: OwnedFd,
}

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    changed: (i64, u64),
}

/// What a name stands for, whatever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub kind: FileType,
    stamp: Stamp,
}

impl Mark {
    /// The same thing, whatever changed in it: of a directory, which names it holds.
    pub fn itself(self) -> Self {
        let stamp = Stamp {
            changed: (0, 0),
            ..self.stamp
        };
        Self { stamp, ..self }
    }
}

impl Beneath {
    /// The caller's own path: links in it are followed.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { dir })
    }

    /// The directory itself, once more: who reads it has a place in it of its own.
    pub(crate) fn again(&self) -> io::Result<OwnedFd> {
        self.step(&self.dir, ".")
    }

    /// What a name in it stands for; a link is one.
    pub(crate) fn kind(&self, name: &str) -> FileType {
        rustix::fs::statat(&self.dir, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |stat| {
                FileType::from_raw_mode(stat.st_mode)
            })
    }

    /// The whole of a regular file of at most `at_most` bytes.
    pub fn read(&self, relative: &str, at_most: u64) -> io::Result<Vec<u8>> {
        let file = self.file(relative)?;
        let mut bytes = Vec::new();
        let read = file
            .take(at_most.saturating_add(1))
            .read_to_end(&mut bytes)?;
        if u64::try_from(read).is_ok_and(|read| read > at_most) {
            let why = format!("is larger than {at_most} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        Ok(bytes)
    }

    /// As text; what is not UTF-8 is replaced.
    pub fn text(&self, relative: &str, at_most: u64) -> io::Result<String> {
        let bytes = self.read(relative, at_most)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub fn is_file(&self, relative: &str) -> bool {
        self.file(relative).is_ok()
    }

    /// The names of the regular files in a directory, with what tells their state; sorted.
    pub fn files(&self, dir: &str, at_most: usize) -> io::Result<Vec<(String, Stamp)>> {
        let dir = match dir {
            "." => self.step(&self.dir, ".")?,
            _ => {
                let (parent, name) = self.descend(dir)?;
                self.step(&parent, name)?
            }
        };
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            let Ok(stat) = rustix::fs::statat(&dir, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
            else {
                continue;
            };
            if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                found.push((name.to_owned(), Stamp::of(&stat)));
            }
            if found.len() >= at_most {
                break;
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }

    /// What a name stands for, without following it; `None` where there is nothing.
    pub fn mark(&self, relative: &str) -> io::Result<Option<Mark>> {
        let (parent, name) = self.descend(relative)?;
        match rustix::fs::statat(&parent, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Mark::of(&stat))),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Everything in a directory; an error where there is more than this.
    pub fn marks(&self, dir: &str, at_most: usize) -> io::Result<Vec<(String, Mark)>> {
        let dir = self.dir(dir)?;
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if found.len() >= at_most {
                return Err(io::Error::other(format!("holds more than {at_most} names")));
            }
            let stat = rustix::fs::statat(&dir, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
            found.push((name.to_string_lossy().into_owned(), Mark::of(&stat)));
        }
        Ok(found)
    }

    /// A directory below, held.
    pub fn dir(&self, relative: &str) -> io::Result<OwnedFd> {
        let (parent, name) = self.descend(relative)?;
        self.step(&parent, name)
    }

    /// A regular file, opened for reading.
    pub fn file(&self, relative: &str) -> io::Result<File> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let (parent, name) = self.descend(relative)?;
        let file = rustix::fs::openat(&parent, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("is not a regular file"));
        }
        Ok(file.into())
    }

    /// A new file, where nothing of that name is.
    pub fn create(&self, relative: &str, bytes: &[u8]) -> io::Result<()> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (parent, name) = self.descend(relative)?;
        let mode = Mode::from_raw_mode(0o644);
        let file = rustix::fs::openat(&parent, name, flags, mode)?;
        File::from(file).write_all(bytes)
    }

    /// The directory that holds the last name, and that name. One name at a time, so that no link is followed on the way; a sandbox inside a sandbox may have no
    /// call that does it at once.
    fn descend<'a>(&self, relative: &'a str) -> io::Result<(OwnedFd, &'a str)> {
        let mut at = self.step(&self.dir, ".")?;
        let mut names = relative.split('/').peekable();
        while let Some(name) = names.next() {
            if matches!(name, "" | "." | "..") {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            if names.peek().is_none() {
                return Ok((at, name));
            }
            at = self.step(&at, name)?;
        }
        Err(io::ErrorKind::InvalidInput.into())
    }

    fn step(&self, from: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(from, name, flags, Mode::empty())?)
    }
}

impl From<OwnedFd> for Beneath {
    fn from(dir: OwnedFd) -> Self {
        Self { dir }
    }
}

impl Mark {
    fn of(stat: &rustix::fs::Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(stat.st_mode),
            stamp: Stamp::of(stat),
        }
    }
}

impl Stamp {
    fn of(stat: &rustix::fs::Stat) -> Self {
        Self {
            inode: stat.st_ino,
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_link_is_followed_and_nothing_but_a_regular_file_is_read() {
        let top = tempfile::tempdir().unwrap();
        let outside = top.path().join("secret");
        std::fs::write(&outside, "secret").unwrap();
        let dir = top.path().join("project");
        std::fs::create_dir_all(dir.join("sub")).unwrap();
        std::fs::write(dir.join("sub/a.txt"), "hello").unwrap();
        std::os::unix::fs::symlink(&outside, dir.join("link")).unwrap();
        std::os::unix::fs::symlink("sub", dir.join("way")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.join("pipe"),
            FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .unwrap();
        let beneath = Beneath::open(&dir).unwrap();
        assert_eq!(beneath.text("sub/a.txt", 5).unwrap(), "hello");
        assert!(beneath.read("sub/a.txt", 4).is_err(), "too large");
        for bad in [
            "link",
            "way/a.txt",
            "pipe",
            "sub",
            "../secret",
            "/etc/passwd",
            "",
        ] {
            assert!(beneath.read(bad, 100).is_err(), "{bad}");
        }
        assert_eq!(beneath.files(".", 10).unwrap(), []);
        assert_eq!(beneath.files("sub", 10).unwrap().len(), 1);
        assert!(beneath.files("way", 10).is_err());
    }

    #[test]
    fn a_file_that_was_written_again_has_another_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let beneath = Beneath::open(dir.path()).unwrap();
        std::fs::write(dir.path().join("a"), "1").unwrap();
        let before = beneath.files(".", 10).unwrap();
        assert_eq!(beneath.files(".", 10).unwrap(), before);
        std::fs::remove_file(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("b"), "1").unwrap();
        std::fs::write(dir.path().join("a"), "1").unwrap();
        assert_ne!(beneath.files(".", 10).unwrap(), before);
    }
}
