//! Compiled code on disk, by the digest of what it was compiled from. Loading code trusts it, so it is [vouched](cofferdam_store::vouched) for. What does not fit is removed and
//! compiled again.
//!
//! ```text
//! key              64 random bytes, made once
//! HEX.code         an entry: a mark, the keyed hash, the code
//! ```

use std::io;
use std::path::Path;

use cofferdam_contract::units::Bytes;
use cofferdam_store::vouched::{IfPresent, Kind, Vouched};
use sha2::{Digest as _, Sha256};

use crate::engines::Flavour;
use crate::load::Genuine;

/// What an entry is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Name([u8; 32]);

/// The directory with its key.
#[derive(Debug)]
pub(crate) struct Cache(Vouched);

const CODE: Kind = Kind {
    mark: b"cdwasm1\n",
    suffix: "code",
};

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
}

impl Cache {
    /// Makes what is missing.
    pub(crate) fn open(dir: &Path, most: Bytes) -> io::Result<Self> {
        Vouched::open(dir, CODE, most).map(Self)
    }

    /// The entry, if there is one and it is what we wrote.
    pub(crate) fn get(&self, name: Name) -> Option<Genuine> {
        self.0.get(&name.0).map(Genuine::vouched)
    }

    /// Keeps an entry, unless somebody else was faster, with the same.
    pub(crate) fn put(&self, name: Name, code: &Genuine) -> io::Result<()> {
        self.0.put(&name.0, code.bytes(), IfPresent::Keep)?;
        self.0.make_room_best_effort();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::time::SystemTime;

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
        fs::rename(entry(dir.path()), cache.0.path(&mine.0)).unwrap();
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
            let path = cache.0.path(&name.0);
            let then = SystemTime::now() - std::time::Duration::from_secs(age);
            File::open(path).unwrap().set_modified(then).unwrap();
        }
        assert!(cache.get(names[0]).is_some(), "now used last");
        cache.put(names[2], &code(&[1; 60])).unwrap();
        let left = names.map(|name| cache.get(name).is_some());
        assert_eq!(left, [true, false, true]);
    }
}
