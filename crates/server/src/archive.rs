//! The daemon's side of the history: takes in the journals of runs that have ended, in a thread of its own, and reads for those who ask.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cofferdam_contract::ending::EndingRecord;
use cofferdam_contract::record::UsageRecord;
use cofferdam_contract::units::Bytes;
use cofferdam_engine::heap;
use cofferdam_store::adopt::{self, Purpose};
use cofferdam_store::database::Access;
use cofferdam_store::journal::Journal;
use cofferdam_store::model::{Closing, HostFacts, Opening, StreamSeen};
use cofferdam_store::sift::redact::{self, Rules};
use cofferdam_store::{DataDir, History, RunId, StoreError, private_dir, upkeep};
use jiff::Timestamp;
use serde_json::Value;

use crate::config::Remembrance;
use crate::known::KnownAnswers;
use crate::live::Live;
use crate::trace::RunPhase;

/// How long an ended run may wait to be taken in, and how many may.
const EVERY: Duration = Duration::from_millis(200);
const MANY: usize = 64;
/// How often what is old is looked for while nothing ends; also when a failure is tried again.
const LOOK_AFTER_EVERY: Duration = Duration::from_secs(600);
/// Memory that a burst of runs needed is not kept for ever.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(10);

/// Reads and keeps the history.
#[derive(Debug)]
pub(crate) struct Archive {
    dir: DataDir,
    kept: Remembrance,
    /// One reader at a time; opened when first needed.
    reader: Mutex<Option<History>>,
    pending: Mutex<Pending>,
    wake: Condvar,
    known: KnownAnswers,
}

#[derive(Debug, Default)]
struct Pending {
    ended: usize,
    stopping: bool,
}

impl Archive {
    pub(crate) fn new(dir: DataDir, kept: Remembrance) -> Self {
        Self {
            known: KnownAnswers::new(dir.clone(), kept.results),
            dir,
            kept,
            reader: Mutex::new(None),
            pending: Mutex::new(Pending::default()),
            wake: Condvar::new(),
        }
    }

    pub(crate) fn dir(&self) -> &DataDir {
        &self.dir
    }

    pub(crate) fn known(&self) -> &KnownAnswers {
        &self.known
    }

    /// What is kept of runs, and for how long.
    pub(crate) fn kept(&self) -> &Remembrance {
        &self.kept
    }

    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let archive = Arc::clone(self);
        std::thread::Builder::new()
            .name("archive".to_owned())
            .spawn(move || archive.keep_up())
    }

    /// Another journal is complete.
    pub(crate) fn ended(&self) {
        let mut pending = self.pending();
        pending.ended += 1;
        if pending.ended >= MANY {
            self.wake.notify_all();
        }
    }

    /// Takes in what is there and ends the thread.
    pub(crate) fn stop(&self) {
        self.pending().stopping = true;
        self.wake.notify_all();
    }

    /// With everything that has ended taken in first. Blocks on the disk.
    pub(crate) fn read_all<T>(
        &self,
        read: impl FnOnce(&History) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.with_reader(|history| {
            if history.access() == Access::ReadWrite {
                adopt::adopt(history, &self.kept.keeping, Purpose::Reading)?;
            }
            read(history)
        })
    }

    /// One run: from what has been taken in, or else after taking in the rest.
    pub(crate) fn read_run<T>(
        &self,
        read: impl Fn(&History) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let found = self.with_reader(|history| read(history));
        match found {
            Err(StoreError::NoSuchRun { .. }) => self.read_all(read),
            other => other,
        }
    }

    /// A run that never came to the engine is kept like every other, with how it ended.
    pub(crate) fn keep_unrun(&self, live: &Live, ending: EndingRecord) {
        let _phase = live.trace.phase(RunPhase::Record);
        let rules = live.rules(&self.kept.rules);
        let result = write_unrun(&self.dir, rules, live, ending);
        match result {
            Ok(()) => self.ended(),
            Err(error) => tracing::error!(run_id = %live.id, %error, "a run could not be kept"),
        }
    }

    fn with_reader<T>(
        &self,
        work: impl FnOnce(&mut History) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let history = match reader.as_mut() {
            Some(history) => history,
            None => reader.insert(History::open(&self.dir)?),
        };
        work(history)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_up(&self) {
        let mut history = None;
        let mut given_back = Instant::now();
        let mut taken_in = Instant::now();
        loop {
            let pending = self.pending();
            let waited = self.wake.wait_timeout_while(pending, EVERY, |pending| {
                pending.ended < MANY && !pending.stopping
            });
            let (mut pending, _) = waited.unwrap_or_else(PoisonError::into_inner);
            let ended = std::mem::take(&mut pending.ended);
            let stopping = pending.stopping;
            drop(pending);
            // What is old goes also where nothing runs.
            let is_due = ended > 0 || taken_in.elapsed() >= LOOK_AFTER_EVERY;
            if is_due {
                taken_in = Instant::now();
                if let Err(error) = self.take_in(&mut history) {
                    tracing::error!(%error, "journals could not be taken in");
                    history = None;
                }
            }
            if stopping {
                return;
            }
            if given_back.elapsed() >= GIVE_BACK_EVERY {
                heap::give_back();
                given_back = Instant::now();
            }
        }
    }

    fn take_in(&self, open: &mut Option<History>) -> Result<(), StoreError> {
        let history = match open.as_mut() {
            Some(history) => history,
            None => open.insert(History::open(&self.dir)?),
        };
        if history.access() == Access::ReadOnly {
            return Ok(());
        }
        adopt::adopt(history, &self.kept.keeping, Purpose::Reading)?;
        private_dir::sweep_best_effort(&self.dir);
        upkeep::prune_when_due(history, &self.kept.retention)
    }
}

/// How the record of a run begins that the engine did not write, and how many secrets were taken out of it.
pub(crate) fn opening_of(live: &Live, rules: &Rules) -> (Opening, u64) {
    let system = rustix::system::uname();
    let (command, mut redactions) = redact::redact_arguments(rules, &live.command);
    // A name can say that its value is a secret.
    let tags = live.tags.iter().map(|(key, value)| {
        let (joined, found) = redact::redact_text(rules, &format!("{key}={value}"));
        redactions += found;
        let (key, value) = joined.split_once('=').unwrap_or((&joined, ""));
        (key.to_owned(), value.to_owned())
    });
    let tags = tags.collect();
    let opening = Opening {
        run_id: live.id,
        started_at: live.submitted_at,
        command,
        cwd: None,
        environment: Vec::new(),
        kind: live.kind,
        backend: "native".to_owned(),
        tags,
        parent: live.parent,
        sender: Some(live.tenant.clone()),
        execution_id: live.execution_id.clone(),
        policy: Value::Null,
        payload: None,
        host: HostFacts {
            name: system.nodename().to_string_lossy().into_owned(),
            kernel: system.release().to_string_lossy().into_owned(),
            uid: rustix::process::getuid().as_raw(),
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    (opening, redactions)
}

fn write_unrun(
    dir: &DataDir,
    rules: Rules,
    live: &Live,
    ending: EndingRecord,
) -> Result<(), StoreError> {
    let (opening, mut redactions) = opening_of(live, &rules);
    let mut ending = ending;
    if let EndingRecord::NeverStarted { message, .. } = &mut ending {
        let (clean, found) = redact::redact_text(&rules, message);
        *message = clean;
        redactions += found;
    }
    let closing = Closing {
        ended_at: Timestamp::now(),
        ending,
        exit_code: None,
        signal: None,
        usage: UsageRecord {
            wall_ms: 0.0,
            cpu_ms: 0.0,
            memory_peak_bytes: None,
            processes_peak: None,
            output_bytes: 0,
            disk_bytes: None,
        },
        enforced_by: Default::default(),
        isolation: Default::default(),
        denials: Vec::new(),
        changes: None,
        redactions,
        stdout: StreamSeen::default(),
        stderr: StreamSeen::default(),
        artifacts: Vec::new(),
        left_out: Vec::new(),
        results: None,
        network: None,
        determinism: None,
    };
    Journal::begin(dir, &opening, rules, Bytes::new(0))?.finish(closing)
}

/// Whether the text could name a run at all.
pub(crate) fn parse_id(text: &str) -> Result<RunId, StoreError> {
    text.parse().map_err(|_| StoreError::NoSuchRun {
        asked: text.chars().take(64).collect(),
    })
}
