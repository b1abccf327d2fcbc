//! The same key with the same body is the same run, for a day, also after the daemon was started anew. Keys belong to the token that sent them.
//!
//! `idempotency.jsonl` of the data directory has a line for each key, written after its run was taken on and before anybody is told of it. Lines that cannot be read are left out. It never has many more lines
//! than there are keys that count.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, BufWriter};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
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
/// The file is written anew when it has twice as many lines as there are keys, and so many.
const SPARE_LINES: usize = 1000;
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
    path: PathBuf,
    file: File,
    /// How many the file has.
    lines: usize,
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
        let (mut runs, mut order) = (HashMap::new(), VecDeque::new());
        // What cannot be read is not written over: whoever mends it has the keys again.
        for_each_line(&path, |line: Line| {
            if is_old(line.at, now) {
                return;
            }
            if runs.insert(line.key.clone(), line.entry).is_none() {
                order.push_back((line.at, line.key));
            }
            if order.len() > REMEMBERED
                && let Some((_, key)) = order.pop_front()
            {
                runs.remove(&key);
            }
        })?;
        let (file, lines) = written_anew(&path, &runs, &order)?;
        let used = Used {
            runs,
            order,
            path,
            file,
            lines,
        };
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
        if let Err(error) = write(&mut self.file, &line) {
            tracing::warn!(%error, "a key holds only until the daemon ends");
        }
        self.lines += 1;
        self.runs.insert(key.clone(), entry);
        self.order.push_back((at, key));
        if self.lines > 2 * self.order.len() + SPARE_LINES {
            match written_anew(&self.path, &self.runs, &self.order) {
                Ok((file, lines)) => (self.file, self.lines) = (file, lines),
                Err(error) => tracing::warn!(%error, "the keys cannot be written anew"),
            }
        }
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

/// A file that is not there has none.
fn for_each_line(path: &Path, mut each: impl FnMut(Line)) -> io::Result<()> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for line in BufReader::new(file).split(b'\n') {
        if let Ok(line) = serde_json::from_slice(&line?) {
            each(line);
        }
    }
    Ok(())
}

/// A file with what counts, in the place of the one before.
fn written_anew(
    path: &Path,
    runs: &HashMap<Key, Entry>,
    order: &VecDeque<(Timestamp, Key)>,
) -> io::Result<(File, usize)> {
    let new = path.with_extension("jsonl.new");
    let _ = std::fs::remove_file(&new);
    let mut file = BufWriter::new(private(&new)?);
    for (at, key) in order {
        if let Some(entry) = runs.get(key) {
            let line = Line {
                at: *at,
                key: key.clone(),
                entry: *entry,
            };
            write(&mut file, &line)?;
        }
    }
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    std::fs::rename(&new, path)?;
    Ok((file, order.len()))
}

fn write(file: &mut impl io::Write, line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    file.write_all(text.as_bytes())
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
        let damaged = [b"nonsense\n\xff\n", text.as_bytes(), b"{\"cut"].concat();
        std::fs::write(&path, damaged).unwrap();
        let keys = Keys::open(&DataDir::at(dir.path())).unwrap();
        let again = keys.once(key("a"), b"1", || Err(Fault::internal("no")));
        assert_eq!(again.unwrap(), first);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("idempotency.jsonl")).unwrap();
        assert!(Keys::open(&DataDir::at(dir.path())).is_err());
    }

    #[test]
    fn the_file_has_no_more_lines_than_it_needs() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(&DataDir::at(dir.path())).unwrap();
        let path = dir.path().join("idempotency.jsonl");
        let lines = || std::fs::read_to_string(&path).unwrap().lines().count();
        let mut used = keys.used.lock().unwrap();
        let old = Timestamp::now() - jiff::SignedDuration::from_hours(25);
        let entry = Entry {
            body: Digest::of(b""),
            run: RunId::new(),
        };
        for number in 0..2 * SPARE_LINES {
            used.add(old, key(&number.to_string()), entry);
        }
        assert_eq!(lines(), 2 * SPARE_LINES);
        used.forget(Timestamp::now());
        for number in 0..10 {
            used.add(Timestamp::now(), key(&number.to_string()), entry);
        }
        assert!(lines() <= 10, "{}", lines());
        // What is written afterwards goes to the file that is there now.
        used.add(Timestamp::now(), key("last"), entry);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().last().unwrap().contains("\"last\""));
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
