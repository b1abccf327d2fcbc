//! Keys by name, below the data directory: own ones, which sign, and others' public halves, which are trusted. A secret key is written for its owner alone and never shown.
//!
//! ```text
//! keys/NAME.key    an own key, PEM (PKCS#8), mode 0600
//! keys/NAME.pub    somebody else's public key, PEM
//! ```

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::bundle::{PublicKey, SigningKey, generate_key};
use crate::data_dir::{DataDir, create_private, write_new};
use crate::error::StoreError;

/// The keys of one data directory. Nothing is made until a key is.
#[derive(Debug, Clone)]
pub struct KeyRing {
    dir: PathBuf,
}

/// What a key can do here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// Signs, and is trusted.
    Secret,
    /// Is trusted.
    Public,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedKey {
    pub name: String,
    /// The beginning of the SHA-256 of the public key, to tell keys apart by eye.
    pub id: String,
    pub public_key: String,
    pub holds: Holds,
}

/// The keys of a ring.
#[derive(Debug, Default)]
pub struct KeyList {
    pub keys: Vec<ListedKey>,
    /// By name, and why they cannot be read.
    pub unreadable: Vec<(String, StoreError)>,
}

const SECRET: &str = "key";
const PUBLIC: &str = "pub";
const LONGEST_FILE: u64 = 4096;
const LONGEST_NAME: usize = 64;
/// Of a file of trusted keys.
const LONGEST_LIST: u64 = 1 << 20;

impl KeyRing {
    pub fn of(dir: &DataDir) -> Self {
        Self { dir: dir.keys() }
    }

    /// Makes a key; a name is used once.
    pub fn generate(&self, name: &str) -> Result<ListedKey, StoreError> {
        self.check_free(name)?;
        create_private(&self.dir).map_err(StoreError::io("make the directory", &self.dir))?;
        let key = generate_key(&self.path(name, SECRET))?;
        Ok(listed(name, key, Holds::Secret))
    }

    /// By name. A key that cannot be read hides no other.
    pub fn list(&self) -> Result<KeyList, StoreError> {
        let failed = || StoreError::io("read the directory", &self.dir);
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(KeyList::default()),
            Err(error) => return Err(failed()(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed())?.path();
            let is_key = path
                .extension()
                .is_some_and(|suffix| suffix == SECRET || suffix == PUBLIC);
            let name = path.file_stem().and_then(|name| name.to_str());
            names.extend(
                name.filter(|name| is_key && is_name(name))
                    .map(str::to_owned),
            );
        }
        names.sort();
        names.dedup();
        let mut list = KeyList::default();
        for name in names {
            match self.find(&name) {
                Ok(key) => list.keys.push(key),
                Err(why) => list.unreadable.push((name, why)),
            }
        }
        Ok(list)
    }

    pub fn find(&self, name: &str) -> Result<ListedKey, StoreError> {
        check_name(name)?;
        if self.path(name, SECRET).symlink_metadata().is_ok() {
            let key = self.signing(name)?.public_key();
            return Ok(listed(name, key, Holds::Secret));
        }
        let path = self.path(name, PUBLIC);
        match read_text(&path, LONGEST_FILE) {
            Ok(text) => {
                let key = text
                    .parse()
                    .map_err(|error: StoreError| StoreError::Damaged {
                        path: path.clone(),
                        why: format!("{error}; remove it, or import the key again"),
                    })?;
                Ok(listed(name, key, Holds::Public))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(invalid(
                name,
                "there is no such key; `cofferdam keys list` shows them",
            )),
            Err(error) => Err(StoreError::io("read the key file", &path)(error)),
        }
    }

    pub fn has_secret(&self, name: &str) -> bool {
        is_name(name) && self.path(name, SECRET).is_file()
    }

    /// To sign with.
    pub fn signing(&self, name: &str) -> Result<SigningKey, StoreError> {
        check_name(name)?;
        let path = self.path(name, SECRET);
        if path.symlink_metadata().is_ok() {
            return SigningKey::read(&path);
        }
        let why = match self.path(name, PUBLIC).is_file() {
            true => "only the public half of this key is here, and that does not sign",
            false => "there is no such key; `cofferdam keys generate NAME` makes one",
        };
        Err(invalid(name, why))
    }

    /// Takes a key from a file: a secret one, which must be readable by its owner alone, or a public one.
    pub fn import(&self, name: &str, from: &Path) -> Result<ListedKey, StoreError> {
        self.check_free(name)?;
        let text =
            read_text(from, LONGEST_FILE).map_err(StoreError::io("read the key file", from))?;
        // Both halves are 32 bytes; without a label only the mode of the file could tell them apart, and that is a guess.
        let (bytes, suffix, mode, key, holds) = if text.contains("PUBLIC KEY") {
            let key: PublicKey = text.parse()?;
            (key.to_pem(), PUBLIC, 0o644, key, Holds::Public)
        } else if text.contains("PRIVATE KEY") {
            let secret = SigningKey::read(from)?;
            let key = secret.public_key();
            (secret.to_pem(), SECRET, 0o600, key, Holds::Secret)
        } else {
            let key: PublicKey = text.parse().map_err(|_| {
                invalid(
                    name,
                    "the file holds no key: PEM, or a public key as base64 or hexadecimal digits",
                )
            })?;
            (key.to_pem(), PUBLIC, 0o644, key, Holds::Public)
        };
        create_private(&self.dir).map_err(StoreError::io("make the directory", &self.dir))?;
        write_key(&self.path(name, suffix), bytes.as_bytes(), mode)?;
        Ok(listed(name, key, holds))
    }

    /// Writes the secret half to a new file that its owner alone can read.
    pub fn export_secret(&self, name: &str, to: &Path) -> Result<(), StoreError> {
        write_key(to, self.signing(name)?.to_pem().as_bytes(), 0o600)
    }

    pub fn remove(&self, name: &str) -> Result<Holds, StoreError> {
        let holds = self.find(name).map(|key| key.holds).or_else(|error| {
            // A damaged key can be removed too.
            let is_there = |suffix| self.path(name, suffix).symlink_metadata().is_ok();
            match is_name(name) {
                true if is_there(SECRET) => Ok(Holds::Secret),
                true if is_there(PUBLIC) => Ok(Holds::Public),
                _ => Err(error),
            }
        })?;
        let path = match holds {
            Holds::Secret => self.path(name, SECRET),
            Holds::Public => self.path(name, PUBLIC),
        };
        fs::remove_file(&path).map_err(StoreError::io("remove", &path))?;
        Ok(holds)
    }

    fn check_free(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        let is_taken = [SECRET, PUBLIC]
            .into_iter()
            .any(|suffix| self.path(name, suffix).symlink_metadata().is_ok());
        match is_taken {
            true => Err(invalid(
                name,
                "there is a key of this name; choose another, or remove that one first",
            )),
            false => Ok(()),
        }
    }

    fn path(&self, name: &str, suffix: &str) -> PathBuf {
        self.dir.join(format!("{name}.{suffix}"))
    }
}

/// Keys from a file: `NAME PUBLIC_KEY` on each line, the key as base64; empty lines and lines that begin with `#` say nothing.
pub fn read_trusted(path: &Path) -> Result<Vec<(String, PublicKey)>, StoreError> {
    let text =
        read_text(path, LONGEST_LIST).map_err(StoreError::io("read the trusted keys in", path))?;
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let read = |(number, line): (usize, &str)| {
        let mut words = line.split_whitespace();
        let key = match (words.next(), words.next(), words.next()) {
            (Some(name), Some(key), None) => key.parse().ok().map(|key| (name.to_owned(), key)),
            _ => None,
        };
        key.ok_or_else(|| StoreError::Invalid {
            field: "trusted keys",
            value: format!("{}:{}", path.display(), number + 1),
            why: "not a name and a public key as base64".to_owned(),
        })
    };
    lines.map(read).collect()
}

fn listed(name: &str, key: PublicKey, holds: Holds) -> ListedKey {
    ListedKey {
        name: name.to_owned(),
        id: key.id(),
        public_key: key.to_string(),
        holds,
    }
}

/// Names become file names.
fn is_name(name: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name.bytes().all(is_allowed)
        && !name.starts_with(['.', '-'])
}

fn check_name(name: &str) -> Result<(), StoreError> {
    match is_name(name) {
        true => Ok(()),
        false => Err(invalid(
            name,
            "not a name for a key; use 1 to 64 letters, digits, `-`, `_` and `.`, beginning with a letter or digit",
        )),
    }
}

fn invalid(name: &str, why: &str) -> StoreError {
    StoreError::Invalid {
        field: "key",
        value: name.chars().take(80).collect(),
        why: why.to_owned(),
    }
}

/// Without waiting: it could be a pipe.
fn read_text(path: &Path, longest: u64) -> io::Result<String> {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let mut text = String::new();
    file.take(longest).read_to_string(&mut text)?;
    Ok(text)
}

fn write_key(path: &Path, bytes: &[u8], mode: u32) -> Result<(), StoreError> {
    write_new(path, bytes, mode).map_err(StoreError::io("write the new key file", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn ring(dir: &tempfile::TempDir) -> KeyRing {
        KeyRing::of(&DataDir::at(dir.path().join("data")))
    }

    #[test]
    fn a_damaged_key_hides_no_other_and_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let ring = ring(&dir);
        let made = ring.generate("work").unwrap();
        fs::write(ring.path("alice", PUBLIC), "no key at all").unwrap();
        fs::write(ring.path("bob", SECRET), "nor this").unwrap();
        let found = ring.list().unwrap();
        assert_eq!(found.keys, [made]);
        let named: Vec<&str> = found.unreadable.iter().map(|(name, _)| &**name).collect();
        assert_eq!(named, ["alice", "bob"]);
        for (name, why) in &found.unreadable {
            assert!(why.to_string().contains(&format!("{name}.")), "{why}");
        }
    }

    #[test]
    fn a_key_is_private_is_found_by_its_name_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let ring = ring(&dir);
        assert_eq!(ring.list().unwrap().keys, []);
        let made = ring.generate("work").unwrap();
        assert_eq!(made.holds, Holds::Secret);
        assert_eq!(made.id.len(), 16);
        assert_eq!(ring.list().unwrap().keys, std::slice::from_ref(&made));
        assert_eq!(
            ring.signing("work").unwrap().public_key().to_string(),
            made.public_key
        );
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&ring.path("work", SECRET)), 0o600);
        assert_eq!(mode(&ring.dir), 0o700);
        assert!(ring.generate("work").is_err(), "a name is used once");
        assert_eq!(ring.remove("work").unwrap(), Holds::Secret);
        assert!(ring.find("work").is_err());
        assert!(ring.remove("work").is_err());
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let ring = ring(&dir);
        for name in [
            "",
            "..",
            "../x",
            "a/b",
            ".hidden",
            "-x",
            "a b",
            &"x".repeat(65),
        ] {
            assert!(ring.generate(name).is_err(), "{name}");
            assert!(ring.find(name).is_err(), "{name}");
            assert!(ring.remove(name).is_err(), "{name}");
            assert!(!ring.has_secret(name));
        }
        assert!(!ring.dir.exists());
    }

    #[test]
    fn keys_go_out_and_come_in_and_a_public_half_does_not_sign() {
        let dir = tempfile::tempdir().unwrap();
        let ring = ring(&dir);
        let made = ring.generate("mine").unwrap();
        let secret = dir.path().join("out.key");
        ring.export_secret("mine", &secret).unwrap();
        assert!(
            ring.export_secret("mine", &secret).is_err(),
            "nothing is replaced"
        );
        let back = ring.import("copy", &secret).unwrap();
        assert_eq!(
            (back.public_key, back.holds),
            (made.public_key.clone(), Holds::Secret)
        );
        for text in [
            made.public_key.clone(),
            ring.signing("mine").unwrap().public_key().to_pem(),
        ] {
            let file = dir.path().join("public");
            fs::write(&file, text).unwrap();
            let theirs = ring.import("theirs", &file).unwrap();
            assert_eq!(
                (&theirs.public_key, theirs.holds),
                (&made.public_key, Holds::Public)
            );
            let error = ring.signing("theirs").unwrap_err().to_string();
            assert!(error.contains("public half"), "{error}");
            assert!(
                ring.export_secret("theirs", &dir.path().join("no"))
                    .is_err()
            );
            ring.remove("theirs").unwrap();
        }
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
        let error = ring.import("open", &secret).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        fs::write(dir.path().join("junk"), "secret").unwrap();
        let error = ring
            .import("junk", &dir.path().join("junk"))
            .unwrap_err()
            .to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_list_of_trusted_keys_is_read_and_a_wrong_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let ring = ring(&dir);
        let made = ring.generate("mine").unwrap();
        let list = dir.path().join("trusted");
        fs::write(
            &list,
            format!("# who we trust\n\nalice {}\n", made.public_key),
        )
        .unwrap();
        let read = read_trusted(&list).unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(
            (read[0].0.as_str(), read[0].1.to_string()),
            ("alice", made.public_key)
        );
        fs::write(&list, "alice\n").unwrap();
        let error = read_trusted(&list).unwrap_err().to_string();
        assert!(error.contains(":1"), "{error}");
    }
}
