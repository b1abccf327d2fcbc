//! Runs to store, and a history to store them in.

use std::collections::BTreeMap;
use std::error::Error;

use cofferdam_contract::ending::{EndingRecord, Stream};
use cofferdam_contract::record::UsageRecord;
use cofferdam_store::database::{KeptOutput, NewRun};
use cofferdam_store::log::{self, Chunk};
use cofferdam_store::model::{
    Closing, HostFacts, LogFacts, Opening, Outcome, RunKind, StreamKept, StreamSeen,
};
use cofferdam_store::{DataDir, History, RunId};
use jiff::Timestamp;
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

pub(crate) type Tested = Result<(), Box<dyn Error>>;

/// A history in a directory of its own.
pub(crate) struct Place {
    _directory: TempDir,
    pub(crate) dir: DataDir,
    pub(crate) history: History,
}

impl Place {
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        let directory = tempfile::tempdir()?;
        let dir = DataDir::at(directory.path().join("data"));
        let history = History::open(&dir)?;
        Ok(Self {
            _directory: directory,
            dir,
            history,
        })
    }

    /// Somebody else's hands on the file, without any of the triggers.
    pub(crate) fn raw(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open(self.dir.database())?;
        let mut statement =
            connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger'")?;
        let names = statement.query_map([], |row| row.get::<_, String>(0))?;
        let names: Vec<String> = names.collect::<rusqlite::Result<_>>()?;
        drop(statement);
        for name in names {
            connection.execute_batch(&format!("DROP TRIGGER {name}"))?;
        }
        connection.execute_batch("PRAGMA foreign_keys = OFF")?;
        Ok(connection)
    }
}

/// The n-th run of a test: one second after the one before.
pub(crate) const fn nth_second(n: i64) -> i64 {
    1_700_000_000 + n
}

pub(crate) fn id(n: i64) -> RunId {
    let at = Timestamp::from_second(nth_second(n)).unwrap_or_default();
    let mut bytes = *RunId::floor(at).as_bytes();
    bytes[6] = 0x70;
    bytes[8] = 0x80;
    bytes[15] = 1;
    RunId::from_bytes(bytes)
}

pub(crate) fn opening(n: i64) -> Opening {
    Opening {
        run_id: id(n),
        started_at: Timestamp::from_second(nth_second(n)).unwrap_or_default(),
        command: vec!["echo".to_owned(), format!("number {n}")],
        cwd: None,
        environment: vec!["PATH".to_owned()],
        kind: RunKind::Command,
        backend: "native".to_owned(),
        tags: BTreeMap::new(),
        parent: None,
        sender: None,
        execution_id: None,
        policy: json!({"network": "denied", "limits": {"memory_mb": 64}}),
        payload: None,
        host: HostFacts {
            name: "host".to_owned(),
            kernel: "6.1".to_owned(),
            uid: 1000,
        },
        version: "0.1.0".to_owned(),
    }
}

pub(crate) fn closing(ending: EndingRecord, exit_code: Option<i32>, wall_ms: f64) -> Closing {
    Closing {
        results: None,
        network: None,
        determinism: None,
        ended_at: Timestamp::from_second(nth_second(0)).unwrap_or_default(),
        ending,
        exit_code,
        signal: None,
        usage: UsageRecord {
            wall_ms,
            cpu_ms: 1.0,
            memory_peak_bytes: None,
            processes_peak: None,
            output_bytes: 3,
            disk_bytes: None,
        },
        enforced_by: BTreeMap::new(),
        isolation: BTreeMap::new(),
        denials: Vec::new(),
        changes: None,
        redactions: 0,
        stdout: StreamSeen { bytes: 3, lost: 0 },
        stderr: StreamSeen::default(),
        artifacts: Vec::new(),
        left_out: Vec::new(),
    }
}

pub(crate) fn chunks(text: &str) -> Vec<Chunk> {
    vec![Chunk {
        stream: Stream::Stdout,
        at_micros: 5,
        bytes: text.as_bytes().to_vec(),
    }]
}

/// A run that exited with this code after `n` milliseconds.
pub(crate) fn exited(n: i64, code: i32) -> NewRun {
    let wall = f64::from(i32::try_from(n).unwrap_or(0));
    NewRun {
        opening: opening(n),
        outcome: Outcome::Ended(Box::new(closing(EndingRecord::Exited, Some(code), wall))),
        log: LogFacts {
            stdout: StreamKept {
                bytes: 3,
                removed: 0,
                binary: false,
            },
            stderr: StreamKept::default(),
        },
        output: KeptOutput::Inline(log::encode(&chunks("hi\n"))),
    }
}

pub(crate) fn stopped(n: i64, cause: &str) -> NewRun {
    let ending = EndingRecord::Stopped {
        cause: cause.to_owned(),
        limit: None,
        detail: String::new(),
    };
    NewRun {
        outcome: Outcome::Ended(Box::new(closing(ending, None, 10.0))),
        ..exited(n, 0)
    }
}

pub(crate) fn interrupted(n: i64) -> NewRun {
    NewRun {
        outcome: Outcome::Interrupted {
            noticed_at: Timestamp::from_second(nth_second(n)).unwrap_or_default(),
        },
        ..exited(n, 0)
    }
}

pub(crate) fn tagged(mut run: NewRun, key: &str, value: &str) -> NewRun {
    run.opening.tags.insert(key.to_owned(), value.to_owned());
    run
}

pub(crate) fn sent(mut run: NewRun, sender: &str) -> NewRun {
    run.opening.sender = Some(sender.to_owned());
    run
}

pub(crate) fn with_command(mut run: NewRun, command: &[&str]) -> NewRun {
    run.opening.command = command.iter().map(|text| (*text).to_owned()).collect();
    run
}
