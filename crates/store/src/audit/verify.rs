//! Whether the chain, its head and the stored runs fit each other. Reads everything once, in order, and keeps little of it.

use std::fmt;

use rusqlite::{Connection, OptionalExtension as _};
use serde::Serialize;
use serde_json::Value;

use super::chain::{self, Entry, NOTHING_BEFORE};
use super::head::{self, Head, read_head};
use crate::database::run_row::RunRow;
use crate::database::{Fault, History};
use crate::error::StoreError;
use crate::id::RunId;
use crate::model::Digest;

/// More findings say nothing new, and one wrong link may cause many.
const MOST_FINDINGS: usize = 1000;

/// What verification found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    pub entries: u64,
    /// How many stored runs were compared with their entry.
    pub runs: u64,
    /// Where the chain ends: keep a copy elsewhere to compare with.
    pub last: Head,
    /// Empty when all is well. At most 1000.
    pub findings: Vec<Finding>,
}

/// Something that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Finding {
    /// Its contents are not those that its hash was made over.
    EntryChanged {
        seq: u64,
        expected: Digest,
        found: Digest,
    },
    /// It does not follow the entry before it: one was taken out, put in, moved or exchanged.
    EntryMisplaced {
        seq: u64,
        expected: Digest,
        found: Digest,
    },
    /// Entries are missing between two.
    EntriesMissing {
        from: u64,
        to: u64,
    },
    EntryUnreadable {
        seq: i64,
        why: String,
    },
    /// The chain ends before the head, or has another entry in its place.
    HeadNotInChain {
        head: Head,
        last: Head,
    },
    HeadMissing {
        last: Head,
    },
    HeadUnreadable {
        why: String,
    },
    /// A run is not as it was when it was recorded.
    RunChanged {
        run: String,
        seq: u64,
        expected: String,
        found: Digest,
    },
    /// A run is gone, and no entry says that it was removed.
    RunGone {
        run: String,
        seq: u64,
    },
    /// A run is there that no entry speaks of, or that the last entry says was removed.
    RunUnaccounted {
        run: String,
    },
    /// Two entries say that the run ended, and none between them that it was removed.
    RunRecordedTwice {
        run: String,
        seq: u64,
    },
    /// What searches by tag, by status or by command use differs from the runs themselves.
    IndexDiffers {
        what: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EntryChanged {
                seq,
                expected,
                found,
            } => write!(
                f,
                "entry {seq} was changed: its contents give {expected}, and its hash is {found}"
            ),
            Self::EntryMisplaced {
                seq,
                expected,
                found,
            } => write!(
                f,
                "entry {seq} does not follow the one before it: {expected} was expected as the hash before it, and it says {found}"
            ),
            Self::EntriesMissing { from, to } if from == to => write!(f, "entry {from} is missing"),
            Self::EntriesMissing { from, to } => write!(f, "entries {from} to {to} are missing"),
            Self::EntryUnreadable { seq, why } => write!(f, "entry {seq} cannot be read: {why}"),
            Self::HeadNotInChain { head, last } => write!(
                f,
                "the head names entry {} with hash {}, which the chain does not have; it ends with entry {}",
                head.seq, head.hash, last.seq
            ),
            Self::HeadMissing { last } => write!(
                f,
                "the head is missing, and the chain ends with entry {}",
                last.seq
            ),
            Self::HeadUnreadable { why } => write!(f, "the head cannot be read: {why}"),
            Self::RunChanged {
                run,
                seq,
                expected,
                found,
            } => write!(
                f,
                "run {run} was changed: entry {seq} says {expected}, and what is stored gives {found}"
            ),
            Self::RunGone { run, seq } => write!(
                f,
                "run {run} of entry {seq} is gone, and no entry says that it was removed"
            ),
            Self::RunUnaccounted { run } => {
                write!(f, "run {run} is stored, and no entry says that it came in")
            }
            Self::RunRecordedTwice { run, seq } => {
                write!(f, "run {run} ended once more in entry {seq}")
            }
            Self::IndexDiffers { what } => write!(f, "an index differs from the runs: {what}"),
        }
    }
}

/// Checks everything.
pub fn verify(history: &History) -> Result<Report, StoreError> {
    verify_with(history, |_, _| {})
}

/// Checks everything, and says now and then how many entries and runs of how many are done.
pub fn verify_with(
    history: &History,
    mut progress: impl FnMut(u64, u64),
) -> Result<Report, StoreError> {
    // Read before the chain is: the chain may grow meanwhile, the head must not seem ahead.
    let head = read_head(history);
    history.read(|connection| {
        let last = chain::last(connection)?;
        let mut check = Check {
            connection,
            progress: &mut progress,
            done: 0,
            total: amount(connection)?,
            report: Report {
                entries: 0,
                runs: 0,
                last,
                findings: Vec::new(),
            },
        };
        check.entries()?;
        check.head(head)?;
        check.every_run()?;
        check.indexes()?;
        (check.progress)(check.total, check.total);
        Ok(check.report)
    })
}

fn amount(connection: &Connection) -> Result<u64, Fault> {
    let sql = "SELECT (SELECT count(*) FROM audit) + (SELECT count(*) FROM runs)";
    let amount: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(u64::try_from(amount).unwrap_or(0))
}

struct Check<'a> {
    connection: &'a Connection,
    progress: &'a mut dyn FnMut(u64, u64),
    done: u64,
    total: u64,
    report: Report,
}

impl Check<'_> {
    fn found(&mut self, finding: Finding) {
        if self.report.findings.len() < MOST_FINDINGS {
            self.report.findings.push(finding);
        }
    }

    fn step(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(4096) {
            (self.progress)(self.done, self.total);
        }
    }

    fn entries(&mut self) -> Result<(), Fault> {
        let sql = "SELECT seq, at, event, subject, detail, prev, hash FROM audit ORDER BY seq";
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        let mut before = Head {
            seq: 0,
            hash: NOTHING_BEFORE,
        };
        while let Some(row) = rows.next()? {
            self.step();
            self.report.entries += 1;
            let number: i64 = row.get(0)?;
            match Entry::read(row) {
                Ok(entry) => {
                    self.link(before, &entry);
                    self.run_of(&entry)?;
                    before = Head {
                        seq: entry.seq,
                        hash: entry.hash,
                    };
                }
                Err(fault) => {
                    let why = match fault {
                        Fault::Damaged(why) => why,
                        Fault::Sql(error) => error.to_string(),
                        Fault::Store(error) => error.to_string(),
                    };
                    self.found(Finding::EntryUnreadable { seq: number, why });
                    before.seq = u64::try_from(number).unwrap_or(before.seq);
                }
            }
        }
        Ok(())
    }

    fn link(&mut self, before: Head, entry: &Entry) {
        let next = before.seq.saturating_add(1);
        if entry.seq > next {
            self.found(Finding::EntriesMissing {
                from: next,
                to: entry.seq - 1,
            });
        } else if entry.prev != before.hash {
            self.found(Finding::EntryMisplaced {
                seq: entry.seq,
                expected: before.hash,
                found: entry.prev,
            });
        }
        let computed = entry.computed();
        if computed != entry.hash {
            self.found(Finding::EntryChanged {
                seq: entry.seq,
                expected: computed,
                found: entry.hash,
            });
        }
    }

    /// What the entry says of a run holds, unless a later entry says something else.
    fn run_of(&mut self, entry: &Entry) -> Result<(), Fault> {
        let came_in = matches!(entry.event.as_str(), "run.ended" | "run.interrupted");
        if !came_in {
            return Ok(());
        }
        match self.next_about(entry)?.as_deref() {
            Some("run.removed") => return Ok(()),
            Some("run.ended" | "run.interrupted") => {
                self.found(Finding::RunRecordedTwice {
                    run: entry.subject.clone(),
                    seq: entry.seq,
                });
                return Ok(());
            }
            _ => {}
        }
        let stored = match entry.subject.parse::<RunId>() {
            Ok(id) => RunRow::read(self.connection, id),
            Err(_) => Ok(None),
        };
        self.report.runs += 1;
        let run = entry.subject.clone();
        match stored {
            Ok(Some(row)) => {
                let found = row.digest();
                let expected = recorded(&entry.detail);
                if expected != found.to_string() {
                    self.found(Finding::RunChanged {
                        run,
                        seq: entry.seq,
                        expected,
                        found,
                    });
                }
            }
            Ok(None) => self.found(Finding::RunGone {
                run,
                seq: entry.seq,
            }),
            Err(_) => self.found(Finding::RunChanged {
                run,
                seq: entry.seq,
                expected: recorded(&entry.detail),
                found: NOTHING_BEFORE,
            }),
        }
        Ok(())
    }

    /// The next event of a run's life.
    fn next_about(&self, entry: &Entry) -> Result<Option<String>, Fault> {
        let sql = "SELECT event FROM audit WHERE subject = ?1 AND seq > ?2
            AND event IN ('run.ended', 'run.interrupted', 'run.removed') ORDER BY seq LIMIT 1";
        let seq = i64::try_from(entry.seq).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(sql)?;
        let found = statement.query_row(rusqlite::params![entry.subject, seq], |row| row.get(0));
        Ok(found.optional()?)
    }

    fn head(&mut self, read: Result<Option<Head>, StoreError>) -> Result<(), Fault> {
        let last = self.report.last;
        match read {
            Ok(None) => self.found(Finding::HeadMissing { last }),
            Err(error) => self.found(Finding::HeadUnreadable {
                why: error.to_string(),
            }),
            Ok(Some(head)) => {
                if !head::is_in_chain(self.connection, head)? {
                    self.found(Finding::HeadNotInChain { head, last });
                }
            }
        }
        Ok(())
    }

    /// Every run that has ended has an entry, and the last one says that it is there.
    fn every_run(&mut self) -> Result<(), Fault> {
        // In the order of ids, which is nearly that of the entries: what is looked up next lies beside what was looked up before.
        let sql = "SELECT id FROM runs NOT INDEXED CROSS JOIN facets USING (facet)
            WHERE status <> 'running' ORDER BY id";
        let last = "SELECT event FROM audit WHERE subject = ?1
            AND event IN ('run.ended', 'run.interrupted', 'run.removed') ORDER BY seq DESC LIMIT 1";
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            self.step();
            let run = RunId::from_bytes(row.get(0)?).to_string();
            let mut statement = self.connection.prepare_cached(last)?;
            let event: Option<String> = statement.query_row([&run], |row| row.get(0)).optional()?;
            if !matches!(event.as_deref(), Some("run.ended" | "run.interrupted")) {
                self.found(Finding::RunUnaccounted { run });
            }
        }
        Ok(())
    }

    /// What is stored a second time so that searches are fast.
    fn indexes(&mut self) -> Result<(), Fault> {
        let checks = [
            (
                "tags that carry another status, duration or command than their run",
                "SELECT count(*) FROM tags CROSS JOIN runs ON id = run
                 WHERE tags.facet <> runs.facet OR tags.duration IS NOT runs.duration OR tags.command <> runs.command",
            ),
            (
                "senders that carry another status, duration or command than their run",
                "SELECT count(*) FROM senders CROSS JOIN runs ON id = run
                 WHERE senders.facet <> runs.facet OR senders.duration IS NOT runs.duration OR senders.command <> runs.command",
            ),
            (
                "commands that no search would find",
                "SELECT count(*) FROM commands WHERE command NOT IN (SELECT rowid FROM command_trigrams)",
            ),
            (
                "statuses with a wrong number of runs",
                "SELECT count(*) FROM facets WHERE runs <> (SELECT count(*) FROM runs AS r WHERE r.facet = facets.facet)",
            ),
            (
                "commands with a wrong number of runs",
                "SELECT count(*) FROM commands WHERE runs <> (SELECT count(*) FROM runs AS r WHERE r.command = commands.command)",
            ),
        ];
        for (what, sql) in checks {
            let wrong: i64 = self.connection.query_row(sql, [], |row| row.get(0))?;
            if wrong > 0 {
                let what = format!("{wrong} {what}");
                self.found(Finding::IndexDiffers { what });
            }
        }
        Ok(())
    }
}

fn recorded(detail: &str) -> String {
    let detail: Option<Value> = serde_json::from_str(detail).ok();
    let digest = detail.as_ref().and_then(|detail| detail.get("sha256"));
    match digest.and_then(Value::as_str) {
        Some(digest) => digest.to_owned(),
        None => "nothing".to_owned(),
    }
}
