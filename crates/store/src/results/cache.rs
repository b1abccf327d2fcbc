//! Answers on disk, by their key. What is given again is believed, so they are [vouched](crate::vouched) for. What was not used for longest goes first.
//!
//! ```text
//! results/key          64 random bytes, made once
//! results/HEX.answer   an entry: a mark, the keyed hash, JSON
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

use cofferdam_contract::kept_record::KeptRecord;
use cofferdam_contract::units::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::key::ResultKey;
use crate::data_dir::DataDir;
use crate::error::StoreError;
use crate::sift::redact::{self, Rules};
use crate::vouched::{IfPresent, Kind, Vouched};

/// The answers of one data directory.
#[derive(Debug)]
pub struct Results {
    entries: Vouched,
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
const ANSWERS: Kind = Kind {
    mark: b"cdansw1\n",
    suffix: "answer",
};

impl Results {
    /// Makes what is missing.
    pub fn open(data: &DataDir, most: Bytes) -> Result<Self, StoreError> {
        let dir = data.results();
        let entries = Vouched::open(&dir, ANSWERS, most)
            .map_err(StoreError::io("use the result cache in", &dir))?;
        let total = entries.entries().iter().map(|entry| entry.size).sum();
        Ok(Self {
            entries,
            most: most.get(),
            total: AtomicU64::new(total),
        })
    }

    /// The answer, if it is known and what we wrote.
    pub fn get(&self, key: ResultKey) -> Option<Kept> {
        let read = read(&self.entries.get(&key.0)?);
        if read.is_none() {
            self.entries.remove_best_effort(&key.0);
        }
        read
    }

    /// Keeps an answer, in the place of an older one. Nobody ever sees half of one. One that is too large is not kept, and none that holds a secret: an answer is given as it was, or
    /// not at all.
    pub fn put(&self, key: ResultKey, kept: &Kept, rules: &Rules) -> Result<(), StoreError> {
        if kept.holds_secrets(rules) {
            return Ok(());
        }
        let failed = || StoreError::io("keep an answer in", self.entries.dir());
        let bytes = serde_json::to_vec(kept).map_err(|error| failed()(error.into()))?;
        let size = Vouched::size_of(&bytes);
        if size > self.most / SHARE {
            return Ok(());
        }
        self.entries
            .put(&key.0, &bytes, IfPresent::Replace)
            .map_err(failed())?;
        let total = self.total.fetch_add(size, Ordering::Relaxed);
        if total.saturating_add(size) > self.most {
            let left = self.entries.make_room_best_effort();
            self.total.store(left, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Newest use first.
    pub fn list(&self) -> Vec<Listed> {
        let mut entries = self.entries.entries();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.used));
        let listed = entries.iter().filter_map(|entry| {
            let kept = self.look(&entry.name)?;
            Some(Listed {
                key: ResultKey(entry.name).hex(),
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
        let entries = self.entries.entries();
        let damaged = entries.iter();
        let damaged = damaged.filter(|entry| self.look(&entry.name).is_none());
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
        for entry in self.entries.entries() {
            let path = self.entries.path(&entry.name);
            match std::fs::remove_file(&path) {
                Ok(()) => removed += 1,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(StoreError::io("remove", &path)(error)),
            }
        }
        self.total.store(0, Ordering::Relaxed);
        Ok(removed)
    }

    fn look(&self, name: &[u8; 32]) -> Option<Kept> {
        read(&self.entries.look(name)?)
    }
}

fn read(contents: &[u8]) -> Option<Kept> {
    serde_json::from_slice(contents).ok()
}

impl Kept {
    fn holds_secrets(&self, rules: &Rules) -> bool {
        self.record.written().any(|stream| {
            let bytes = stream.bytes().unwrap_or_default();
            redact::redact_text(rules, &String::from_utf8_lossy(&bytes)).1 > 0
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::results::KeyParts;

    fn path(results: &Results, key: ResultKey) -> PathBuf {
        results.entries.path(&key.0)
    }

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
        let path = path(&results, key("a"));
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
        fs::rename(path(&results, key("theirs")), path(&results, key("mine"))).unwrap();
        assert_eq!(results.stats().damaged, 1);
        assert_eq!(results.get(key("mine")), None);
        put(&results, key("mine"), &kept("good"));
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(path(&results, key("mine")), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, path(&results, key("mine"))).unwrap();
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
        fs::copy(path(&theirs, key("a")), path(&ours, key("a"))).unwrap();
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
            let file = File::open(path(&results, key(name))).unwrap();
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
