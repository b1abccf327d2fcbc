//! The last entry of the chain, kept apart from it: `SEQ HASH` in one line of `audit-head`.

use std::fs;
use std::io::{self, Write as _};

use rusqlite::OptionalExtension as _;
use serde::Serialize;
use serde_json::json;

use super::chain::{self, NOTHING_BEFORE};
use crate::database::{Access, Fault, History};
use crate::error::StoreError;
use crate::model::Digest;

/// Where the chain ends, or ended when this was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Head {
    /// 0 before the first entry.
    pub seq: u64,
    pub hash: Digest,
}

/// What the file says; `None` when it is not there.
pub fn read_head(history: &History) -> Result<Option<Head>, StoreError> {
    let path = history.dir().audit_head();
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
        other => other.map_err(StoreError::io("read", &path))?,
    };
    let head = parse(&text).ok_or_else(|| StoreError::Damaged {
        path,
        why: "it does not hold a number and a hash".to_owned(),
    })?;
    Ok(Some(head))
}

fn parse(text: &str) -> Option<Head> {
    let (seq, hash) = text.strip_suffix('\n')?.split_once(' ')?;
    Some(Head {
        seq: seq.parse().ok()?,
        hash: hash.parse().ok()?,
    })
}

/// Accepts the chain as it is: makes an entry that says what the head was, and writes the head anew. For after a copy of the database was restored.
pub fn reset_head(history: &mut History) -> Result<(), StoreError> {
    let old = match read_head(history) {
        Ok(Some(old)) => json!({"seq": old.seq, "hash": old.hash}),
        Ok(None) => json!("missing"),
        Err(_) => json!("unreadable"),
    };
    chain::append(history, "audit.reset", "audit-head", &json!({"was": old}))?;
    let last = history.read(chain::last)?;
    let path = history.dir().audit_head();
    write(history, last).map_err(StoreError::io("write", path))
}

/// A history that has just been made gets a head, so that a missing one is never innocent.
pub(crate) fn found_best_effort(history: &History) {
    let empty = history.read(chain::last).is_ok_and(|last| last.seq == 0);
    if empty && history.access() == Access::ReadWrite && matches!(read_head(history), Ok(None)) {
        let nothing = Head {
            seq: 0,
            hash: NOTHING_BEFORE,
        };
        let _ = write(history, nothing);
    }
}

/// Moves the head on to `new`, which is committed. It stays where it is when it contradicts the chain, or cannot be written: behind is allowed, and the next entry tries again.
pub(crate) fn advance_best_effort(history: &History, new: Head) {
    let Ok(Some(old)) = read_head(history) else {
        return;
    };
    let fits = history.read(|connection| is_in_chain(connection, old));
    if old.seq < new.seq && fits.is_ok_and(|fits| fits) {
        let _ = write(history, new);
    }
}

/// Whether the chain has this entry.
pub(crate) fn is_in_chain(connection: &rusqlite::Connection, head: Head) -> Result<bool, Fault> {
    if head.seq == 0 {
        return Ok(head.hash == NOTHING_BEFORE);
    }
    let sql = "SELECT hash FROM audit WHERE seq = ?1";
    let found: Option<[u8; 32]> = connection
        .prepare_cached(sql)?
        .query_row([i64::try_from(head.seq).unwrap_or(i64::MAX)], |row| {
            row.get(0)
        })
        .optional()?;
    Ok(found.map(Digest) == Some(head.hash))
}

/// Others see the old one or the new one, never a part.
fn write(history: &History, head: Head) -> io::Result<()> {
    let mut file = tempfile::Builder::new()
        .prefix(".audit-head-")
        .tempfile_in(history.dir().path())?;
    writeln!(file, "{} {}", head.seq, head.hash)?;
    // Some file systems leave an empty file after a power cut otherwise, and a head that cannot be read stays so.
    file.as_file().sync_data()?;
    file.persist(history.dir().audit_head())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_one_exact_line() {
        let hash = "ab".repeat(32);
        let head = parse(&format!("7 {hash}\n"));
        assert_eq!(head.map(|head| head.seq), Some(7));
        for broken in [
            String::new(),
            format!("7 {hash}"),
            format!("7 {hash}\n\n"),
            format!("-7 {hash}\n"),
            format!("7  {hash}\n"),
            "7 ab\n".to_owned(),
        ] {
            assert_eq!(parse(&broken), None, "{broken}");
        }
    }
}
