//! Answers on disk, by their key. What is given again is believed, so every entry carries a keyed hash over all of it and over its key; what does not fit is removed. What was not
//! used for longest goes first.
//!
//! ```text
//! results/key          64 random bytes, made once
//! results/HEX.answer   an entry: a mark, the keyed hash, JSON
//! ```

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use cofferdam_contract::kept_record::KeptRecord;
use cofferdam_contract::units::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::key::ResultKey;
use crate::data_dir::{DataDir, create_private};
use crate::error::StoreError;
use crate::sift::redact::{self, Rules};

/// The answers of one data directory.
#[derive(Debug)]
pub struct Results {
    dir: PathBuf,
    key: [u8; KEY],
    most: u64,
    /// About how much there is; looked at anew when it seems too much.
    total: AtomicU64,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    pub record: KeptRecord,
    /// The command, or what was asked in another way, without secrets: for whoever lists the answers.
    pub about: String,
}

/// An answer, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    pub key: String,
    pub run_id: String,
    pub about: String,
    pub bytes: u64,
    /// RFC 3339, UTC.
    pub ended_at: String,
    pub last_used: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Stats {
    pub entries: u64,
    pub bytes: u64,
    pub most_bytes: u64,
    /// Entries that are not what we wrote.
    pub damaged: u64,
}

/// What all answers together may take.
pub const DEFAULT_BYTES: Bytes = Bytes::new(256 << 20);
/// One answer may take a part of it.
const SHARE: u64 = 8;
const KEY: usize = 64;
const HASH: usize = 32;
const MARK: &[u8; 8] = b"cdansw1\n";
const SUFFIX: &str = "answer";

impl Results {
    /// Makes what is missing.
    pub fn open(data: &DataDir, most: Bytes) -> Result<Self, StoreError> {
        let dir = data.results();
        let failed = || StoreError::io("use the result cache in", &dir);
        create_private(&dir).map_err(failed())?;
        let results = Self {
            key: secret(&dir).map_err(failed())?,
            total: AtomicU64::new(0),
            most: most.get(),
            dir,
        };
        let total = results.entries().iter().map(|entry| entry.size).sum();
        results.total.store(total, Ordering::Relaxed);
        Ok(results)
    }

    /// The answer, if it is known and what we wrote.
    pub fn get(&self, key: ResultKey) -> Option<Kept> {
        let path = self.path(key);
        let file = open(&path).ok()?;
        match self.read(key, &file) {
            Some(kept) => {
                touch_best_effort(&file);
                Some(kept)
            }
            None => {
                let _ = fs::remove_file(&path);
                None
            }
        }
    }

    /// Keeps an answer, in the place of an older one. Nobody ever sees half of one. One that is too large is not kept, and none that holds a secret: an answer is given as it was, or
    /// not at all.
    pub fn put(&self, key: ResultKey, kept: &Kept, rules: &Rules) -> Result<(), StoreError> {
        if kept.holds_secrets(rules) {
            return Ok(());
        }
        let failed = || StoreError::io("keep an answer in", &self.dir);
        let bytes = serde_json::to_vec(kept).map_err(|error| failed()(error.into()))?;
        let size = u64::try_from(MARK.len() + HASH + bytes.len()).unwrap_or(u64::MAX);
        if size > self.most / SHARE {
            return Ok(());
        }
        let hash = self.hash(key, &bytes).finalize().into_bytes();
        write_whole(
            &self.dir,
            &self.path(key),
            &[MARK.as_slice(), &hash, &bytes],
        )
        .map_err(failed())?;
        let total = self.total.fetch_add(size, Ordering::Relaxed);
        if total.saturating_add(size) > self.most {
            self.make_room_best_effort();
        }
        Ok(())
    }

    /// Newest use first.
    pub fn list(&self) -> Vec<Listed> {
        let mut entries = self.entries();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.used));
        let listed = entries.iter().filter_map(|entry| {
            let kept = self.read(entry.key, &open(&entry.path).ok()?)?;
            Some(Listed {
                key: entry.key.hex(),
                run_id: kept.record.run_id,
                about: kept.about,
                bytes: entry.size,
                ended_at: kept.record.ended_at,
                last_used: Timestamp::try_from(entry.used).ok()?.to_string(),
            })
        });
        listed.collect()
    }

    pub fn stats(&self) -> Stats {
        let entries = self.entries();
        let damaged = entries.iter().filter(|entry| {
            let file = open(&entry.path);
            file.is_ok_and(|file| self.read(entry.key, &file).is_none())
        });
        Stats {
            damaged: u64::try_from(damaged.count()).unwrap_or(u64::MAX),
            entries: u64::try_from(entries.len()).unwrap_or(u64::MAX),
            bytes: entries.iter().map(|entry| entry.size).sum(),
            most_bytes: self.most,
        }
    }

    /// Removes every answer, and how many that were. The key stays.
    pub fn clear(&self) -> Result<u64, StoreError> {
        let mut removed = 0;
        for entry in self.entries() {
            match fs::remove_file(&entry.path) {
                Ok(()) => removed += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(StoreError::io("remove", &entry.path)(error)),
            }
        }
        self.total.store(0, Ordering::Relaxed);
        Ok(removed)
    }

    fn path(&self, key: ResultKey) -> PathBuf {
        self.dir.join(format!("{}.{SUFFIX}", key.hex()))
    }

    fn read(&self, key: ResultKey, file: &File) -> Option<Kept> {
        let mut bytes = Vec::new();
        file.take(self.most.saturating_add(1))
            .read_to_end(&mut bytes)
            .ok()?;
        let (hash, text) = bytes.strip_prefix(MARK)?.split_at_checked(HASH)?;
        self.hash(key, text).verify_slice(hash).ok()?;
        serde_json::from_slice(text).ok()
    }

    fn hash(&self, key: ResultKey, text: &[u8]) -> Hmac<Sha256> {
        let mut hash = Hmac::<Sha256>::new(&self.key.into());
        hash.update(&key.0);
        hash.update(text);
        hash
    }

    fn entries(&self) -> Vec<Entry> {
        let found = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        found.filter_map(|entry| Entry::of(&entry)).collect()
    }

    fn make_room_best_effort(&self) {
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
        self.total.store(total, Ordering::Relaxed);
    }
}

impl Kept {
    fn holds_secrets(&self, rules: &Rules) -> bool {
        self.record.written().any(|stream| {
            let bytes = stream.bytes().unwrap_or_default();
            redact::redact_text(rules, &String::from_utf8_lossy(&bytes)).1 > 0
        })
    }
}

#[derive(Debug)]
struct Entry {
    path: PathBuf,
    key: ResultKey,
    size: u64,
    used: SystemTime,
}

impl Entry {
    fn of(entry: &fs::DirEntry) -> Option<Self> {
        let path = entry.path();
        let is_entry = path.extension().is_some_and(|suffix| suffix == SUFFIX);
        let name = path.file_stem().filter(|_| is_entry)?.to_str()?;
        let key = data_encoding::HEXLOWER.decode(name.as_bytes()).ok()?;
        let found = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(Self {
            key: ResultKey(key.try_into().ok()?),
            size: found.size(),
            used: found.modified().ok()?,
            path,
        })
    }
}

/// Made by whoever comes first.
fn secret(dir: &Path) -> io::Result<[u8; KEY]> {
    let path = dir.join("key");
    if let Some(key) = read_secret(&path)? {
        return Ok(key);
    }
    let mut fresh = [0; KEY];
    let mut filled = 0;
    while let Some(rest @ [_, ..]) = fresh.get_mut(filled..) {
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
    }
    let file = nameless(dir, &[&fresh])?;
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    match rustix::fs::linkat(CWD, from, CWD, &path, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    read_secret(&path)?.ok_or_else(|| io::Error::other("the key of the cache cannot be read back"))
}

/// `None` when there is none yet, or one that somebody damaged or others can read: with another key, nothing that is there is believed.
fn read_secret(path: &Path) -> io::Result<Option<[u8; KEY]>> {
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

/// The name is taken by what is whole; what had it before goes.
fn write_whole(dir: &Path, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let file = nameless(dir, parts)?;
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    loop {
        match rustix::fs::linkat(CWD, &*from, CWD, path, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => return Ok(()),
            // A name cannot be linked over. Whoever looks in between finds nothing, which is no harm.
            Err(rustix::io::Errno::EXIST) => match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            },
            Err(errno) => return Err(errno.into()),
        }
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
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::*;
    use crate::results::KeyParts;

    /// With nothing that must not be kept.
    fn put(results: &Results, key: ResultKey, kept: &Kept) {
        results.put(key, kept, &Rules::default()).unwrap();
    }

    #[test]
    fn an_answer_with_a_secret_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let results = Results::open(&data(&dir), DEFAULT_BYTES).unwrap();
        let rules = Rules::default().with_values([b"hunter2hunter2".as_slice()]);
        results
            .put(key("a"), &kept("the word is hunter2hunter2"), &rules)
            .unwrap();
        assert_eq!(results.get(key("a")), None);
        results.put(key("a"), &kept("no word"), &rules).unwrap();
        assert!(results.get(key("a")).is_some());
    }

    fn data(dir: &tempfile::TempDir) -> DataDir {
        DataDir::at(dir.path().join("data"))
    }

    fn key(name: &str) -> ResultKey {
        KeyParts::new(name).finish()
    }

    fn kept(text: &str) -> Kept {
        let record = serde_json::json!({
            "run_id": "run-1", "backend": "native", "ending": {"exited": 0},
            "stdout": {"data": text, "encoding": "utf-8", "truncated": false, "original_bytes": text.len()},
            "stderr": {"data": "", "encoding": "utf-8", "truncated": false, "original_bytes": 0},
            "result": null,
            "usage": {"wall_ms": 1.0, "cpu_ms": 1.0, "memory_peak_bytes": null, "processes_peak": null, "output_bytes": 0, "disk_bytes": null},
            "enforced_by": {}, "isolation": {}, "denials": [], "changes": null,
            "started_at": "2026-01-31T12:00:00Z", "ended_at": "2026-01-31T12:00:01Z", "trap": null, "determinism": null,
        });
        Kept {
            record: serde_json::from_value(record).unwrap(),
            about: "true".to_owned(),
        }
    }

    #[test]
    fn an_answer_comes_back_also_in_another_process_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let data = data(&dir);
        let results = Results::open(&data, DEFAULT_BYTES).unwrap();
        assert_eq!(results.get(key("a")), None);
        put(&results, key("a"), &kept("one"));
        put(&results, key("a"), &kept("two"));
        let again = Results::open(&data, DEFAULT_BYTES).unwrap();
        assert_eq!(again.get(key("a")), Some(kept("two")));
        assert_eq!(again.get(key("b")), None);
        let listed = again.list();
        assert_eq!((listed.len(), listed[0].run_id.as_str()), (1, "run-1"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&data.results()), 0o700);
        for file in fs::read_dir(data.results()).unwrap() {
            assert_eq!(mode(&file.unwrap().path()), 0o600);
        }
        assert_eq!(again.clear().unwrap(), 1);
        assert_eq!(again.get(key("a")), None);
        assert_eq!(again.stats().entries, 0);
    }

    #[test]
    fn no_changed_byte_is_believed_and_the_entry_goes() {
        let dir = tempfile::tempdir().unwrap();
        let results = Results::open(&data(&dir), DEFAULT_BYTES).unwrap();
        put(&results, key("a"), &kept("one"));
        let path = results.path(key("a"));
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            assert_eq!(results.get(key("a")), None, "byte {at}");
            assert!(!path.exists(), "byte {at}");
        }
        for cut in [0, 8, 39, 40, whole.len() - 1] {
            fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(results.get(key("a")), None, "{cut} bytes");
        }
        fs::write(&path, &whole).unwrap();
        assert!(results.get(key("a")).is_some());
    }

    #[test]
    fn an_answer_does_not_pass_for_another_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let results = Results::open(&data(&dir), DEFAULT_BYTES).unwrap();
        put(&results, key("theirs"), &kept("evil"));
        fs::rename(results.path(key("theirs")), results.path(key("mine"))).unwrap();
        assert_eq!(results.stats().damaged, 1);
        assert_eq!(results.get(key("mine")), None);
        put(&results, key("mine"), &kept("good"));
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(results.path(key("mine")), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, results.path(key("mine"))).unwrap();
        assert_eq!(results.get(key("mine")), None);
        // What is kept again takes the link's place and does not write through it.
        let before = fs::read(&elsewhere).unwrap();
        put(&results, key("mine"), &kept("better"));
        assert_eq!(fs::read(&elsewhere).unwrap(), before);
        assert_eq!(results.get(key("mine")), Some(kept("better")));
    }

    #[test]
    fn answers_of_another_machine_or_under_a_key_that_others_read_are_not_believed() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let theirs = Results::open(&data(&other), DEFAULT_BYTES).unwrap();
        put(&theirs, key("a"), &kept("evil"));
        let ours = Results::open(&data(&one), DEFAULT_BYTES).unwrap();
        fs::copy(theirs.path(key("a")), ours.path(key("a"))).unwrap();
        assert_eq!(ours.get(key("a")), None);
        put(&ours, key("a"), &kept("good"));
        let secret = data(&one).results().join("key");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
        let again = Results::open(&data(&one), DEFAULT_BYTES).unwrap();
        assert_eq!(again.get(key("a")), None);
    }

    #[test]
    fn what_was_not_used_for_longest_makes_room_and_what_is_too_large_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let results = Results::open(&data(&dir), Bytes::new(8000)).unwrap();
        let age = |name: &str, seconds| {
            let then = SystemTime::now() - Duration::from_secs(seconds);
            let file = File::open(results.path(key(name))).unwrap();
            file.set_modified(then).unwrap();
        };
        let names: Vec<String> = (0..12).map(|n| n.to_string()).collect();
        for (name, seconds) in names.iter().zip(
            (100..)
                .step_by(100)
                .take(12)
                .collect::<Vec<_>>()
                .into_iter()
                .rev(),
        ) {
            put(&results, key(name), &kept(&"x".repeat(300)));
            age(name, seconds);
            if name == "5" {
                assert!(results.get(key("0")).is_some(), "now used last");
            }
        }
        assert!(results.stats().bytes <= 8000, "{:?}", results.stats());
        assert!(results.get(key("0")).is_some());
        assert!(results.get(key("1")).is_none());
        put(&results, key("large"), &kept(&"x".repeat(1001)));
        assert!(results.get(key("large")).is_none());
    }
}
