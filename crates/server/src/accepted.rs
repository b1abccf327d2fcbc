//! What the daemon has promised, a file for each run, from before the client hears of it until its end is told: `accepted/ID.job`, which nobody else may read, as it holds what the client
//! sent. Whoever is started after a SIGKILL finds here what still waits and what nobody was told.
//!
//! The first line says how the run is queued; what follows is the request, for one that is to be taken up again.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use cofferdam_store::{DataDir, RunId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::idempotency::KeyUse;

/// The directory.
#[derive(Debug)]
pub(crate) struct Accepted {
    dir: PathBuf,
}

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Promise {
    pub(crate) run_id: RunId,
    pub(crate) tenant: String,
    /// How many runs at once the tenant may have.
    pub(crate) max_running: Option<usize>,
    pub(crate) priority: i8,
    /// Its place among all that were accepted.
    pub(crate) arrival: u64,
    pub(crate) submitted_at: Timestamp,
    pub(crate) deadline_at: Timestamp,
    pub(crate) execution_id: Option<String>,
    pub(crate) callback_url: Option<String>,
    /// Whether the program can answer apart from what it prints.
    pub(crate) answers: bool,
    pub(crate) key: Option<KeyUse>,
}

/// One that an earlier daemon left.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) promise: Promise,
    /// `None` for one whose client has gone with the daemon.
    pub(crate) request: Option<Vec<u8>>,
}

impl Accepted {
    pub(crate) fn open(dir: &DataDir) -> io::Result<Self> {
        let dir = dir.accepted();
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        Ok(Self { dir })
    }

    /// With a request, it is on the disk when this has returned, and a power cut does not undo it.
    pub(crate) fn keep(&self, promise: &Promise, request: Option<&[u8]>) -> io::Result<()> {
        let path = self.path(promise.run_id);
        let new = path.with_extension("new");
        let mut text = serde_json::to_vec(promise)?;
        text.push(b'\n');
        text.extend_from_slice(request.unwrap_or_default());
        let written = write(&new, &path, &text, request.is_some());
        if written.is_err() {
            let _ = fs::remove_file(&new);
            let _ = fs::remove_file(&path);
        }
        written
    }

    /// Its end is known and told.
    pub(crate) fn done(&self, run: RunId) {
        if let Err(error) = fs::remove_file(self.path(run)) {
            // The next start finds it, sees that it has ended, and tells it under the same key.
            tracing::warn!(run_id = %run, %error, "a promise that was kept could not be removed");
        }
    }

    /// What an earlier daemon left, in the order of arrival. What cannot be read is kept under another name.
    pub(crate) fn found(&self) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            match path.extension().and_then(|end| end.to_str()) {
                // Nobody was told of it.
                Some("new") => fs::remove_file(&path)?,
                Some("job") => match read(&path) {
                    Some(one) => found.push(one),
                    None => {
                        tracing::error!(path = %path.display(), "a promise cannot be read; it is put aside");
                        fs::rename(&path, path.with_extension("damaged"))?;
                    }
                },
                _ => {}
            }
        }
        found.sort_by_key(|found| (found.promise.arrival, found.promise.run_id));
        Ok(found)
    }

    fn path(&self, run: RunId) -> PathBuf {
        self.dir.join(format!("{run}.job"))
    }
}

fn write(new: &Path, path: &Path, text: &[u8], is_durable: bool) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(new)?;
    file.write_all(text)?;
    if is_durable {
        file.sync_data()?;
    }
    fs::rename(new, path)?;
    match path.parent() {
        Some(dir) if is_durable => File::open(dir)?.sync_all(),
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Option<Found> {
    let text = fs::read(path).ok()?;
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let promise: Promise = serde_json::from_slice(text.get(..end)?).ok()?;
    let named = path.file_stem().and_then(|name| name.to_str());
    if named != Some(promise.run_id.to_string().as_str()) {
        return None;
    }
    let request = text.get(end + 1..).unwrap_or_default();
    Some(Found {
        promise,
        request: (!request.is_empty()).then(|| request.to_vec()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn promise(arrival: u64) -> Promise {
        Promise {
            run_id: RunId::new(),
            tenant: "a".to_owned(),
            max_running: Some(2),
            priority: -3,
            arrival,
            submitted_at: Timestamp::now(),
            deadline_at: Timestamp::now(),
            execution_id: Some("e-1".to_owned()),
            callback_url: None,
            answers: true,
            key: None,
        }
    }

    #[test]
    fn promises_come_back_in_order_and_only_to_their_owner() {
        let dir = tempfile::tempdir().unwrap();
        let accepted = Accepted::open(&DataDir::at(dir.path())).unwrap();
        let (first, second, third) = (promise(1), promise(2), promise(3));
        accepted.keep(&second, Some(b"{\"a\":\n1}")).unwrap();
        accepted.keep(&third, None).unwrap();
        accepted.keep(&first, Some(b"{}")).unwrap();
        let place = dir.path().join("accepted");
        for entry in fs::read_dir(&place).unwrap() {
            let mode = entry.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(
            fs::metadata(&place).unwrap().permissions().mode() & 0o777,
            0o700
        );
        // Whatever else is there hinders nothing, and what is damaged is not thrown away.
        fs::write(place.join("half.new"), b"{").unwrap();
        fs::write(place.join("bad.job"), b"nonsense").unwrap();
        let found = accepted.found().unwrap();
        let ids: Vec<_> = found.iter().map(|found| found.promise.run_id).collect();
        assert_eq!(ids, [first.run_id, second.run_id, third.run_id]);
        assert_eq!(found[1].request.as_deref(), Some(&b"{\"a\":\n1}"[..]));
        assert_eq!(found[2].request, None);
        assert!(place.join("bad.damaged").exists() && !place.join("half.new").exists());
        accepted.done(second.run_id);
        assert_eq!(accepted.found().unwrap().len(), 2);
    }
}
