//! Compiled code on disk, by the digest of what it was compiled from. Loading code trusts it, so every entry carries a keyed hash over all of it and over what it is for; the key
//! lies beside, for us alone. What does not fit is removed and compiled again.
//!
//! ```text
//! key              64 random bytes, made once
//! HEX.code         an entry: a mark, the keyed hash, the code
//! ```

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cofferdam_contract::units::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};
use sha2::{Digest as _, Sha256};

use crate::engines::Flavour;
use crate::load::Genuine;

/// What an entry is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Name([u8; 32]);

/// The directory with its key.
#[derive(Debug)]
pub(crate) struct Cache {
    dir: PathBuf,
    key: [u8; KEY],
    most: u64,
}

/// A block of the hash.
const KEY: usize = 64;
const HASH: usize = 32;
const MARK: &[u8; 8] = b"cdwasm1\n";
const SUFFIX: &str = "code";

impl Name {
    /// Everything that decides what comes out of the compiler. Each part has its length before it.
    pub(crate) fn of(code: &[u8], flavour: Flavour, fingerprint: u64) -> Self {
        let mut digest = Sha256::new();
        let fingerprint = fingerprint.to_le_bytes();
        for part in [code, flavour.as_str().as_bytes(), &fingerprint] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Self(digest.finalize().into())
    }

    fn file(self) -> String {
        use std::fmt::Write as _;
        let mut name = String::with_capacity(2 * HASH + 1 + SUFFIX.len());
        for byte in self.0 {
            let _ = write!(name, "{byte:02x}");
        }
        name.push('.');
        name.push_str(SUFFIX);
        name
    }
}

impl Cache {
    /// Makes what is missing.
    pub(crate) fn open(dir: &Path, most: Bytes) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)?;
        Ok(Self {
            key: key(dir)?,
            dir: dir.to_owned(),
            most: most.get(),
        })
    }

    /// The entry, if there is one and it is what we wrote.
    pub(crate) fn get(&self, name: Name) -> Option<Genuine> {
        let path = self.dir.join(name.file());
        let mut file = open(&path).ok()?;
        let mut bytes = Vec::new();
        Read::by_ref(&mut file)
            .take(self.most.saturating_add(1))
            .read_to_end(&mut bytes)
            .ok()?;
        let Some(code) = self.checked(name, &bytes) else {
            let _ = fs::remove_file(&path);
            return None;
        };
        let code = Genuine::vouched(code.to_vec());
        touch_best_effort(&file);
        Some(code)
    }

    /// Keeps an entry. Nobody ever sees half of one: it has no name before it is whole.
    pub(crate) fn put(&self, name: Name, code: &Genuine) -> io::Result<()> {
        let path = self.dir.join(name.file());
        let parts = [
            MARK.as_slice(),
            &self.hash(name, code.bytes()).finalize().into_bytes(),
            code.bytes(),
        ];
        match write_whole(&self.dir, &path, &parts) {
            // Somebody else was faster, with the same.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
        self.make_room_best_effort();
        Ok(())
    }

    fn checked<'a>(&self, name: Name, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let (hash, code) = bytes.strip_prefix(MARK)?.split_at_checked(HASH)?;
        self.hash(name, code).verify_slice(hash).ok()?;
        Some(code)
    }

    fn hash(&self, name: Name, code: &[u8]) -> Hmac<Sha256> {
        let mut hash = Hmac::<Sha256>::new(&self.key.into());
        hash.update(&name.0);
        hash.update(code);
        hash
    }

    /// What was not used for longest goes first.
    fn make_room_best_effort(&self) {
        let Ok(entries) = fs::read_dir(&self.dir) else {
            return;
        };
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let path = entry.path();
                let found = entry.metadata().ok()?;
                let is_entry = path.extension().is_some_and(|suffix| suffix == SUFFIX);
                is_entry.then(|| Some((found.modified().ok()?, found.size(), path)))?
            })
            .collect();
        let mut total: u64 = entries.iter().map(|(_, size, _)| size).sum();
        entries.sort();
        for (_, size, path) in entries {
            if total <= self.most {
                return;
            }
            let _ = fs::remove_file(path);
            total = total.saturating_sub(size);
        }
    }
}

/// The key, made by whoever comes first.
fn key(dir: &Path) -> io::Result<[u8; KEY]> {
    let path = dir.join("key");
    if let Some(key) = read_key(&path)? {
        return Ok(key);
    }
    let mut fresh = [0; KEY];
    let mut filled = 0;
    while let Some(rest @ [_, ..]) = fresh.get_mut(filled..) {
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
    }
    match write_whole(dir, &path, &[&fresh]) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    read_key(&path)?.ok_or_else(|| io::Error::other("the key of the cache cannot be read back"))
}

/// `None` when there is none yet, or one that somebody damaged: with another key, every entry is compiled again.
fn read_key(path: &Path) -> io::Result<Option<[u8; KEY]>> {
    let mut file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    let is_ours = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
    let mut bytes = Vec::new();
    Read::by_ref(&mut file)
        .take(KEY as u64 + 1)
        .read_to_end(&mut bytes)?;
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

/// A file without a name gets one when all of it is there; a crash before leaves nothing.
fn write_whole(dir: &Path, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::TMPFILE;
    let mut file: File = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR)?.into();
    for part in parts {
        file.write_all(part)?;
    }
    let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, nameless, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
    Ok(())
}

fn touch_best_effort(file: &File) {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_NOW,
    };
    let _ = rustix::fs::futimens(
        file,
        &Timestamps {
            last_access: now,
            last_modification: now,
        },
    );
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn cache(dir: &Path) -> Cache {
        Cache::open(dir, Bytes::new(1 << 20)).unwrap()
    }

    fn code(text: &[u8]) -> Genuine {
        Genuine::vouched(text.to_vec())
    }

    fn entry(dir: &Path) -> PathBuf {
        let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
        let mut entries = files.filter(|path| path.extension().is_some());
        entries.next().unwrap()
    }

    #[test]
    fn what_was_kept_comes_back_also_in_another_process() {
        let dir = tempfile::tempdir().unwrap();
        let name = Name::of(b"code", Flavour::Timed, 7);
        cache(dir.path()).put(name, &code(b"compiled")).unwrap();
        cache(dir.path()).put(name, &code(b"compiled")).unwrap();
        let found = cache(dir.path()).get(name).unwrap();
        assert_eq!(found.bytes(), b"compiled");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir.path().join("key")), 0o600);
        assert_eq!(mode(&entry(dir.path())), 0o600);
    }

    #[test]
    fn every_part_of_a_name_counts() {
        let names = [
            Name::of(b"code", Flavour::Timed, 7),
            Name::of(b"code", Flavour::Counted, 7),
            Name::of(b"code", Flavour::Timed, 8),
            Name::of(b"codf", Flavour::Timed, 7),
        ];
        for (i, name) in names.iter().enumerate() {
            assert_eq!(
                names.iter().filter(|other| *other == name).count(),
                1,
                "{i}"
            );
        }
    }

    #[test]
    fn no_changed_byte_is_believed_and_the_entry_goes() {
        let dir = tempfile::tempdir().unwrap();
        let name = Name::of(b"code", Flavour::Timed, 7);
        let cache = cache(dir.path());
        cache.put(name, &code(b"compiled")).unwrap();
        let path = entry(dir.path());
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            assert!(cache.get(name).is_none(), "byte {at}");
            assert!(!path.exists(), "byte {at}");
        }
        for cut in [0, 8, 39, whole.len() - 1] {
            fs::write(&path, &whole[..cut]).unwrap();
            assert!(cache.get(name).is_none(), "{cut} bytes");
        }
        fs::write(&path, &whole).unwrap();
        assert!(cache.get(name).is_some());
    }

    #[test]
    fn an_entry_does_not_pass_for_another() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache(dir.path());
        let (mine, theirs) = (
            Name::of(b"mine", Flavour::Timed, 7),
            Name::of(b"theirs", Flavour::Timed, 7),
        );
        cache.put(theirs, &code(b"evil")).unwrap();
        fs::rename(entry(dir.path()), dir.path().join(mine.file())).unwrap();
        assert!(cache.get(mine).is_none());
    }

    #[test]
    fn a_key_that_others_could_read_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let name = Name::of(b"code", Flavour::Timed, 7);
        cache(dir.path()).put(name, &code(b"compiled")).unwrap();
        let key = dir.path().join("key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(cache(dir.path()).get(name).is_none());
        assert_eq!(
            fs::metadata(&key).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let name = Name::of(b"code", Flavour::Timed, 7);
        let cache = cache(dir.path());
        cache.put(name, &code(b"compiled")).unwrap();
        let path = entry(dir.path());
        fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(cache.get(name).is_none());
    }

    #[test]
    fn what_was_not_used_for_longest_makes_room() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), Bytes::new(250)).unwrap();
        let names = [b"a", b"b", b"c"].map(|text| Name::of(text, Flavour::Timed, 7));
        for (name, age) in names.iter().zip([300, 200]) {
            cache.put(*name, &code(&[1; 60])).unwrap();
            let path = dir.path().join(name.file());
            let then = SystemTime::now() - std::time::Duration::from_secs(age);
            File::open(path).unwrap().set_modified(then).unwrap();
        }
        assert!(cache.get(names[0]).is_some(), "now used last");
        cache.put(names[2], &code(&[1; 60])).unwrap();
        let left = names.map(|name| cache.get(name).is_some());
        assert_eq!(left, [true, false, true]);
    }
}
