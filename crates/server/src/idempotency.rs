//! The same key with the same body is the same run, for a day, also after the daemon was started anew. Keys belong to the token that sent them.
//!
//! `idempotency.jsonl` of the data directory has a line for each key, written after its run was taken on and before anybody is told of it. Lines that cannot be read are left out.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use cofferdam_store::model::Digest;
use cofferdam_store::{DataDir, RunId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::fault::{Fault, Refusal};

const REMEMBERED_FOR: Duration = Duration::from_secs(24 * 3600);
const REMEMBERED: usize = 100_000;
const LONGEST: usize = 255;

/// Keys that were used.
#[derive(Debug)]
pub(crate) struct Keys {
    used: Mutex<Used>,
}

#[derive(Debug)]
struct Used {
    runs: HashMap<Key, Entry>,
    order: VecDeque<(Timestamp, Key)>,
    file: File,
}

/// One key of one token.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Key {
    tenant: String,
    key: String,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Entry {
    body: Digest,
    run: RunId,
}

/// What a key was used for; kept with a run that waits, so that the two cannot come apart.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct KeyUse {
    #[serde(flatten)]
    key: Key,
    body: Digest,
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    at: Timestamp,
    #[serde(flatten)]
    key: Key,
    #[serde(flatten)]
    entry: Entry,
}

impl Key {
    /// `None` where the request has none.
    pub(crate) fn of(headers: &HeaderMap, tenant: &str) -> Result<Option<Self>, Fault> {
        let Some(value) = headers.get("idempotency-key") else {
            return Ok(None);
        };
        let text = value.to_str().unwrap_or_default();
        let is_printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if text.is_empty() || text.len() > LONGEST || !is_printable {
            let shown = String::from_utf8_lossy(value.as_bytes());
            let fix = "use 1 to 255 printable ASCII characters";
            return Err(Fault::invalid("Idempotency-Key", shown, fix));
        }
        Ok(Some(Self {
            tenant: tenant.to_owned(),
            key: text.to_owned(),
        }))
    }
}

impl KeyUse {
    pub(crate) fn new(key: &Key, body: &[u8]) -> Self {
        Self {
            key: key.clone(),
            body: Digest::of(body),
        }
    }
}

impl Keys {
    /// Reads what an earlier daemon knew, and writes down anew what of it still counts.
    pub(crate) fn open(dir: &DataDir) -> io::Result<Self> {
        let path = dir.path().join("idempotency.jsonl");
        let now = Timestamp::now();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let lines: Vec<Line> = lines.filter(|line: &Line| !is_old(line.at, now)).collect();
        let new = path.with_extension("jsonl.new");
        let _ = std::fs::remove_file(&new);
        let mut used = Used {
            runs: HashMap::new(),
            order: VecDeque::new(),
            file: private(&new)?,
        };
        for line in lines {
            used.write(&line)?;
            used.order.push_back((line.at, line.key.clone()));
            used.runs.insert(line.key, line.entry);
        }
        std::fs::rename(&new, &path)?;
        Ok(Self {
            used: Mutex::new(used),
        })
    }

    /// For a daemon that was killed between taking a run on and writing down its key.
    pub(crate) fn remember(&self, used: &KeyUse, run: RunId) {
        let mut known = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if known.runs.contains_key(&used.key) {
            return;
        }
        let body = used.body;
        known.add(Timestamp::now(), used.key.clone(), Entry { body, run });
    }

    /// The run that this key stands for, or the one that `submit` makes. Two at once make one.
    pub(crate) fn once(
        &self,
        key: Key,
        body: &[u8],
        submit: impl FnOnce() -> Result<RunId, Fault>,
    ) -> Result<RunId, Fault> {
        let digest = Digest::of(body);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Timestamp::now();
        used.forget(now);
        if let Some(known) = used.runs.get(&key) {
            if known.body != digest {
                return Err(Refusal::IdempotencyConflict.because(format!("key `{}`", key.key)));
            }
            return Ok(known.run);
        }
        // A refusal leaves the key free: the same request may be sent again.
        let run = submit()?;
        used.add(now, key, Entry { body: digest, run });
        Ok(run)
    }
}

impl Used {
    fn add(&mut self, at: Timestamp, key: Key, entry: Entry) {
        let line = Line {
            at,
            key: key.clone(),
            entry,
        };
        if let Err(error) = self.write(&line) {
            tracing::warn!(%error, "a key holds only until the daemon ends");
        }
        self.runs.insert(key.clone(), entry);
        self.order.push_back((at, key));
    }

    fn write(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.file.write_all(text.as_bytes())
    }

    fn forget(&mut self, now: Timestamp) {
        while let Some((at, _)) = self.order.front() {
            if !is_old(*at, now) && self.order.len() < REMEMBERED {
                break;
            }
            if let Some((_, key)) = self.order.pop_front() {
                self.runs.remove(&key);
            }
        }
    }
}

fn is_old(at: Timestamp, now: Timestamp) -> bool {
    let age = Duration::try_from(now.duration_since(at));
    // Negative: a clock that was set back.
    age.is_ok_and(|age| age > REMEMBERED_FOR)
}

fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tenant: &str) -> Key {
        Key {
            tenant: tenant.to_owned(),
            key: "k".to_owned(),
        }
    }

    #[test]
    fn a_key_stands_for_one_run_with_one_body() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(&DataDir::at(dir.path())).unwrap();
        let first = keys.once(key("a"), b"1", || Ok(RunId::new())).unwrap();
        let again = keys.once(key("a"), b"1", || Err(Fault::internal("no")));
        assert_eq!(again.unwrap(), first);
        let other = keys.once(key("a"), b"2", || Ok(RunId::new())).unwrap_err();
        assert_eq!(other.code, "idempotency.conflict");
        let tenant = keys.once(key("b"), b"2", || Ok(RunId::new())).unwrap();
        assert_ne!(tenant, first);
        // A daemon that is started anew knows it, whatever else is in the file.
        drop(keys);
        let path = dir.path().join("idempotency.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
        std::fs::write(&path, format!("nonsense\n{text}{{\"cut")).unwrap();
        let keys = Keys::open(&DataDir::at(dir.path())).unwrap();
        let again = keys.once(key("a"), b"1", || Err(Fault::internal("no")));
        assert_eq!(again.unwrap(), first);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn a_day_is_a_day() {
        let now = Timestamp::now();
        let ago = |seconds| now - jiff::SignedDuration::from_secs(seconds);
        assert!(!is_old(ago(86_399), now));
        assert!(is_old(ago(86_401), now));
        assert!(!is_old(ago(-500), now));
    }

    #[test]
    fn what_was_refused_may_be_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(&DataDir::at(dir.path())).unwrap();
        assert!(
            keys.once(key("a"), b"1", || Err(Fault::internal("full")))
                .is_err()
        );
        assert!(keys.once(key("a"), b"1", || Ok(RunId::new())).is_ok());
    }
}
