//! Writing a run down: its journal from before the program starts to after it has ended, and the files that it left in its workspace. Trouble here never changes the run; it is told
//! in the record.

mod account;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cofferdam_contract::problem::{Problem, Problems};
use cofferdam_contract::record::{ChangeKind, RunRecord};
use cofferdam_contract::request::{BackendName, MountAccess, Request, WorkspaceAccess};
use cofferdam_contract::units::Bytes;
use cofferdam_store::collect::{self, ArtifactLimits, Collected, Scan, Scanner, Snapshot, names};
use cofferdam_store::journal::Journal;
use cofferdam_store::model::{Artifact, ArtifactKind, LeftOut, RunKind};
use cofferdam_store::objects::Objects;
use cofferdam_store::sift::redact::{self, Redactor, Rules};
use cofferdam_store::{DataDir, RunId, StoreError};
use rustix::fs::{Mode, OFlags};
use serde_json::Value;

use crate::capture;
use crate::changes::readable;
use crate::error::EngineError;
use crate::pipeline::Birth;
use crate::reach;
use account::{About, closing, opening, redact_closing};

/// What is to be kept of a run, and where.
#[derive(Debug)]
pub struct Recording {
    /// What the run will be known by; whoever queues runs knows it before they begin.
    pub run_id: RunId,
    pub dir: DataDir,
    pub kind: RunKind,
    pub tags: BTreeMap<String, String>,
    pub parent: Option<RunId>,
    /// The id of the token that sent it, and its own name for it.
    pub sender: Option<String>,
    pub execution_id: Option<String>,
    /// The sealed payload, where one is executed.
    pub payload: Option<Value>,
    /// What is taken out before anything is written. Values of sensitive variables are added to it.
    pub rules: Rules,
    /// How much output the journal takes.
    pub journal: Bytes,
    /// What is kept of the files that the run leaves; `None` for nothing.
    pub artifacts: Option<ArtifactLimits>,
    /// What its results are, asked after it has ended and its streams are closed.
    pub results: Option<Results>,
    /// Told what was kept of the files, for whoever would read the journal again.
    pub files: Option<KeptFiles>,
}

/// The files of a run, as its journal names them: filled in when the run has ended.
#[derive(Debug, Clone, Default)]
pub struct KeptFiles(Arc<OnceLock<(Vec<Artifact>, Vec<LeftOut>)>>);

impl KeptFiles {
    /// Empty for a run that is not in the history.
    pub fn told(&self) -> (Vec<Artifact>, Vec<LeftOut>) {
        self.0.get().cloned().unwrap_or_default()
    }
}

/// How the results of a run are found; they are kept with how it ended.
pub struct Results(Box<dyn FnOnce() -> Option<Value> + Send>);

impl Results {
    pub fn new(find: impl FnOnce() -> Option<Value> + Send + 'static) -> Self {
        Self(Box::new(find))
    }
}

impl std::fmt::Debug for Results {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Results")
    }
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
    results: Option<Results>,
    files: Option<KeptFiles>,
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
            run_id: RunId::new(),
            dir,
            kind: RunKind::Command,
            tags: BTreeMap::new(),
            parent: None,
            sender: None,
            execution_id: None,
            payload: None,
            rules: Rules::default(),
            journal: Bytes::new(64 << 20),
            artifacts: Some(ArtifactLimits::default()),
            results: None,
            files: None,
        }
    }

    /// A program that can write where its own history lies could rewrite it, and everybody else's.
    pub(crate) fn check(&self, request: &Request) -> Result<(), EngineError> {
        let mut problems = Vec::new();
        for (field, path) in writable(request) {
            if !is_below(&self.dir.work(), path) && reach::reaches(path, self.dir.path()) {
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
                sender: self.sender,
                execution_id: self.execution_id,
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
            results: self.results,
            files: self.files,
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
        let results = self.results.and_then(|results| (results.0)());
        let journal = match self.journal {
            Ok(journal) => journal,
            Err(error) => return Some(error.to_string()),
        };
        let (collected, trouble) = match collected {
            Ok(collected) => (collected, None),
            Err(error) => (Collected::default(), Some(error.to_string())),
        };
        let mut closing = closing(record, collected);
        closing.results = results;
        closing.redactions = self.redactions + redact_closing(&mut closing, &self.rules);
        let files = self.files.as_ref();
        let files = files.map(|_| (closing.artifacts.clone(), closing.left_out.clone()));
        if let Err(error) = journal.finish(closing) {
            return Some(error.to_string());
        }
        if let (Some(told), Some(files)) = (&self.files, files) {
            told.0.get_or_init(|| files);
        }
        trouble
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
        let give_up = || Instant::now() >= until || cancel.is_some_and(capture::has_data);
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
#[derive(Debug)]
pub struct Secrets<'a>(pub &'a Rules);

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

/// The one place in the data directory that programs may be given: private workspaces, which hold no history.
fn is_below(work: &Path, writable: &Path) -> bool {
    match (work.canonicalize(), writable.canonicalize()) {
        (Ok(work), Ok(writable)) => writable != work && writable.starts_with(work),
        _ => false,
    }
}
