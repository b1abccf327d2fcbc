//! What a bundle is made of: the names in it, its documents, its version and its limits. Reads and writes no file.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::StoreError;
use crate::id::RunId;
use crate::model::Digest;

pub const FORMAT: &str = "cofferdam.bundle";
/// What is written. A reader takes every version with the same first number.
pub const VERSION: Version = Version {
    major: 1,
    minor: 0,
    patch: 0,
};
pub const EXTENSION: &str = ".cofferdam.zip";

pub(super) fn refused(why: impl Into<String>) -> StoreError {
    StoreError::BundleRefused { why: why.into() }
}

/// A file in a bundle. There are no others. In the order in which they are written: the manifest names what stands before it, the signature signs the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryName {
    Artifact(Digest),
    Output(RunId),
    Provenance,
    Run(RunId),
    Manifest,
    Signature,
}

/// Outputs up to this size are kept with the run, longer ones as objects.
pub(super) const INLINE_OUTPUT: u64 = 16 << 10;

impl EntryName {
    /// Whether whoever reads a bundle holds a file of this name and size in memory until it is recorded.
    pub(super) const fn is_held(self, bytes: u64) -> bool {
        match self {
            Self::Run(_) => true,
            Self::Output(_) => bytes <= INLINE_OUTPUT,
            Self::Artifact(_) | Self::Provenance | Self::Manifest | Self::Signature => false,
        }
    }

    /// Names are compared as a whole. One that is not in the layout is refused, with the worst that can be said of it.
    pub(super) fn parse(raw: &[u8]) -> Result<Self, String> {
        let Ok(name) = std::str::from_utf8(raw) else {
            return Err(format!("the name `{}` is not UTF-8", raw.escape_ascii()));
        };
        Self::known(name)
            .ok_or_else(|| format!("the name `{}` {}", name.escape_debug(), fault(name)))
    }

    fn known(name: &str) -> Option<Self> {
        let found = match name {
            "manifest.json" => Self::Manifest,
            "provenance.json" => Self::Provenance,
            "signature.json" => Self::Signature,
            _ => {
                let (folder, file) = name.split_once('/')?;
                match folder {
                    "artifacts" => Self::Artifact(file.parse().ok()?),
                    "output" => Self::Output(file.strip_suffix(".log")?.parse().ok()?),
                    "runs" => Self::Run(file.strip_suffix(".json")?.parse().ok()?),
                    _ => return None,
                }
            }
        };
        // An id can be written in several ways, and only one of them is a name.
        (found.to_string() == name).then_some(found)
    }
}

fn fault(name: &str) -> &'static str {
    let has_drive = name.as_bytes().get(1) == Some(&b':');
    if name.chars().any(char::is_control) {
        "has control characters in it"
    } else if name.starts_with('/') {
        "is absolute"
    } else if name.split('/').any(|part| part == "..") {
        "leads out of the bundle"
    } else if name.contains('\\') {
        "has a backslash in it"
    } else if has_drive {
        "begins with a drive letter"
    } else if name.ends_with('/') {
        "is a directory; a bundle has none"
    } else {
        "is not in the layout of a bundle"
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Artifact(digest) => write!(f, "artifacts/{digest}"),
            Self::Output(id) => write!(f, "output/{id}.log"),
            Self::Provenance => f.write_str("provenance.json"),
            Self::Run(id) => write!(f, "runs/{id}.json"),
            Self::Manifest => f.write_str("manifest.json"),
            Self::Signature => f.write_str("signature.json"),
        }
    }
}

impl Serialize for EntryName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EntryName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::parse(name.as_bytes()).map_err(de::Error::custom)
    }
}

/// `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: String,
    pub version: Version,
    pub created_at: Timestamp,
    /// The version of cofferdam that wrote it.
    pub tool_version: String,
    pub run_count: u64,
    /// Of the artifacts in it, each content once, not compressed.
    pub artifact_bytes: u64,
    /// Every other file, apart from the signature.
    #[serde(deserialize_with = "each_name_once")]
    pub files: BTreeMap<EntryName, FileFacts>,
    /// What the runs refer to and is not in it.
    pub missing: Vec<Missing>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    pub sha256: Digest,
    pub bytes: u64,
}

/// An artifact or an output that a run refers to and that could not, or should not, be exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The name it would have.
    pub path: EntryName,
    pub digest: Digest,
    pub why: String,
}

/// Where a bundle comes from, as its writer says. Nothing depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    pub host: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    pub exported_at: Timestamp,
    pub cofferdam_version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitProvenance>,
}

/// The repository in which somebody exported.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GitProvenance {
    /// Written without the credentials that it may hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
}

/// `signature.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignatureRecord {
    /// `ed25519`.
    pub algorithm: String,
    /// 32 bytes as base64.
    pub public_key: String,
    /// Over the bytes of `manifest.json` as they stand in the bundle; 64 bytes as base64.
    pub signature: String,
}

/// Removes user, password, query and fragment from a URL: each of them can be a secret. What is no URL, such as `git@host:path`, has only a user name, and stays.
pub fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = match rest.find(['/', '\\']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// `1.0.0`. A change that an older reader would misread, and any new kind of file, raises the first number. New fields raise the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl Version {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(number);
        let version = Self {
            major: numbers.next()??,
            minor: numbers.next()??,
            patch: numbers.next()??,
        };
        numbers.next().is_none().then_some(version)
    }
}

fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| de::Error::custom(format!("`{text}` is not a version such as 1.0.0")))
    }
}

/// How much a bundle may hold. The same for writing and for reading, so that nothing is written which cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// All files together, not compressed.
    pub total_bytes: u64,
    pub entries: u64,
    pub manifest_bytes: u64,
    /// One `runs/ID.json`.
    pub run_bytes: u64,
    /// `provenance.json`, `signature.json`.
    pub note_bytes: u64,
    /// What has to be held in memory until it is recorded: the runs, and outputs that are kept inline.
    pub held_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            total_bytes: 10 << 30,
            entries: 1_000_000,
            manifest_bytes: 64 << 20,
            run_bytes: 16 << 20,
            note_bytes: 1 << 20,
            held_bytes: 512 << 20,
        }
    }
}

impl Limits {
    /// How long a file with this name may be.
    pub(super) const fn of(&self, name: EntryName) -> u64 {
        match name {
            EntryName::Artifact(_) | EntryName::Output(_) => self.total_bytes,
            EntryName::Run(_) => self.run_bytes,
            EntryName::Manifest => self.manifest_bytes,
            EntryName::Provenance | EntryName::Signature => self.note_bytes,
        }
    }
}

/// How far an export or an import has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    pub files: u64,
    /// Of how many.
    pub of_files: u64,
    pub bytes: u64,
}

/// Of two entries with one name, readers take different ones; so there must not be two.
fn each_name_once<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<EntryName, FileFacts>, D::Error> {
    struct Files;

    impl<'de> Visitor<'de> for Files {
        type Value = BTreeMap<EntryName, FileFacts>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("names with their digests")
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
            let mut files = BTreeMap::new();
            while let Some((name, facts)) = map.next_entry::<EntryName, FileFacts>()? {
                if files.insert(name, facts).is_some() {
                    return Err(de::Error::custom(format!("`{name}` is listed twice")));
                }
            }
            Ok(files)
        }
    }

    deserializer.deserialize_map(Files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let id = RunId::new();
        for name in [
            EntryName::Artifact(Digest::of(b"x")),
            EntryName::Output(id),
            EntryName::Provenance,
            EntryName::Run(id),
            EntryName::Manifest,
            EntryName::Signature,
        ] {
            assert_eq!(EntryName::parse(name.to_string().as_bytes()), Ok(name));
        }
    }

    #[test]
    fn other_names_are_refused_with_the_reason() {
        let cases: [(&[u8], &str); 14] = [
            (b"/etc/passwd", "absolute"),
            (b"artifacts/../../x", "leads out"),
            (b"..", "leads out"),
            (b"artifacts\\x", "backslash"),
            (b"C:x", "drive letter"),
            (b"runs/\0.json", "control"),
            (b"runs/\n.json", "control"),
            (b"\xff", "not UTF-8"),
            (b"artifacts/", "directory"),
            (b"", "layout"),
            (b"./manifest.json", "layout"),
            (b"Manifest.json", "layout"),
            (b"outbox.json", "layout"),
            (b"runs/019A8C3E-7F2B-7ABC-8DEF-0123456789AB.json", "layout"),
        ];
        for (name, why) in cases {
            let error = EntryName::parse(name).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn urls_lose_their_secrets() {
        for (url, clean) in [
            ("https://u:p@host/a.git", "https://host/a.git"),
            ("https://token@host:8/a?k=v#f", "https://host:8/a"),
            ("https://u:p@ss@host", "https://host"),
            ("https://host/a@b", "https://host/a@b"),
            ("ssh://git@host/a", "ssh://host/a"),
            ("git@host:a/b.git", "git@host:a/b.git"),
            ("/srv/a.git", "/srv/a.git"),
        ] {
            assert_eq!(without_credentials(url), clean);
        }
    }

    #[test]
    fn versions_are_three_numbers() {
        assert_eq!(Version::parse("1.0.0"), Some(VERSION));
        for text in [
            "1",
            "1.0",
            "1.0.0.0",
            "1.0.x",
            "",
            "+1.0.0",
            "1.0.99999999999",
        ] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }
}
