//! Writing a run down: its journal from before the program starts to after it has ended, and the files that it left in its workspace. Trouble here never changes the run; it is told
//! in the record.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_contract::limits::Limits;
use cofferdam_contract::problem::{Problem, Problems};
use cofferdam_contract::record::{Change, ChangeKind, RunRecord};
use cofferdam_contract::request::{
    BackendName, MountAccess, Network, Request, Root, WorkspaceAccess,
};
use cofferdam_contract::units::{Bytes, Cap, CpuShare};
use cofferdam_store::collect::{self, ArtifactLimits, Collected, Scan, Scanner, Snapshot, names};
use cofferdam_store::journal::Journal;
use cofferdam_store::model::{
    Artifact, ArtifactKind, Closing, HostFacts, LeftOut, Opening, RunKind, StreamSeen,
};
use cofferdam_store::objects::Objects;
use cofferdam_store::sift::redact::{self, Redactor, Rules};
use cofferdam_store::{DataDir, RunId, StoreError};
use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};

use crate::changes::readable;
use crate::error::EngineError;
use crate::pipeline::Birth;
use crate::reach;

/// What is to be kept of a run, and where.
#[derive(Debug)]
pub struct Recording {
    pub dir: DataDir,
    pub kind: RunKind,
    pub tags: BTreeMap<String, String>,
    pub parent: Option<RunId>,
    /// The sealed payload, where one is executed.
    pub payload: Option<Value>,
    /// What is taken out before anything is written. Values of sensitive variables are added to it.
    pub rules: Rules,
    /// How much output the journal takes.
    pub journal: Bytes,
    /// What is kept of the files that the run leaves; `None` for nothing.
    pub artifacts: Option<ArtifactLimits>,
}

/// A run that is being written down.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// Or why there is none.
    journal: Result<Box<Journal>, StoreError>,
    dir: DataDir,
    rules: Rules,
    /// Secrets that were found before the program said anything.
    redactions: u64,
    artifacts: Option<ArtifactLimits>,
    workspace: Option<Before>,
}

/// A writable workspace before the run. Held open: what has its name afterwards may be something else.
#[derive(Debug)]
struct Before {
    dir: OwnedFd,
    snapshot: Result<Snapshot, StoreError>,
}

impl Recording {
    pub fn new(dir: DataDir) -> Self {
        Self {
            dir,
            kind: RunKind::Command,
            tags: BTreeMap::new(),
            parent: None,
            payload: None,
            rules: Rules::default(),
            journal: Bytes::new(64 << 20),
            artifacts: Some(ArtifactLimits::default()),
        }
    }

    /// A program that can write where its own history lies could rewrite it, and everybody else's.
    pub(crate) fn check(&self, request: &Request) -> Result<(), EngineError> {
        let mut problems = Vec::new();
        for (field, path) in writable(request) {
            if reach::reaches(path, self.dir.path()) {
                let fix = format!(
                    "holds the history ({}), which the program could rewrite; name another place with --data-dir, or keep no history with --no-history",
                    reach::shown(self.dir.path())
                );
                problems.push(Problem::new(field, reach::shown(path), fix));
            }
        }
        Ok(Problems::check(problems)?)
    }

    pub(crate) fn begin(self, request: &Request, birth: Birth) -> Recorder {
        let sensitive = request.env.iter().filter_map(|(name, value)| {
            let name = name.to_str()?;
            redact::is_sensitive_name(name).then(|| value.as_bytes())
        });
        // Also as they look where bytes are written as text.
        let mut values = Vec::new();
        for value in sensitive {
            values.extend([
                value.to_vec(),
                readable(value).into_bytes(),
                names::escape(value).into_bytes(),
            ]);
        }
        let rules = self.rules.with_values(values.iter().map(Vec::as_slice));
        let (opening, redactions) = opening(
            request,
            birth,
            About {
                kind: self.kind,
                tags: self.tags,
                parent: self.parent,
                payload: self.payload,
            },
            &rules,
        );
        let journal = Journal::begin(&self.dir, &opening, rules.clone(), self.journal);
        let is_kept = self.artifacts.is_some() && journal.is_ok();
        Recorder {
            journal: journal.map(Box::new),
            dir: self.dir,
            rules,
            redactions,
            workspace: request
                .workspace
                .as_ref()
                .filter(|_| is_kept)
                .and_then(|workspace| match workspace.access {
                    WorkspaceAccess::ReadWrite => Before::look(&workspace.path),
                    WorkspaceAccess::ReadOnly | WorkspaceAccess::CopyOnWrite => None,
                }),
            artifacts: self.artifacts,
        }
    }
}

impl Before {
    fn look(path: &Path) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        let snapshot = Snapshot::of(dir.as_fd());
        Some(Self { dir, snapshot })
    }
}

impl Recorder {
    /// Where output goes; `None` when nothing can be written.
    pub(crate) fn journal(&mut self) -> Option<&mut Journal> {
        self.journal.as_deref_mut().ok()
    }

    /// Collects what the run left and closes its journal. Returns why it is not in the history, if it is not. `upper` is what a copy-on-write workspace changed.
    /// The rest of the files is left out when `cancel` becomes readable.
    pub(crate) fn finish(
        self,
        record: &RunRecord,
        upper: Option<OwnedFd>,
        cancel: Option<BorrowedFd<'_>>,
    ) -> Option<String> {
        let collected = self.collect(record, upper, cancel);
        let journal = match self.journal {
            Ok(journal) => journal,
            Err(error) => return Some(error.to_string()),
        };
        let (collected, trouble) = match collected {
            Ok(collected) => (collected, None),
            Err(error) => (Collected::default(), Some(error.to_string())),
        };
        let mut closing = closing(record, collected);
        closing.redactions = self.redactions + redact_closing(&mut closing, &self.rules);
        let closed = journal.finish(closing).err().map(|error| error.to_string());
        closed.or(trouble)
    }

    fn collect(
        &self,
        record: &RunRecord,
        upper: Option<OwnedFd>,
        cancel: Option<BorrowedFd<'_>>,
    ) -> Result<Collected, StoreError> {
        let Some(limits) = &self.artifacts else {
            return Ok(Collected::default());
        };
        let objects = Objects::open(&self.dir);
        let scanner = Secrets(&self.rules);
        let until = Instant::now() + COLLECTING;
        let give_up = || Instant::now() >= until || cancel.is_some_and(is_readable);
        let rules = collect::Rules {
            limits: *limits,
            scanner: Some(&scanner),
            give_up: Some(&give_up),
        };
        match (&self.workspace, upper) {
            (Some(before), _) => match &before.snapshot {
                Ok(snapshot) => {
                    collect::collect(before.dir.as_fd(), Some(snapshot), &objects, &rules)
                }
                Err(error) => Ok(Collected {
                    left_out: vec![LeftOut {
                        path: ".".to_owned(),
                        why: error.to_string(),
                    }],
                    ..Collected::default()
                }),
            },
            (None, Some(upper)) => {
                let mut collected = collect::collect(upper.as_fd(), None, &objects, &rules)?;
                tell_changed(&mut collected, record);
                Ok(collected)
            }
            (None, None) => Ok(Collected::default()),
        }
    }
}

/// Whoever waits for the end of a run does not wait longer than this for its files to be looked at.
const COLLECTING: Duration = Duration::from_secs(10);

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// An upper layer holds whole files; only the comparison with what it covers tells which of them are new.
fn tell_changed(collected: &mut Collected, record: &RunRecord) {
    let changes = record.changes.as_deref().unwrap_or_default();
    let modified: BTreeSet<&str> = changes
        .iter()
        .filter(|change| change.kind == ChangeKind::Modified)
        .map(|change| change.path.as_str())
        .collect();
    for artifact in &mut collected.artifacts {
        let raw = names::unescape(&artifact.path).unwrap_or_default();
        if modified.contains(readable(&raw).as_str()) {
            artifact.kind = ArtifactKind::Changed;
        }
    }
}

/// Files in which redaction would find something are not kept: cutting it out would make them other files.
struct Secrets<'a>(&'a Rules);

struct SecretScan {
    redactor: Redactor,
    clean: Vec<u8>,
}

impl Scanner for Secrets<'_> {
    fn begin(&self) -> Box<dyn Scan + '_> {
        Box::new(SecretScan {
            redactor: Redactor::new(self.0),
            clean: Vec::new(),
        })
    }
}

impl Scan for SecretScan {
    fn push(&mut self, bytes: &[u8]) {
        self.clean.clear();
        self.redactor.push(bytes, &mut self.clean);
    }

    fn end(&mut self) {
        self.clean.clear();
        self.redactor.finish(&mut self.clean);
    }

    fn found(&self) -> bool {
        self.redactor.count() > 0
    }
}

/// What the program may write to on the host.
fn writable(request: &Request) -> impl Iterator<Item = (&'static str, &Path)> {
    let workspace = request
        .workspace
        .iter()
        .filter(|workspace| workspace.access == WorkspaceAccess::ReadWrite)
        .map(|workspace| ("workspace", workspace.path.as_path()));
    let mounts = request
        .mounts
        .iter()
        .filter(|mount| mount.access == MountAccess::ReadWrite)
        .map(|mount| ("mounts", mount.source.as_path()));
    // Without isolation there is no wall that this could be a hole in.
    let is_walled = request.backend != BackendName::Host;
    workspace.chain(mounts).filter(move |_| is_walled)
}

struct About {
    kind: RunKind,
    tags: BTreeMap<String, String>,
    parent: Option<RunId>,
    payload: Option<Value>,
}

/// Everything that is known before the start, without its secrets, and how many there were.
fn opening(request: &Request, birth: Birth, about: About, rules: &Rules) -> (Opening, u64) {
    let argv: Vec<String> = request
        .argv
        .iter()
        .map(|argument| readable(argument.as_bytes()))
        .collect();
    let (command, mut redactions) = redact::redact_arguments(rules, &argv);
    let mut payload = about.payload;
    if let Some(payload) = &mut payload {
        redactions += redact::redact_json(rules, payload);
    }
    let mut policy = policy(request);
    redactions += redact::redact_json(rules, &mut policy);
    let mut clean = |text: &str| {
        let (text, count) = redact::redact_text(rules, text);
        redactions += count;
        text
    };
    // A name can say that its value is a secret.
    let tags = about.tags.iter().map(|(key, value)| {
        let joined = clean(&format!("{key}={value}"));
        let (key, value) = joined.split_once('=').unwrap_or((&joined, ""));
        (key.to_owned(), value.to_owned())
    });
    let tags = tags.collect();
    let cwd = request.cwd.as_ref().map(|cwd| clean(&reach::shown(cwd)));
    let environment = request.env.iter();
    let environment = environment
        .map(|(name, _)| clean(&readable(name.as_bytes())))
        .collect();
    let system = rustix::system::uname();
    let opening = Opening {
        run_id: birth.run_id,
        started_at: birth.started_at,
        command,
        cwd,
        environment,
        kind: about.kind,
        backend: request.backend.as_str().to_owned(),
        tags,
        parent: about.parent,
        policy,
        payload,
        host: HostFacts {
            name: system.nodename().to_string_lossy().into_owned(),
            kernel: system.release().to_string_lossy().into_owned(),
            uid: rustix::process::getuid().as_raw(),
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    (opening, redactions)
}

fn closing(record: &RunRecord, mut collected: Collected) -> Closing {
    let changes = record.changes.as_deref().map(bounded);
    let listed = changes.as_ref().map_or(0, Vec::len);
    let all = record.changes.as_ref().map_or(0, Vec::len);
    if listed < all {
        collected.left_out.push(LeftOut {
            path: ".".to_owned(),
            why: format!("{} more changes are not listed", all - listed),
        });
    }
    Closing {
        ended_at: record.ended_at.parse().unwrap_or_else(|_| Timestamp::now()),
        ending: (&record.ending).into(),
        exit_code: record.exit_code,
        signal: record.signal.clone(),
        usage: record.usage,
        enforced_by: record.enforced_by.clone(),
        isolation: record.isolation.clone(),
        denials: record.denials.clone(),
        changes,
        redactions: 0,
        stdout: StreamSeen::default(),
        stderr: StreamSeen::default(),
        artifacts: collected.artifacts,
        left_out: collected.left_out,
    }
}

/// As many as a record can hold: the program chose how long the names are.
fn bounded(changes: &[Change]) -> Vec<Change> {
    const MOST_BYTES: usize = 4 << 20;
    let mut bytes = 0;
    let fits = |change: &&Change| {
        bytes += change.path.len();
        bytes <= MOST_BYTES
    };
    changes.iter().take_while(fits).cloned().collect()
}

/// The texts in a closing that the program had a say in: messages with its paths, names of its files.
fn redact_closing(closing: &mut Closing, rules: &Rules) -> u64 {
    use cofferdam_contract::ending::EndingRecord;
    let mut count = 0;
    let mut clean = |text: &mut String| {
        let (clean, found) = redact::redact_text(rules, text);
        if found > 0 {
            *text = clean;
            count += found;
        }
    };
    match &mut closing.ending {
        EndingRecord::NeverStarted { step, message, .. } => {
            clean(step);
            clean(message);
        }
        EndingRecord::Stopped { .. } | EndingRecord::Exited | EndingRecord::Signaled => {}
    }
    for denial in &mut closing.denials {
        clean(&mut denial.what);
    }
    for change in closing.changes.iter_mut().flatten() {
        clean(&mut change.path);
    }
    for artifact in &mut closing.artifacts {
        clean(&mut artifact.path);
    }
    for left_out in &mut closing.left_out {
        clean(&mut left_out.path);
        clean(&mut left_out.why);
    }
    tell_apart(&mut closing.artifacts);
    count
}

/// Names that have become equal are numbered, so that each still names one file.
fn tell_apart(artifacts: &mut [Artifact]) {
    let mut taken = BTreeSet::new();
    for artifact in artifacts {
        let mut name = artifact.path.clone();
        let mut number = 1;
        while !taken.insert(name.clone()) {
            number += 1;
            name = format!("{}~{number}", artifact.path);
        }
        artifact.path = name;
    }
}

/// What was allowed, in the units that the names say; null is no limit.
fn policy(request: &Request) -> Value {
    let path = reach::shown;
    json!({
        "limits": limits(&request.limits),
        "network": match request.network {
            Network::Denied => "denied",
            Network::Allowed => "allowed",
        },
        "root": match &request.root {
            Root::HostUsr => "host".to_owned(),
            Root::Dir(dir) => path(dir),
        },
        "workspace": request.workspace.as_ref().map(|workspace| json!({
            "path": path(&workspace.path),
            "access": match workspace.access {
                WorkspaceAccess::ReadWrite => "rw",
                WorkspaceAccess::ReadOnly => "ro",
                WorkspaceAccess::CopyOnWrite => "cow",
            },
        })),
        "mounts": request.mounts.iter().map(|mount| json!({
            "source": path(&mount.source),
            "target": path(&mount.target),
            "access": match mount.access {
                MountAccess::ReadWrite => "rw",
                MountAccess::ReadOnly => "ro",
            },
        })).collect::<Vec<_>>(),
        "waived": request.waived,
    })
}

fn limits(limits: &Limits) -> Value {
    let milliseconds = |cap: Cap<Duration>| {
        cap.at_most()
            .map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX))
    };
    let bytes = |cap: Cap<Bytes>| cap.at_most().map(Bytes::get);
    json!({
        "wall_time_ms": milliseconds(limits.wall_time),
        "cpu_time_ms": milliseconds(limits.cpu_time),
        "memory_bytes": bytes(limits.memory),
        "output_bytes": bytes(limits.output),
        "processes": limits.processes.at_most(),
        "disk_bytes": bytes(limits.disk),
        "open_files": limits.open_files.at_most(),
        "cpus_milli": limits.cpus.at_most().map(CpuShare::milli),
    })
}
