//! What was decided and has to be settled elsewhere: an entry for each fact, kept from the decision until it is certain that the other side has it. Knows nothing of how it is settled; what
//! was sent is written down before it is sent, so that whoever comes after a crash knows of it.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, Row, params};
use serde::{Deserialize, Serialize};

use crate::data_dir::DataDir;
use crate::error::StoreError;
use crate::sqlite::{Durable, Format};

/// For whoever finds it damaged.
const ADVICE: &str = "restore a copy of it, or move it away (what was waiting in it is then found again in the records of the fleet's jobs only)";
const BUSY: Duration = Duration::from_secs(20);
const FORMAT: Format<'_> = Format {
    // In the header of the file: `cofs`.
    application: 0x636f_6673,
    steps: &["
CREATE TABLE settlements (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    place TEXT NOT NULL,
    id TEXT NOT NULL,
    body TEXT NOT NULL,
    state TEXT NOT NULL,
    progress TEXT NOT NULL,
    created INTEGER NOT NULL,
    changed INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX settlements_by_id ON settlements (place, id);
CREATE INDEX settlements_open ON settlements (place, number) WHERE state IN ('waiting', 'sent', 'seen');
"],
};

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing is under way.
    Waiting,
    /// It was sent, or is about to be.
    Sent,
    /// The other side has it; not yet for certain.
    Seen,
    /// The other side has it for certain.
    Settled,
    /// It cannot be settled; a person has to look.
    Refused,
}

/// What was done about it so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Progress {
    /// Which of the sender's messages it is.
    pub nonce: Option<u64>,
    /// The message itself, hexadecimal.
    pub raw: Option<String>,
    /// The names of all messages that were sent for it.
    pub hashes: Vec<String>,
    pub max_fee: u128,
    pub priority_fee: u128,
    pub sent_ms: i64,
    /// How often it was sent anew because the other side had lost or turned down what it was sent.
    pub attempts: u32,
    /// Not before then, in milliseconds since 1970.
    pub not_before_ms: i64,
    /// Where it was seen.
    pub block: Option<u64>,
    /// What went wrong last.
    pub note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Settlement {
    pub id: String,
    pub body: String,
    pub state: State,
    pub progress: Progress,
    pub created: Timestamp,
    pub changed: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    New,
    Known,
}

/// How many there are of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    pub open: u64,
    pub settled: u64,
    pub refused: u64,
}

/// The settlements of a data directory with one place: another chain or contract has its own.
#[derive(Debug)]
pub struct Settlements {
    file: Durable,
    place: String,
}

/// How many are looked at in one go; the others have their turn.
const MOST_AT_ONCE: u32 = 256;

/// Held by the one process that sends.
#[derive(Debug)]
pub struct Sender {
    _lock: File,
}

impl Settlements {
    pub fn open(dir: &DataDir, place: &str) -> Result<Self, StoreError> {
        Ok(Self {
            file: Durable::open(dir, dir.settlements(), &FORMAT, (BUSY, ADVICE))?,
            place: place.to_owned(),
        })
    }

    /// Takes an entry. When this has returned, neither a crash nor a power cut loses it; the same one again changes nothing.
    pub fn put(&self, id: &str, body: &str, now: Timestamp) -> Result<Put, StoreError> {
        let progress = written(&Progress::default());
        let values = params![self.place, id, body, progress, now.as_millisecond()];
        let sql = "INSERT INTO settlements (place, id, body, state, progress, created, changed) VALUES (?1, ?2, ?3, 'waiting', ?4, ?5, ?5) ON CONFLICT DO NOTHING";
        let changed = self.file.connection().execute(sql, values);
        Ok(match changed.map_err(|error| self.file.sql(error))? {
            0 => Put::Known,
            _ => Put::New,
        })
    }

    /// Everything that is not done with, in the order in which it was decided.
    pub fn open_ones(&self) -> Result<Vec<Settlement>, StoreError> {
        self.list(
            "state IN ('waiting', 'sent', 'seen') ORDER BY number",
            MOST_AT_ONCE,
        )
    }

    /// The latest, newest first.
    pub fn latest(&self, most: u32) -> Result<Vec<Settlement>, StoreError> {
        self.list("true ORDER BY number DESC", most)
    }

    pub fn get(&self, id: &str) -> Result<Option<Settlement>, StoreError> {
        let sql = format!("{SELECT} AND id = ?2");
        let connection = self.file.connection();
        let found = connection.query_row(&sql, [&self.place, id], |row| Ok(settlement(row)));
        let found = found.optional().map_err(|error| self.file.sql(error))?;
        found
            .map(|read| read.map_err(|error| self.file.sql(error)))
            .transpose()
    }

    pub fn counts(&self) -> Result<Counts, StoreError> {
        let sql = "SELECT coalesce(sum(state IN ('waiting', 'sent', 'seen')), 0), coalesce(sum(state = 'settled'), 0), coalesce(sum(state = 'refused'), 0) FROM settlements WHERE place = ?1";
        let connection = self.file.connection();
        let counted = connection.query_row(sql, [&self.place], |row| {
            let count = |column: usize| {
                let count: i64 = row.get(column)?;
                Ok::<_, rusqlite::Error>(u64::try_from(count).unwrap_or(0))
            };
            Ok(Counts {
                open: count(0)?,
                settled: count(1)?,
                refused: count(2)?,
            })
        });
        counted.map_err(|error| self.file.sql(error))
    }

    /// Writes how far one is. When this has returned it is on the disk.
    pub fn update(&self, settlement: &Settlement, now: Timestamp) -> Result<(), StoreError> {
        let sql = "UPDATE settlements SET state = ?3, progress = ?4, changed = ?5 WHERE place = ?1 AND id = ?2";
        let values = params![
            self.place,
            settlement.id,
            word(settlement.state),
            written(&settlement.progress),
            now.as_millisecond()
        ];
        let changed = self.file.connection().execute(sql, values);
        changed.map(drop).map_err(|error| self.file.sql(error))
    }

    /// Has one that could not be settled tried again.
    pub fn revive(&self, id: &str, now: Timestamp) -> Result<bool, StoreError> {
        let Some(mut found) = self.get(id)? else {
            return Ok(false);
        };
        if found.state != State::Refused {
            return Ok(false);
        }
        found.state = State::Waiting;
        found.progress.not_before_ms = 0;
        self.update(&found, now)?;
        Ok(true)
    }

    /// The right to send. `None` while another process has it: two that send by one account are in each other's way.
    pub fn sender(&self) -> Result<Option<Sender>, StoreError> {
        let path = self.file.path().with_extension("lock");
        let failed = || StoreError::io("lock", &path);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed())?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Sender { _lock: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed()(error)),
        }
    }

    fn list(&self, which: &str, most: u32) -> Result<Vec<Settlement>, StoreError> {
        let sql = format!("{SELECT} AND {which} LIMIT ?2");
        let connection = self.file.connection();
        let read = || -> rusqlite::Result<Vec<Settlement>> {
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map(params![self.place, most], |row| Ok(settlement(row)))?;
            rows.map(|row| row.and_then(|read| read)).collect()
        };
        read().map_err(|error| self.file.sql(error))
    }
}

const SELECT: &str =
    "SELECT id, body, state, progress, created, changed FROM settlements WHERE place = ?1";

fn settlement(row: &Row<'_>) -> rusqlite::Result<Settlement> {
    let unreadable = |column: usize| {
        move |error: serde_json::Error| {
            rusqlite::Error::FromSqlConversionFailure(
                column,
                rusqlite::types::Type::Text,
                Box::new(error),
            )
        }
    };
    let state: String = row.get(2)?;
    let progress: String = row.get(3)?;
    let at = |milliseconds: i64| {
        Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::UNIX_EPOCH)
    };
    Ok(Settlement {
        id: row.get(0)?,
        body: row.get(1)?,
        state: serde_json::from_value(state.into()).map_err(unreadable(2))?,
        progress: serde_json::from_str(&progress).map_err(unreadable(3))?,
        created: at(row.get(4)?),
        changed: at(row.get(5)?),
    })
}

const fn word(state: State) -> &'static str {
    match state {
        State::Waiting => "waiting",
        State::Sent => "sent",
        State::Seen => "seen",
        State::Settled => "settled",
        State::Refused => "refused",
    }
}

fn written(progress: &Progress) -> String {
    serde_json::to_string(progress).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn a_settlement_is_taken_once_kept_in_order_and_found_again_as_it_was_left() {
        let dir = tempfile::tempdir().unwrap();
        let dir = DataDir::at(dir.path().join("data"));
        let here = Settlements::open(&dir, "1:0xa").unwrap();
        let elsewhere = Settlements::open(&dir, "1:0xb").unwrap();
        assert_eq!(here.put("2", "{}", at(0)).unwrap(), Put::New);
        assert_eq!(here.put("1", "{\"a\":1}", at(1)).unwrap(), Put::New);
        assert_eq!(here.put("2", "other", at(2)).unwrap(), Put::Known);
        assert_eq!(elsewhere.put("2", "there", at(3)).unwrap(), Put::New);
        let open = here.open_ones().unwrap();
        let ids: Vec<&str> = open.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, ["2", "1"]);
        assert_eq!(
            (open[0].body.as_str(), open[0].state),
            ("{}", State::Waiting)
        );
        let mut sent = open[0].clone();
        sent.state = State::Sent;
        sent.progress = Progress {
            nonce: Some(7),
            raw: Some("0x02".into()),
            hashes: vec!["0xab".into()],
            max_fee: u128::MAX,
            note: Some("a 'note'".into()),
            ..Progress::default()
        };
        here.update(&sent, at(9)).unwrap();
        drop(here);
        let here = Settlements::open(&dir, "1:0xa").unwrap();
        let found = here.get("2").unwrap().unwrap();
        assert_eq!(
            (&found.progress, found.state),
            (&sent.progress, State::Sent)
        );
        assert_eq!((found.created, found.changed), (at(0), at(9)));
        assert_eq!(elsewhere.get("2").unwrap().unwrap().body, "there");
        assert_eq!(here.get("3").unwrap(), None);
        for (id, state) in [("2", State::Settled), ("1", State::Refused)] {
            let mut ended = here.get(id).unwrap().unwrap();
            ended.state = state;
            here.update(&ended, at(10)).unwrap();
        }
        assert!(here.open_ones().unwrap().is_empty());
        let counts = Counts {
            open: 0,
            settled: 1,
            refused: 1,
        };
        assert_eq!(here.counts().unwrap(), counts);
        assert!(here.revive("1", at(11)).unwrap() && !here.revive("2", at(11)).unwrap());
        assert_eq!(here.open_ones().unwrap().len(), 1);
    }

    #[test]
    fn one_process_sends_and_a_file_of_another_kind_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let dir = DataDir::at(place.path());
        let one = Settlements::open(&dir, "p").unwrap();
        let other = Settlements::open(&dir, "p").unwrap();
        let held = one.sender().unwrap();
        assert!(held.is_some() && other.sender().unwrap().is_none());
        drop(held);
        assert!(other.sender().unwrap().is_some());
        let foreign = DataDir::at(place.path().join("foreign"));
        crate::data_dir::create_private(foreign.path()).unwrap();
        std::fs::write(foreign.settlements(), "no database, certainly not one").unwrap();
        let refused = Settlements::open(&foreign, "p");
        assert!(
            matches!(refused, Err(StoreError::Damaged { .. })),
            "{refused:?}"
        );
    }
}
