//! Files that are believed when they are read back: each carries a keyed hash over all of it and over its name, and the key lies beside them, for us alone. What does not fit is
//! removed. What was not used for longest goes first.
//!
//! ```text
//! key           64 random bytes, made once
//! HEX.SUFFIX    an entry: a mark, the keyed hash, the contents
//! ```

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cofferdam_contract::units::Bytes;
use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use sha2::Sha256;

use crate::data_dir::create_private;
use crate::random;

/// A directory of such files, with its key.
#[derive(Debug)]
pub struct Vouched {
    dir: PathBuf,
    key: [u8; KEY],
    kind: Kind,
    most: u64,
}

/// How the entries of a directory are told from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// What every entry begins with; another for every format.
    pub mark: &'static [u8; 8],
    /// Of the names of entries.
    pub suffix: &'static str,
}

/// What an entry is for: a digest.
pub type Name = [u8; 32];

/// What becomes of an entry that has the name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfPresent {
    Replace,
    /// Whoever was faster had the same.
    Keep,
}

/// An entry, whether or not it is to be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: Name,
    pub size: u64,
    pub used: SystemTime,
    path: PathBuf,
}

/// A block of the hash.
const KEY: usize = 64;
const HASH: usize = 32;
const HEAD: usize = 8 + HASH;

impl Vouched {
    /// Makes what is missing. `most` is what all entries may take.
    pub fn open(dir: &Path, kind: Kind, most: Bytes) -> io::Result<Self> {
        create_private(dir)?;
        Ok(Self {
            key: key(dir)?,
            dir: dir.to_owned(),
            kind,
            most: most.get(),
        })
    }

    /// What an entry with these contents takes.
    pub fn size_of(contents: &[u8]) -> u64 {
        u64::try_from(HEAD + contents.len()).unwrap_or(u64::MAX)
    }

    /// The contents, if they are there and what we wrote. Others are removed.
    pub fn get(&self, name: &Name) -> Option<Vec<u8>> {
        let file = open(&self.path(name)).ok()?;
        match self.read(name, &file) {
            Some(contents) => {
                touch_best_effort(&file);
                Some(contents)
            }
            None => {
                self.remove_best_effort(name);
                None
            }
        }
    }

    /// The same without using or removing it: for whoever only looks.
    pub fn look(&self, name: &Name) -> Option<Vec<u8>> {
        self.read(name, &open(&self.path(name)).ok()?)
    }

    /// Keeps an entry. Nobody ever sees half of one: it has no name before it is whole.
    pub fn put(&self, name: &Name, contents: &[u8], if_present: IfPresent) -> io::Result<()> {
        let hash = self.hash(name, contents).finalize().into_bytes();
        let file = nameless(&self.dir, &[self.kind.mark, &hash, contents])?;
        let path = self.path(name);
        while link(&file, &path)? == Linked::Taken {
            if if_present == IfPresent::Keep {
                break;
            }
            // A name cannot be linked over. Whoever looks in between finds nothing, which is no harm.
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    pub fn remove_best_effort(&self, name: &Name) {
        let _ = fs::remove_file(self.path(name));
    }

    /// In no promised order.
    pub fn entries(&self) -> Vec<Entry> {
        let found = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        found.filter_map(|entry| self.entry(&entry)).collect()
    }

    /// Answers what the entries take after that.
    pub fn make_room_best_effort(&self) -> u64 {
        let mut entries = self.entries();
        let mut total: u64 = entries.iter().map(|entry| entry.size).sum();
        entries.sort_by_key(|entry| entry.used);
        for entry in entries {
            if total <= self.most {
                break;
            }
            let _ = fs::remove_file(&entry.path);
            total = total.saturating_sub(entry.size);
        }
        total
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path(&self, name: &Name) -> PathBuf {
        let suffix = self.kind.suffix;
        self.dir.join(format!("{}.{suffix}", HEXLOWER.encode(name)))
    }

    fn entry(&self, entry: &fs::DirEntry) -> Option<Entry> {
        let path = entry.path();
        let is_entry = path
            .extension()
            .is_some_and(|suffix| suffix == self.kind.suffix);
        let name = path.file_stem().filter(|_| is_entry)?.to_str()?;
        let name = HEXLOWER.decode(name.as_bytes()).ok()?;
        let found = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(Entry {
            name: name.try_into().ok()?,
            size: found.size(),
            used: found.modified().ok()?,
            path,
        })
    }

    fn read(&self, name: &Name, file: &File) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let most = self.most.saturating_add(1);
        file.take(most).read_to_end(&mut bytes).ok()?;
        let (hash, contents) = bytes
            .strip_prefix(self.kind.mark.as_slice())?
            .split_at_checked(HASH)?;
        self.hash(name, contents).verify_slice(hash).ok()?;
        bytes.drain(..HEAD);
        Some(bytes)
    }

    fn hash(&self, name: &Name, contents: &[u8]) -> Hmac<Sha256> {
        let mut hash = Hmac::<Sha256>::new(&self.key.into());
        hash.update(name);
        hash.update(contents);
        hash
    }
}

/// The key, made by whoever comes first.
fn key(dir: &Path) -> io::Result<[u8; KEY]> {
    let path = dir.join("key");
    if let Some(key) = read_key(&path)? {
        return Ok(key);
    }
    let fresh: [u8; KEY] = random::bytes()?;
    link(&nameless(dir, &[&fresh])?, &path)?;
    read_key(&path)?.ok_or_else(|| io::Error::other("the key beside them cannot be read back"))
}

/// `None` when there is none yet, or one that somebody damaged or others can read: with another key, nothing that is there is believed.
fn read_key(path: &Path) -> io::Result<Option<[u8; KEY]>> {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    let is_ours = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
    let mut bytes = Vec::new();
    file.take(KEY as u64 + 1).read_to_end(&mut bytes)?;
    match <[u8; KEY]>::try_from(bytes) {
        Ok(key) if is_ours => Ok(Some(key)),
        _ => {
            fs::remove_file(path)?;
            Ok(None)
        }
    }
}

/// Never through a link that somebody put there.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// A file that goes when this process goes, until it gets a name.
fn nameless(dir: &Path, parts: &[&[u8]]) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::TMPFILE;
    let mut file: File = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR)?.into();
    for part in parts {
        file.write_all(part)?;
    }
    Ok(file)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Linked {
    Here,
    /// Something has the name already.
    Taken,
}

fn link(nameless: &File, path: &Path) -> io::Result<Linked> {
    let from = format!("/proc/self/fd/{}", nameless.as_raw_fd());
    match rustix::fs::linkat(CWD, from, CWD, path, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => Ok(Linked::Here),
        Err(Errno::EXIST) => Ok(Linked::Taken),
        Err(errno) => Err(errno.into()),
    }
}

fn touch_best_effort(file: &File) {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    let _ = rustix::fs::futimens(file, &times);
}

#[cfg(test)]
mod tests {
    use super::*;

    const LETTERS: Kind = Kind {
        mark: b"letter1\n",
        suffix: "letter",
    };

    #[test]
    fn what_is_present_is_replaced_or_kept_as_asked() {
        let dir = tempfile::tempdir().unwrap();
        let letters = Vouched::open(dir.path(), LETTERS, Bytes::new(1 << 20)).unwrap();
        let name = [7; 32];
        letters.put(&name, b"one", IfPresent::Keep).unwrap();
        letters.put(&name, b"two", IfPresent::Keep).unwrap();
        assert_eq!(letters.get(&name).unwrap(), b"one");
        letters.put(&name, b"two", IfPresent::Replace).unwrap();
        assert_eq!(letters.look(&name).unwrap(), b"two");
        let entries = letters.entries();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].size, Vouched::size_of(b"two"));
    }

    /// Two kinds in one directory have one key, and are not taken for each other.
    #[test]
    fn an_entry_of_another_kind_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let most = Bytes::new(1 << 20);
        let letters = Vouched::open(dir.path(), LETTERS, most).unwrap();
        let later = Kind {
            mark: b"letter2\n",
            ..LETTERS
        };
        let later = Vouched::open(dir.path(), later, most).unwrap();
        letters.put(&[7; 32], b"one", IfPresent::Keep).unwrap();
        assert_eq!(later.look(&[7; 32]), None);
        assert_eq!(later.get(&[7; 32]), None);
        assert_eq!(letters.entries(), []);
    }
}
