//! A small tree of files in memory: read beneath a directory without following links, of bounded size, and written into a directory that nobody else uses.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

/// What lies there: regular files by their path, and links by what they say.
pub(super) type Tree = BTreeMap<String, Entry>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    File {
        bytes: Vec<u8>,
        is_program: bool,
    },
    /// Never followed; what it says is compared.
    Link(String),
}

const MAX_ENTRIES: usize = 10_000;
const MAX_BYTES: u64 = 64 << 20;
const MAX_DEPTH: usize = 32;

/// The whole tree below a directory. One that does not exist is empty.
pub(super) fn read(dir: &Path) -> io::Result<Tree> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = match rustix::fs::open(dir, flags, Mode::empty()) {
        Ok(top) => top,
        Err(rustix::io::Errno::NOENT) => return Ok(Tree::new()),
        Err(errno) => return Err(errno.into()),
    };
    let mut reader = Reader {
        found: Tree::new(),
        room: MAX_BYTES,
    };
    reader.dir(&top, "", 0)?;
    Ok(reader.found)
}

struct Reader {
    found: Tree,
    room: u64,
}

impl Reader {
    fn dir(&mut self, dir: &OwnedFd, path: &str, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(io::Error::other(format!(
                "is deeper than {MAX_DEPTH} levels"
            )));
        }
        for entry in rustix::fs::Dir::read_from(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let text = name
                .to_str()
                .map_err(|_| io::Error::other("has a name that is not UTF-8"))?;
            let path = if path.is_empty() {
                text.to_owned()
            } else {
                format!("{path}/{text}")
            };
            self.entry(dir, text, path, depth)?;
            if self.found.len() > MAX_ENTRIES {
                return Err(io::Error::other(format!(
                    "holds more than {MAX_ENTRIES} files"
                )));
            }
        }
        Ok(())
    }

    fn entry(&mut self, dir: &OwnedFd, name: &str, path: String, depth: usize) -> io::Result<()> {
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let inner = rustix::fs::openat(dir, name, flags, Mode::empty())?;
                self.dir(&inner, &path, depth + 1)
            }
            FileType::RegularFile => {
                let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = File::from(rustix::fs::openat(dir, name, flags, Mode::empty())?);
                let mut bytes = Vec::new();
                let read = file.take(self.room + 1).read_to_end(&mut bytes)?;
                self.room = match self
                    .room
                    .checked_sub(u64::try_from(read).unwrap_or(u64::MAX))
                {
                    Some(room) => room,
                    None => {
                        return Err(io::Error::other(format!(
                            "holds more than {} MiB",
                            MAX_BYTES >> 20
                        )));
                    }
                };
                let is_program = stat.st_mode & 0o100 != 0;
                self.found.insert(path, Entry::File { bytes, is_program });
                Ok(())
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(dir, name, Vec::new())?;
                let target = target.to_string_lossy().into_owned();
                self.found.insert(path, Entry::Link(target));
                Ok(())
            }
            // Sockets, pipes and devices hold nothing to compare.
            _ => Ok(()),
        }
    }
}

/// Writes a tree into a new directory.
pub(super) fn write(tree: &Tree, dir: &Path) -> io::Result<()> {
    fs::create_dir(dir)?;
    for (path, entry) in tree {
        let file = dir.join(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        match entry {
            Entry::File { bytes, is_program } => {
                let mode = if *is_program { 0o755 } else { 0o644 };
                let mut options = fs::OpenOptions::new();
                options.write(true).create_new(true).mode(mode);
                options.open(&file)?.write_all(bytes)?;
            }
            Entry::Link(target) => std::os::unix::fs::symlink(target, &file)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_read_and_written_alike_and_links_are_only_looked_at() {
        let top = tempfile::tempdir().unwrap();
        let a = top.path().join("a");
        fs::create_dir_all(a.join("sub")).unwrap();
        fs::write(a.join("sub/x"), "1").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", a.join("link")).unwrap();
        std::os::unix::fs::symlink("/etc", a.join("dir")).unwrap();
        let tree = read(&a).unwrap();
        assert_eq!(tree.keys().collect::<Vec<_>>(), ["dir", "link", "sub/x"]);
        assert_eq!(tree["link"], Entry::Link("/etc/passwd".to_owned()));
        let b = top.path().join("b");
        write(&tree, &b).unwrap();
        assert_eq!(read(&b).unwrap(), tree);
        assert_eq!(read(&top.path().join("none")).unwrap(), Tree::new());
    }
}
